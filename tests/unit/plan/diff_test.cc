// SPDX-License-Identifier: Apache-2.0
#include "plan/diff.h"

#include "graphs.h"
#include "plan/planner.h"
#include "support/catch.h"
#include "support/gen_graph.h"

namespace hmm::plan {
namespace {

using hmm::testing::OneGap;
using hmm::testing::PlainMachine;

Plan PlanOf(Bytes budget) {
  absl::StatusOr<Plan> plan = MakePlan(OneGap(1, 1, 1, 1), PlainMachine(1), budget);
  REQUIRE(plan.ok());
  return *std::move(plan);
}

TEST_CASE("a plan does not differ from itself") {
  const Plan plan = PlanOf(10);
  const PlanDiff diff = DiffPlans(plan, plan);
  CHECK(diff.same());
  CHECK(diff.stall_us == 0);
  CHECK(diff.peak_bytes == 0);
}

TEST_CASE("moves that only one has, and what that changes") {
  const Plan tight = PlanOf(10), loose = PlanOf(20);
  const PlanDiff diff = DiffPlans(tight, loose);
  CHECK(diff.only_a == std::vector<std::uint32_t>{0, 1});
  CHECK(diff.only_b.empty());
  CHECK(diff.placed_otherwise.empty());
  CHECK(diff.peak_bytes == 10);
  CHECK(diff.moved_bytes == -20);
  CHECK(diff.stall_us == Approx(-20));
  const PlanDiff back = DiffPlans(loose, tight);
  CHECK(back.only_b == diff.only_a);
  CHECK(back.moved_bytes == 20);
}

TEST_CASE("the same move between other ops") {
  const Plan a = PlanOf(10);
  Plan b = a;
  b.moves[1].before_op = 2;
  b.moves[0].start_us += 5;  // a prediction alone is no difference
  const PlanDiff diff = DiffPlans(a, b);
  REQUIRE(diff.placed_otherwise.size() == 1);
  CHECK(diff.placed_otherwise[0].a == 1);
  CHECK(diff.placed_otherwise[0].b == 1);
  CHECK(diff.only_a.empty());
  CHECK(diff.only_b.empty());
}

TEST_CASE("random plans of one graph: every move is counted once on each side") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    hmm::testing::GraphGenerator gen(seed);
    const hmm::testing::GenCase c = gen.Next();
    PlanOptions options;
    options.steps = 2000;
    options.layout = false;
    const absl::StatusOr<Plan> a = MakePlan(c.graph, c.machine, c.budget, options);
    const absl::StatusOr<Plan> b = MakePlan(c.graph, c.machine, c.budget + c.budget / 8, options);
    REQUIRE(a.ok());
    REQUIRE(b.ok());
    INFO("seed " << seed);
    CHECK(DiffPlans(*a, *a).same());
    const PlanDiff diff = DiffPlans(*a, *b);
    const std::size_t left = a->moves.size() - diff.only_a.size();
    CHECK(left == b->moves.size() - diff.only_b.size());
    CHECK(left >= diff.placed_otherwise.size());
  }
}

}  // namespace
}  // namespace hmm::plan
