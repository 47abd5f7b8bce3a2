// SPDX-License-Identifier: Apache-2.0
// The planner's smaller parts: machine, roofline, segment tree, simulation.
#include <random>

#include "graphs.h"
#include "plan/max_tree.h"
#include "plan/planner.h"
#include "plan/roofline.h"
#include "plan/simulate.h"
#include "support/catch.h"

namespace hmm::plan {
namespace {

using hmm::testing::AddOp;
using hmm::testing::AddStorage;
using hmm::testing::OneGap;
using hmm::testing::PlainMachine;

TEST_CASE("a link's bandwidth is log-linear between its points and flat beyond them") {
  Link link;
  link.latency_us = 8;
  link.engines = 2;
  link.curve = {{100, 10}, {10'000, 30}};
  CHECK(BandwidthAt(link, 1) == Approx(10));
  CHECK(BandwidthAt(link, 1000) == Approx(20));
  CHECK(BandwidthAt(link, 1'000'000) == Approx(30));
  CHECK(TransferUs(link, 1000) == Approx(4 + 50));
}

TEST_CASE("presets are there by name, with links both ways and their assumptions told") {
  for (const std::string_view name : MachinePresetNames()) {
    const std::optional<Machine> machine = MachinePreset(name);
    REQUIRE(machine.has_value());
    CHECK(machine->name == name);
    CHECK_FALSE(machine->assumptions.empty());
    CHECK(FindLink(*machine, TierKind::kHbm, TierKind::kDdr) != nullptr);
    CHECK(FindLink(*machine, TierKind::kFlash, TierKind::kDdr) != nullptr);
    CHECK(FindLink(*machine, TierKind::kHbm, TierKind::kFlash) == nullptr);
  }
  CHECK_FALSE(MachinePreset("none").has_value());
  const Machine machine = *MachinePreset("ascend-supernode");
  const Link* link = FindLink(machine, TierKind::kDdr, TierKind::kHbm);
  CHECK(BandwidthAt(*link, kGiB) == Approx(16 * 1073.741824));
}

TEST_CASE("the roofline takes the slower of compute and memory, and keeps what is known") {
  Machine machine;
  machine.flops_per_us = 100;
  machine.hbm_bytes_per_us = 10;
  machine.launch_us = 1;
  Graph graph;
  const StorageIndex a = AddStorage(graph, "A", 100);
  AddOp(graph, {}, {a}, 0);
  AddOp(graph, {a}, {}, 0);
  AddOp(graph, {a}, {}, 7);
  graph.ops[1].flops = 5000;
  CHECK(FillDurations(graph, machine) == 2);
  CHECK(graph.ops[0].microseconds == Approx(11));  // memory
  CHECK(graph.ops[1].microseconds == Approx(51));  // compute
  CHECK(graph.ops[2].microseconds == Approx(7));
}

TEST_CASE("the segment tree answers as a plain array does") {
  std::mt19937_64 rng(5);
  for (int round = 0; round < 50; ++round) {
    const std::size_t n = 1 + rng() % 40;
    std::vector<std::int64_t> plain(n);
    for (std::int64_t& v : plain) v = static_cast<std::int64_t>(rng() % 100) - 50;
    MaxTree tree(plain);
    for (int i = 0; i < 200; ++i) {
      std::size_t first = rng() % (n + 1), last = rng() % (n + 1);
      if (first > last) std::swap(first, last);
      const std::int64_t value = static_cast<std::int64_t>(rng() % 40) - 20;
      if (i % 3 == 0) {
        tree.Add(first, last, value);
        for (std::size_t p = first; p < last; ++p) plain[p] += value;
      }
      std::int64_t most = MaxTree::kLowest;
      std::size_t above = last;
      for (std::size_t p = first; p < last; ++p) {
        most = std::max(most, plain[p]);
        if (plain[p] > value) above = p;
      }
      REQUIRE(tree.Max(first, last) == most);
      REQUIRE(tree.LastAbove(first, last, value) == above);
      REQUIRE(tree.Max() == *std::max_element(plain.begin(), plain.end()));
    }
  }
}

TEST_CASE("a simulation takes any durations and tells a use that comes too early") {
  const Graph graph = OneGap(1, 1, 1, 1);
  const Machine machine = PlainMachine(1);
  absl::StatusOr<Plan> plan = MakePlan(graph, machine, 10);
  REQUIRE(plan.ok());
  std::vector<double> us(plan->sequence.size(), 100);
  Simulation run = Simulate(graph, machine, *plan, us);
  CHECK(run.step_us == Approx(600));
  CHECK(run.peak_bytes == 10);
  CHECK(run.faults.empty());
  // Without its waits the last op runs before A is back.
  plan->waits.clear();
  for (TaskIndex& begin : plan->wait_begin) begin = 0;
  run = Simulate(graph, machine, *plan, us);
  CHECK_FALSE(run.faults.empty());
}

TEST_CASE("links of one group slow each other down while both are busy") {
  // Two transfers of 10 us, one each way, at half the rate together: 20 us for both.
  Graph graph;
  Machine machine = PlainMachine(1);
  for (Link& link : machine.links) link.duplex_factor = 0.5;
  const StorageIndex a = AddStorage(graph, "A", 10);
  const StorageIndex b = AddStorage(graph, "B", 10);
  graph.storages[a].persistent = graph.storages[b].persistent = true;
  Plan plan;
  for (const auto kind : {MoveKind::kSwapOut, MoveKind::kSwapIn}) {
    Move move;
    move.kind = kind;
    move.storage = kind == MoveKind::kSwapOut ? a : b;
    move.bytes = 10;
    if (kind == MoveKind::kSwapIn) std::swap(move.from, move.to);
    plan.sequence.push_back({true, static_cast<std::uint32_t>(plan.moves.size())});
    plan.moves.push_back(move);
  }
  plan.homes = {{a, TierKind::kDdr, true, false}, {b, TierKind::kDdr, false, true}};
  plan.wait_begin = {0, 0, 0};
  const std::vector<double> us = PredictedUs(graph, machine, plan);
  CHECK(us == std::vector<double>{10, 10});
  CHECK(Simulate(graph, machine, plan, us).step_us == Approx(20));
  machine.links[1].contention_group = 2;
  CHECK(Simulate(graph, machine, plan, us).step_us == Approx(10));
}

}  // namespace
}  // namespace hmm::plan
