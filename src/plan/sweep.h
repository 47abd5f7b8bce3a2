// SPDX-License-Identifier: Apache-2.0
//
// How a step's stall depends on the budget, and the smallest budget that keeps it low. Pure; one
// plan a point.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/graph.h"
#include "plan/machine.h"
#include "plan/plan.h"
#include "plan/planner.h"

namespace hmm::plan {

struct SweepPoint {
  Bytes budget = 0;
  Bytes planned_for = 0;  // the budget of the plan below: a plan for less also fits more
  Verdict verdict = Verdict::kFits;
  Bytes peak_bytes = 0;
  double step_us = 0;
  double stall_us = 0;
  double stall_share = 0;  // of the compute time; 0 where that is 0
  Bytes moved_bytes = 0;
  Bytes high_water_bytes = 0;  // 0 without PlanOptions::layout
};

// From the floor to the unplanned peak, both included, in equal steps. REQUIRES: points >= 2.
std::vector<Bytes> SweepBudgets(const Graph& graph, std::uint32_t points);

// A point a budget, ascending. Stall never rises with the budget. INVALID_ARGUMENT as MakePlan.
absl::StatusOr<std::vector<SweepPoint>> Sweep(const Graph& graph, const Machine& machine,
                                              std::vector<Bytes> budgets,
                                              const PlanOptions& options = {});

// The smallest budget found whose plan stalls for at most `stall_share` of the compute time: by
// bisection between floor and unplanned peak with `tries` plans, so it may be above the true one by
// (peak - floor) / 2^tries, and by what the planner misses. With several streams even the unplanned
// peak may stall, since it is that of the ops one by one; then it is sought above.
absl::StatusOr<SweepPoint> SmallestBudget(const Graph& graph, const Machine& machine,
                                          double stall_share, std::uint32_t tries = 12,
                                          const PlanOptions& options = {});

}  // namespace hmm::plan
