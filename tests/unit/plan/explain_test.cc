// SPDX-License-Identifier: Apache-2.0
#include "plan/explain.h"

#include "graphs.h"
#include "plan/planner.h"
#include "support/catch.h"
#include "support/gen_graph.h"

namespace hmm::plan {
namespace {

using Catch::Matchers::Contains;
using hmm::testing::AddOp;
using hmm::testing::AddStorage;
using hmm::testing::OneGap;
using hmm::testing::PlainMachine;

Plan PlanOf(const Graph& graph, const Machine& machine, Bytes budget) {
  absl::StatusOr<Plan> plan = MakePlan(graph, machine, budget);
  REQUIRE(plan.ok());
  return *std::move(plan);
}

TEST_CASE("a moved storage: its gap, factors, slots, and what is exposed") {
  const Graph graph = OneGap(1, 1, 1, 1);
  const Machine machine = PlainMachine(1);
  const Plan plan = PlanOf(graph, machine, 10);
  const StorageReport report = Explain(graph, machine, plan, 0);
  CHECK(report.bytes == 10);
  CHECK(report.uses_per_step == 2);
  CHECK(report.recompute_us < 0);
  CHECK(report.in_us == Approx(10));
  REQUIRE(report.gaps.size() == 1);
  const GapReport& gap = report.gaps[0];
  CHECK(gap.kind == GapKind::kInner);
  CHECK(gap.after_op == 0);
  CHECK(gap.before_op == 3);
  CHECK(gap.factors.out_us == Approx(10));
  CHECK(gap.factors.in_us == Approx(10));
  CHECK(gap.factors.slack_us == Approx(2));
  CHECK(gap.factors.exposed_us == Approx(18));
  CHECK(gap.over_budget);
  CHECK(gap.moved);
  CHECK(gap.stall_us == Approx(20));
  REQUIRE(report.moves.size() == 2);
  CHECK(plan.moves[report.moves[0].move].kind == MoveKind::kSwapOut);
  CHECK(plan.moves[report.moves[1].move].kind == MoveKind::kSwapIn);
  CHECK(report.moves[1].place == 0);
  CHECK(report.moves[1].of == 1);
  CHECK(report.moves[1].idle_before_us == Approx(13));
  CHECK(
      report.why ==
      "moved between op op0 and op op3: transfers of 20.0 us beside 2.0 us of compute, 20.0 us of "
      "it exposed");
}

TEST_CASE("why not: no gap, pinned, nothing over the budget, everything fits, no plan") {
  const Graph graph = OneGap(1, 1, 1, 1);
  const Machine machine = PlainMachine(1);
  const Plan plan = PlanOf(graph, machine, 10);
  CHECK_THAT(Explain(graph, machine, plan, 1).why, Contains("no op runs between its uses"));
  CHECK_THAT(Explain(graph, machine, PlanOf(graph, machine, 20), 0).why,
             Contains("the whole step fits"));
  CHECK_THAT(Explain(graph, machine, PlanOf(graph, machine, 9), 0).why, Contains("no plan"));

  Graph more = graph;
  const StorageIndex early = AddStorage(more, "early", 1);  // gone before memory is short
  more.ops[0].writes.push_back(early);
  AddOp(more, {}, {}, 1);
  more.storages[early].output = true;
  const StorageIndex fixed = AddStorage(more, "fixed", 5);
  more.storages[fixed].persistent = more.storages[fixed].pinned = true;
  const Plan with = PlanOf(more, machine, 16);
  CHECK_THAT(Explain(more, machine, with, fixed).why, Contains("it is pinned"));
}

TEST_CASE("why not: another is cheaper for the same moments") {
  Graph graph;
  const StorageIndex dear = AddStorage(graph, "dear", 40);
  const StorageIndex cheap = AddStorage(graph, "cheap", 10);
  const StorageIndex b = AddStorage(graph, "b", 10);
  AddOp(graph, {}, {dear, cheap}, 1);
  AddOp(graph, {}, {}, 50);
  AddOp(graph, {}, {b}, 1);
  AddOp(graph, {b}, {}, 1);
  AddOp(graph, {}, {}, 50);
  AddOp(graph, {dear, cheap}, {}, 1);
  for (OpIndex op = 1; op < 6; ++op) graph.ops[op].after = {op - 1};
  const Machine machine = PlainMachine(1);
  const Plan plan = PlanOf(graph, machine, 50);
  REQUIRE(plan.verdict == Verdict::kPlanned);
  CHECK(Explain(graph, machine, plan, cheap).gaps.at(0).moved);
  CHECK_THAT(Explain(graph, machine, plan, cheap).why, Contains("all hidden"));
  const StorageReport report = Explain(graph, machine, plan, dear);
  CHECK_FALSE(report.gaps.at(0).moved);
  CHECK_THAT(report.why, Contains("relieves the same moments"));
}

TEST_CASE("names and aliases are found, and what is not there is said") {
  Graph graph = OneGap(1, 1, 1, 1);
  graph.storages[1].aliases = {"B.view"};
  graph.unknown = {"ghost"};
  CHECK(*FindStorage(graph, "A") == 0);
  CHECK(*FindStorage(graph, "B.view") == 1);
  CHECK_THAT(std::string(FindStorage(graph, "C").status().message()), Contains("\"C\""));
  CHECK_THAT(std::string(FindStorage(graph, "ghost").status().message()), Contains("--dim"));
}

TEST_CASE("every move of a random plan belongs to a gap said to be moved, and stalls add up") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    hmm::testing::GraphGenerator gen(seed);
    const hmm::testing::GenCase c = gen.Next({.groups = false, .recompute = false});
    PlanOptions options;
    options.steps = 3000;
    options.place.steps = 100;
    const absl::StatusOr<Plan> plan = MakePlan(c.graph, c.machine, c.budget, options);
    REQUIRE(plan.ok());
    if (plan->verdict != Verdict::kPlanned) continue;
    INFO("seed " << seed);
    double stalls = 0, attributed = 0;
    std::size_t moves = 0;
    for (const Move& move : plan->moves) stalls += move.stall_us;
    for (StorageIndex s = 0; s < c.graph.storages.size(); ++s) {
      const StorageReport report = Explain(c.graph, c.machine, *plan, s);
      bool any = false;
      for (const GapReport& gap : report.gaps) {
        any = any || gap.moved;
        attributed += gap.stall_us;
      }
      moves += report.moves.size();
      CHECK((any || report.moves.empty()));
      CHECK(report.why.rfind(any ? "moved" : "not moved", 0) == 0);
      for (const MoveSlot& slot : report.moves) {
        CHECK((slot.place < slot.of || plan->moves[slot.move].kind == MoveKind::kDrop));
      }
    }
    CHECK(moves == plan->moves.size());
    CHECK(attributed == Approx(stalls).margin(1e-9));
  }
}

}  // namespace
}  // namespace hmm::plan
