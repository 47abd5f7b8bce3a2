// SPDX-License-Identifier: Apache-2.0
#include "plan/place.h"

#include "graphs.h"
#include "plan/layout.h"
#include "plan/layout_heaps.h"
#include "plan/layout_validate.h"
#include "plan/planner.h"
#include "plan/validate.h"
#include "support/catch.h"
#include "support/gen_graph.h"

namespace hmm::plan {
namespace {

using hmm::testing::AddOp;
using hmm::testing::AddStorage;
using hmm::testing::GraphGenerator;
using hmm::testing::OneGap;
using hmm::testing::PlainMachine;

TEST_CASE("two stays of ten bytes take turns in ten bytes") {
  const absl::StatusOr<Plan> plan = MakePlan(OneGap(1, 1, 1, 1), PlainMachine(1), 10);
  REQUIRE(plan.ok());
  REQUIRE(plan->places.size() == 3);  // A, B, A again
  for (const HbmPlace& place : plan->places) CHECK(place.offset == 0);
  CHECK(plan->high_water_bytes == 10);
  CHECK(plan->lower_bound_bytes == 10);
}

TEST_CASE("what needs no plan has a layout too, and what has no plan has none") {
  const absl::StatusOr<Plan> fits = MakePlan(OneGap(1, 1, 1, 1), PlainMachine(1), 20);
  REQUIRE(fits.ok());
  CHECK(fits->places.size() == 2);
  CHECK(fits->high_water_bytes == 20);
  const absl::StatusOr<Plan> none = MakePlan(OneGap(1, 1, 1, 1), PlainMachine(1), 9);
  REQUIRE(none.ok());
  CHECK(none->places.empty());
  CHECK(none->high_water_bytes == 0);
}

// CheckGraph lets graphs of up to 2^62 bytes through.
TEST_CASE("stays of more bytes than a layout can add up are planned without one") {
  Graph graph = OneGap(1, 1, 1, 1);
  for (Storage& storage : graph.storages) storage.bytes = Bytes{1} << 60;
  const Machine machine = PlainMachine(1);
  const absl::StatusOr<Plan> plan = MakePlan(graph, machine, Bytes{1} << 61);
  REQUIRE(plan.ok());
  CHECK(plan->verdict == Verdict::kFits);
  CHECK(plan->places.empty());
  CHECK(plan->high_water_bytes == 0);
  CHECK(Validate(graph, machine, *plan).empty());
}

TEST_CASE("offsets are aligned, and the bound counts what that costs") {
  PlanOptions options;
  options.place.alignment = 16;
  const absl::StatusOr<Plan> plan = MakePlan(OneGap(1, 1, 1, 1), PlainMachine(1), 20, options);
  REQUIRE(plan.ok());
  CHECK(plan->high_water_bytes == 26);
  CHECK(plan->lower_bound_bytes == 26);
  for (const HbmPlace& place : plan->places) CHECK(place.offset % 16 == 0);
}

TEST_CASE("a weight that comes back within the step ends it where it began") {
  // W is needed at both ends of the step; A and B take its room in between.
  Graph graph;
  const StorageIndex w = AddStorage(graph, "W", 10);
  graph.storages[w].persistent = true;
  const StorageIndex a = AddStorage(graph, "A", 6);
  const StorageIndex b = AddStorage(graph, "B", 10);
  AddOp(graph, {w}, {a}, 50);
  AddOp(graph, {a}, {}, 50);
  AddOp(graph, {}, {b}, 50);
  AddOp(graph, {b}, {}, 50);
  AddOp(graph, {w}, {}, 50);
  for (OpIndex op = 1; op < 5; ++op) graph.ops[op].after = {op - 1};
  const Machine machine = PlainMachine(1);
  const absl::StatusOr<Plan> plan = MakePlan(graph, machine, 16);
  REQUIRE(plan.ok());
  CHECK(Validate(graph, machine, *plan).empty());
  CHECK(plan->verdict == Verdict::kPlanned);
  CHECK(plan->high_water_bytes == 16);
}

// Heaps against the oracle that looks at every pair: gaps, alignments, and lives in every relation.
TEST_CASE("heaps: no two intervals share bytes, and nested lives pack without loss") {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    GraphGenerator gen(seed);
    LayoutProblem problem;
    problem.capacity = Bytes{1} << 40;
    problem.alignment = Bytes{1} << gen.Pick(4);
    const std::uint64_t count = 1 + gen.Pick(60);
    for (std::uint64_t i = 0; i < count; ++i) {
      Interval interval;
      const bool returns = gen.Chance(0.3);
      interval.begin = returns ? 0 : static_cast<std::int64_t>(gen.Pick(99));
      interval.end = returns ? 100 : interval.begin + 1 + static_cast<std::int64_t>(gen.Pick(30));
      interval.bytes = 1 + gen.Pick(50);
      if (returns && gen.Chance(0.8)) {
        const auto from = static_cast<std::int64_t>(1 + gen.Pick(90));
        interval.gaps = {{from, from + 1 + static_cast<std::int64_t>(gen.Pick(8))}};
      }
      problem.intervals.push_back(interval);
    }
    REQUIRE(CheckLayoutProblem(problem).ok());
    std::uint64_t steps = 0;
    LayoutResult result;
    result.offsets = internal::PlaceInHeaps(problem, 0, steps);
    result.high_water = internal::HighWater(problem, result.offsets);
    const LayoutFault fault = ValidateLayout(problem, result);
    INFO("seed " << seed << ": " << DescribeFault(problem, result, fault));
    REQUIRE(fault.ok());
  }
  LayoutProblem nested;
  nested.capacity = 1000;
  for (std::int64_t i = 0; i < 40; ++i) {
    nested.intervals.push_back(
        {.begin = i, .end = 100 - i, .bytes = static_cast<Bytes>(1 + i % 7)});
  }
  std::uint64_t steps = 0;
  const std::vector<Bytes> offsets = internal::PlaceInHeaps(nested, 0, steps);
  Bytes all = 0;
  for (const Interval& interval : nested.intervals) all += interval.bytes;
  CHECK(internal::HighWater(nested, offsets) == all);
}

TEST_CASE("a plan whose addresses do not fit gives way to one for less that does") {
  int over = 0, mended = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    GraphGenerator gen(seed);
    const hmm::testing::GenCase c = gen.Next();
    PlanOptions options;
    options.steps = 2000;
    options.place.steps = 200;
    const absl::StatusOr<Plan> first = MakePlan(c.graph, c.machine, c.budget, options);
    REQUIRE(first.ok());
    if (first->verdict == Verdict::kInfeasible || first->high_water_bytes <= c.budget) continue;
    ++over;
    options.fit_tries = 8;
    const absl::StatusOr<Plan> fit = MakePlan(c.graph, c.machine, c.budget, options);
    REQUIRE(fit.ok());
    INFO("seed " << seed);
    CHECK(Validate(c.graph, c.machine, *fit).empty());
    CHECK(fit->budget_bytes == c.budget);
    CHECK(fit->high_water_bytes <= first->high_water_bytes);
    mended += fit->high_water_bytes <= c.budget ? 1 : 0;
  }
  INFO(over << " over the budget, " << mended << " mended");
  CHECK(over > 10);
  CHECK(3 * mended > over);  // budgets near the floor leave nothing to give
}

TEST_CASE("a large graph is laid out without looking at pairs") {
  const Graph graph = hmm::testing::LayeredGraph(30'000);
  const Machine machine = *MachinePreset("ascend-supernode");
  Plan totals;
  FillGraphTotals(graph, totals);
  PlanOptions options;
  options.steps = 100'000;
  const absl::StatusOr<Plan> plan =
      MakePlan(graph, machine, totals.unplanned_peak_bytes / 10 * 9, options);
  REQUIRE(plan.ok());
  CHECK(plan->verdict == Verdict::kPlanned);
  CHECK(plan->places.size() > 30'000);
  CHECK(Validate(graph, machine, *plan).empty());
  CHECK(static_cast<double>(plan->high_water_bytes) <=
        1.05 * static_cast<double>(plan->lower_bound_bytes));
}

}  // namespace
}  // namespace hmm::plan
