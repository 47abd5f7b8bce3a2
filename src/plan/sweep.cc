// SPDX-License-Identifier: Apache-2.0
#include "plan/sweep.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "plan/lifetimes.h"

namespace hmm::plan {
namespace {

absl::StatusOr<SweepPoint> PointAt(const Graph& graph, const Machine& machine, Bytes budget,
                                   const PlanOptions& options) {
  HMM_ASSIGN_OR_RETURN(const Plan plan, MakePlan(graph, machine, budget, options));
  SweepPoint point;
  point.budget = point.planned_for = budget;
  point.verdict = plan.verdict;
  point.peak_bytes = plan.peak_bytes;
  point.step_us = plan.step_us;
  point.stall_us = plan.stall_us;
  point.stall_share = plan.compute_us > 0 ? plan.stall_us / plan.compute_us : 0;
  point.moved_bytes = plan.moved_bytes;
  point.high_water_bytes = plan.high_water_bytes;
  return point;
}

// What nothing can exceed, whatever runs side by side.
Bytes AllBytes(const Graph& graph) {
  Bytes bytes = 0;
  for (const Storage& storage : graph.storages) bytes += storage.bytes;
  for (const Op& op : graph.ops) bytes += op.workspace;
  return bytes;
}

}  // namespace

std::vector<Bytes> SweepBudgets(const Graph& graph, std::uint32_t points) {
  HMM_CHECK(points >= 2);
  Plan totals;
  FillGraphTotals(graph, totals);
  const Bytes floor = totals.floor_bytes, span = totals.unplanned_peak_bytes - floor;
  std::vector<Bytes> budgets;
  for (std::uint32_t i = 0; i < points; ++i) {
    // In two parts, since span * i may not fit.
    const Bytes whole = span / (points - 1) * i;
    budgets.push_back(floor + whole + span % (points - 1) * i / (points - 1));
  }
  return budgets;
}

absl::StatusOr<std::vector<SweepPoint>> Sweep(const Graph& graph, const Machine& machine,
                                              std::vector<Bytes> budgets,
                                              const PlanOptions& options) {
  std::sort(budgets.begin(), budgets.end());
  std::vector<SweepPoint> points;
  for (const Bytes budget : budgets) {
    HMM_ASSIGN_OR_RETURN(SweepPoint point, PointAt(graph, machine, budget, options));
    if (!points.empty() && points.back().verdict == Verdict::kPlanned &&
        (point.verdict == Verdict::kInfeasible || points.back().stall_us < point.stall_us)) {
      point = points.back();
      point.budget = budget;
    }
    points.push_back(point);
  }
  return points;
}

absl::StatusOr<SweepPoint> SmallestBudget(const Graph& graph, const Machine& machine,
                                          double stall_share, std::uint32_t tries,
                                          const PlanOptions& options) {
  HMM_RETURN_IF_ERROR(CheckGraph(graph));
  Plan totals;
  FillGraphTotals(graph, totals);
  Bytes low = totals.floor_bytes, high = totals.unplanned_peak_bytes;
  HMM_ASSIGN_OR_RETURN(SweepPoint best, PointAt(graph, machine, high, options));
  if (best.stall_share > stall_share) {
    low = high;
    high = AllBytes(graph);
    HMM_ASSIGN_OR_RETURN(best, PointAt(graph, machine, high, options));
  }
  for (std::uint32_t i = 0; i < tries && low < high; ++i) {
    const Bytes middle = low + (high - low) / 2;
    HMM_ASSIGN_OR_RETURN(const SweepPoint point, PointAt(graph, machine, middle, options));
    if (point.verdict != Verdict::kInfeasible && point.stall_share <= stall_share) {
      best = point;
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return best;
}

}  // namespace hmm::plan
