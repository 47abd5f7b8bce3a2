// SPDX-License-Identifier: Apache-2.0
#include "plan/sweep.h"

#include "graphs.h"
#include "plan/validate.h"
#include "support/catch.h"
#include "support/gen_graph.h"

namespace hmm::plan {
namespace {

using hmm::testing::OneGap;
using hmm::testing::PlainMachine;

TEST_CASE("budgets go from the floor to the unplanned peak in equal steps") {
  CHECK(SweepBudgets(OneGap(1, 1, 1, 1), 3) == std::vector<Bytes>{10, 15, 20});
  CHECK(SweepBudgets(OneGap(1, 1, 1, 1), 4) == std::vector<Bytes>{10, 13, 16, 20});
}

TEST_CASE("stall against budget") {
  const Graph graph = OneGap(1, 1, 1, 1);
  const absl::StatusOr<std::vector<SweepPoint>> sweep =
      Sweep(graph, PlainMachine(1), {20, 5, 10, 19});
  REQUIRE(sweep.ok());
  REQUIRE(sweep->size() == 4);
  CHECK((*sweep)[0].budget == 5);
  CHECK((*sweep)[0].verdict == Verdict::kInfeasible);
  CHECK((*sweep)[1].stall_us == Approx(20));
  CHECK((*sweep)[1].stall_share == Approx(5));
  CHECK((*sweep)[1].high_water_bytes == 10);
  CHECK((*sweep)[2].stall_us == Approx(20));
  CHECK((*sweep)[3].verdict == Verdict::kFits);
  CHECK((*sweep)[3].moved_bytes == 0);
  Graph broken = graph;
  broken.ops[0].reads = {7};
  CHECK(Sweep(broken, PlainMachine(1), {1}).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("the smallest budget that keeps the stall: all of the peak, or the floor") {
  const Machine machine = PlainMachine(1);
  const absl::StatusOr<SweepPoint> none = SmallestBudget(OneGap(1, 1, 1, 1), machine, 0.01);
  REQUIRE(none.ok());
  CHECK(none->budget == 20);
  const absl::StatusOr<SweepPoint> much = SmallestBudget(OneGap(1, 1, 1, 1), machine, 5);
  REQUIRE(much.ok());
  CHECK(much->budget == 10);
}

TEST_CASE("random graphs: stall never rises with the budget, and the smallest budget keeps it") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    hmm::testing::GraphGenerator gen(seed);
    const hmm::testing::GenCase c = gen.Next();
    PlanOptions options;
    options.steps = 2000;
    options.layout = false;
    INFO("seed " << seed);
    const absl::StatusOr<std::vector<SweepPoint>> sweep =
        Sweep(c.graph, c.machine, SweepBudgets(c.graph, 6), options);
    REQUIRE(sweep.ok());
    for (std::size_t i = 0; i < sweep->size(); ++i) {
      const SweepPoint& point = (*sweep)[i];
      if (point.verdict == Verdict::kInfeasible) continue;
      CHECK(point.peak_bytes <= point.budget);
      CHECK(point.planned_for <= point.budget);
      if (i > 0 && (*sweep)[i - 1].verdict != Verdict::kInfeasible) {
        CHECK(point.stall_us <= (*sweep)[i - 1].stall_us);
      }
    }
    const absl::StatusOr<SweepPoint> least = SmallestBudget(c.graph, c.machine, 0.05, 8, options);
    REQUIRE(least.ok());
    CHECK(least->stall_share <= 0.05);
    CHECK(least->peak_bytes <= least->budget);
  }
}

}  // namespace
}  // namespace hmm::plan
