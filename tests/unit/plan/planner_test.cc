// SPDX-License-Identifier: Apache-2.0
#include "plan/planner.h"

#include "graphs.h"
#include "plan/baselines.h"
#include "plan/simulate.h"
#include "plan/stays.h"
#include "plan/validate.h"
#include "support/catch.h"

namespace hmm::plan {
namespace {

using hmm::testing::AddOp;
using hmm::testing::AddStorage;
using hmm::testing::OneGap;
using hmm::testing::PlainMachine;

Plan PlanOf(const Graph& graph, const Machine& machine, Bytes budget) {
  absl::StatusOr<Plan> plan = MakePlan(graph, machine, budget);
  REQUIRE(plan.ok());
  const std::vector<PlanFault> faults = Validate(graph, machine, *plan);
  INFO((faults.empty() ? "" : faults[0].text));
  CHECK(faults.empty());
  return *std::move(plan);
}

TEST_CASE("what fits needs no plan") {
  const Plan plan = PlanOf(OneGap(1, 1, 1, 1), PlainMachine(1), 20);
  CHECK(plan.verdict == Verdict::kFits);
  CHECK(plan.moves.empty());
  CHECK(plan.step_us == 4);
  CHECK(plan.stall_us == 0);
  CHECK(plan.unplanned_peak_bytes == 20);
  CHECK(plan.unplanned_peak_op == 1);
}

TEST_CASE("an empty graph fits") {
  const Plan plan = PlanOf(Graph(), PlainMachine(1), 0);
  CHECK(plan.verdict == Verdict::kFits);
  CHECK(plan.sequence.empty());
}

TEST_CASE("a gap is swapped out and in, and what cannot hide is stall") {
  // 10 bytes at 1 byte/us. A leaves while nothing else can run: op 1 needs its room, and comes back
  // after op 2 has freed B: 1 + 10 + 1 + 1 + 10 + 1.
  const Plan plan = PlanOf(OneGap(1, 1, 1, 1), PlainMachine(1), 10);
  REQUIRE(plan.verdict == Verdict::kPlanned);
  CHECK(plan.step_us == Approx(24));
  CHECK(plan.stall_us == Approx(20));
  CHECK(plan.moved_bytes == 20);
  REQUIRE(plan.moves.size() == 2);
  CHECK(plan.moves[0].kind == MoveKind::kSwapOut);
  CHECK(plan.moves[0].after_op == 0);
  CHECK(plan.moves[0].before_op == 1);
  CHECK(plan.moves[0].stall_us == Approx(10));
  CHECK(plan.moves[1].kind == MoveKind::kSwapIn);
  CHECK(plan.moves[1].after_op == 2);
  CHECK(plan.moves[1].before_op == 3);
  CHECK(plan.moves[1].stall_us == Approx(10));
}

TEST_CASE("transfers hide behind ops that leave room") {
  // op 1 takes 100 us and needs nothing: out and in both hide.
  Graph graph;
  const StorageIndex a = AddStorage(graph, "A", 10);
  const StorageIndex b = AddStorage(graph, "B", 10);
  AddOp(graph, {}, {a}, 1);
  AddOp(graph, {}, {}, 100);
  AddOp(graph, {}, {b}, 1);
  AddOp(graph, {b}, {}, 1);
  AddOp(graph, {}, {}, 100);
  AddOp(graph, {a}, {}, 1);
  const Plan plan = PlanOf(graph, PlainMachine(1), 10);
  CHECK(plan.verdict == Verdict::kPlanned);
  CHECK(plan.stall_us == 0);
  CHECK(plan.moved_bytes == 20);
}

TEST_CASE("the verdict says what is short, where, and what would do") {
  const Plan plan = PlanOf(OneGap(1, 1, 1, 1), PlainMachine(1), 7);
  CHECK(plan.verdict == Verdict::kInfeasible);
  CHECK(plan.short_op == 0);
  CHECK(plan.short_bytes == 3);
  CHECK(plan.smallest_budget_bytes == 10);
  CHECK(PlanOf(OneGap(1, 1, 1, 1), PlainMachine(1), 10).verdict == Verdict::kPlanned);
}

TEST_CASE("a machine without a lower tier is told apart from one op too large") {
  Machine machine = PlainMachine(1);
  machine.links.clear();
  const Plan plan = PlanOf(OneGap(1, 1, 1, 1), machine, 15);
  CHECK(plan.verdict == Verdict::kInfeasible);
  CHECK(plan.smallest_budget_bytes == 20);
  CHECK(plan.short_bytes == 5);
}

TEST_CASE("clean weights are dropped, not copied") {
  Graph graph;
  const StorageIndex w = AddStorage(graph, "W", 10);
  const StorageIndex b = AddStorage(graph, "B", 10);
  graph.storages[w].persistent = true;
  AddOp(graph, {w}, {}, 1);
  AddOp(graph, {}, {b}, 1);
  AddOp(graph, {b}, {}, 1);
  const Plan plan = PlanOf(graph, PlainMachine(1), 10);
  CHECK(plan.verdict == Verdict::kPlanned);
  CHECK(plan.moved_bytes == 10);
  for (const Move& move : plan.moves) CHECK(move.kind != MoveKind::kSwapOut);
}

TEST_CASE(
    "what is written each step goes out after its last write, and is there in the next step") {
  Graph graph;
  const StorageIndex state = AddStorage(graph, "state", 10);
  const StorageIndex b = AddStorage(graph, "B", 10);
  graph.storages[state].persistent = true;
  AddOp(graph, {state}, {state}, 1);
  AddOp(graph, {state}, {}, 20);  // the copy out hides here, beside the read
  AddOp(graph, {}, {b}, 1);
  AddOp(graph, {b}, {}, 1);
  const Plan plan = PlanOf(graph, PlainMachine(1), 10);
  REQUIRE(plan.verdict == Verdict::kPlanned);
  const auto out = std::find_if(plan.moves.begin(), plan.moves.end(),
                                [](const Move& move) { return move.kind == MoveKind::kSwapOut; });
  REQUIRE(out != plan.moves.end());
  CHECK(out->after_op == 0);
  CHECK(out->stall_us == 0);
  CHECK(plan.stall_us == Approx(10));  // only the way back is in the open
}

TEST_CASE("work that does not depend on a transfer is put before what waits for it") {
  // As OneGap, and op 4 is independent and long: run before op 3 it hides the way back.
  Graph graph = OneGap(1, 1, 1, 1);
  AddOp(graph, {}, {}, 10);
  PlanOptions options;
  options.reorder = false;
  const absl::StatusOr<Plan> kept = MakePlan(graph, PlainMachine(1), 10, options);
  REQUIRE(kept.ok());
  CHECK(kept->stall_us == Approx(20));
  const Plan plan = PlanOf(graph, PlainMachine(1), 10);
  CHECK(plan.stall_us == Approx(10));
}

TEST_CASE("an op is run again where that is cheaper than the round trip") {
  Graph graph = OneGap(1, 1, 1, 1);
  graph.storages[0].recomputable = true;
  const Plan plan = PlanOf(graph, PlainMachine(1), 10);
  CHECK(plan.stall_us == Approx(1));
  CHECK(plan.recompute_us == Approx(1));
  CHECK(plan.moved_bytes == 0);
  graph.ops[0].microseconds = 100;  // dearer than 20 us of transfers
  CHECK(PlanOf(graph, PlainMachine(1), 10).recompute_us == 0);
}

TEST_CASE("experts are fetched after the router, and never hidden") {
  Graph graph;
  DataDependentGroup group;
  for (int i = 0; i < 8; ++i) {
    group.members.push_back(AddStorage(graph, "e" + std::to_string(i), 10));
    graph.storages.back().persistent = true;
  }
  group.k = 2;
  graph.groups.push_back(group);
  const StorageIndex x = AddStorage(graph, "x", 1);
  AddOp(graph, {}, {x}, 50);
  AddOp(graph, {x}, {}, 50);
  graph.ops[1].group = 0;
  const Plan plan = PlanOf(graph, PlainMachine(1), 30);
  REQUIRE(plan.verdict == Verdict::kPlanned);
  CHECK(plan.offloaded_groups == std::vector<std::uint32_t>{0});
  CHECK(plan.stall_us == Approx(20));
  CHECK(plan.ceilings.group_fetch_us == Approx(20));
  CHECK(plan.unplanned_peak_bytes == 81);
  CHECK(plan.floor_bytes == 21);
}

TEST_CASE("flash takes what DDR cannot, through DDR") {
  Graph graph;
  for (int i = 0; i < 12; ++i) {
    const StorageIndex w = AddStorage(graph, "w" + std::to_string(i), 10);
    graph.storages[w].persistent = true;
  }
  for (StorageIndex w = 0; w < 12; ++w) AddOp(graph, {w}, {}, 100);
  Machine machine = PlainMachine(10);
  machine.ddr_bytes = 60;
  Plan plan = PlanOf(graph, machine, 20);
  CHECK(plan.verdict == Verdict::kInfeasible);
  CHECK(plan.short_tier == TierKind::kDdr);
  CHECK(plan.smallest_budget_bytes > 60);
  machine.flash_bytes = 1000;
  machine.links.push_back({TierKind::kDdr, TierKind::kFlash, 1, 0, {{1, 1.0}}, 1, 2});
  machine.links.push_back({TierKind::kFlash, TierKind::kDdr, 1, 0, {{1, 1.0}}, 1, 2});
  plan = PlanOf(graph, machine, 20);
  CHECK(plan.verdict == Verdict::kPlanned);
  CHECK(std::any_of(plan.homes.begin(), plan.homes.end(),
                    [](const Home& home) { return home.tier == TierKind::kFlash; }));
}

TEST_CASE("ceilings: what the link can hide at most") {
  const Plan plan = PlanOf(OneGap(1, 1, 1, 1), PlainMachine(2), 10);
  CHECK(plan.ceilings.link_bytes_per_us == 2);
  CHECK(plan.ceilings.hide_80_percent_bytes_per_us == Approx(0.8 * 10 / 4));
  CHECK(plan.ceilings.hideable_fraction == Approx(0.8));
}

TEST_CASE("the baselines plan the same gap, each its own way") {
  const Graph graph = OneGap(1, 1, 1, 1);
  for (const Planner& planner : Planners()) {
    INFO(planner.name);
    const absl::StatusOr<Plan> plan = planner.make(graph, PlainMachine(1), 10);
    REQUIRE(plan.ok());
    CHECK(plan->planner == planner.name);
    if (planner.name == "none") {
      CHECK(plan->verdict == Verdict::kInfeasible);
      continue;
    }
    REQUIRE(plan->verdict == Verdict::kPlanned);
    CHECK(Validate(graph, PlainMachine(1), *plan).empty());
    CHECK(plan->stall_us == Approx(20));
  }
  CHECK(FindPlanner("lru") != nullptr);
  CHECK(FindPlanner("best") == nullptr);
}

TEST_CASE("intervals that do not overlap never share time, whatever the durations") {
  const Graph graph = OneGap(1, 1, 1, 1);
  const Plan plan = PlanOf(graph, PlainMachine(1), 10);
  std::vector<HbmInterval> intervals = HbmIntervals(graph, plan);
  REQUIRE(intervals.size() == 3);  // A, B, A again
  std::sort(intervals.begin(), intervals.end(),
            [](const HbmInterval& a, const HbmInterval& b) { return a.begin < b.begin; });
  CHECK(intervals[0].end <= intervals[1].begin);
  CHECK(intervals[1].end <= intervals[2].begin);
}

TEST_CASE("what fits is said to need no more than its peak, however large the budget") {
  const Plan plan = PlanOf(OneGap(1, 1, 1, 1), PlainMachine(1), 1 << 20);
  CHECK(plan.verdict == Verdict::kFits);
  CHECK(plan.peak_bytes == plan.unplanned_peak_bytes);
}

TEST_CASE("figures and verdicts that are not true are refused") {
  const Graph graph = OneGap(1, 1, 1, 1);
  const Machine machine = PlainMachine(1);
  const auto faults = [&](const Plan& plan) {
    const std::vector<PlanFault> found = Validate(graph, machine, plan);
    for (const PlanFault& fault : found) CHECK(fault.rule == Rule::kFigures);
    return found.size();
  };
  const Plan good = PlanOf(graph, machine, 10);
  REQUIRE(good.verdict == Verdict::kPlanned);
  Plan bad = good;
  bad.peak_bytes = Bytes{1} << 50;
  CHECK(faults(bad) == 1);
  bad = good;
  bad.stall_us = 0;
  CHECK(faults(bad) == 1);
  bad = good;
  bad.short_bytes = 1;
  CHECK(faults(bad) == 1);

  const Plan short_of = PlanOf(graph, machine, 7);
  REQUIRE(short_of.verdict == Verdict::kInfeasible);
  bad = short_of;
  bad.budget_bytes = bad.unplanned_peak_bytes;  // where all of it fits
  bad.short_bytes = 1;
  bad.smallest_budget_bytes = bad.budget_bytes + 1;
  CHECK(faults(bad) == 1);
}

}  // namespace
}  // namespace hmm::plan
