// SPDX-License-Identifier: Apache-2.0
#include "plan/place.h"

#include <vector>

#include "plan/layout.h"
#include "plan/stays.h"

namespace hmm::plan {

void PlaceInHbm(const Graph& graph, const PlaceOptions& options, Plan& plan) {
  plan.places.clear();
  plan.alignment_bytes = options.alignment;
  plan.high_water_bytes = plan.lower_bound_bytes = 0;
  if (plan.verdict == Verdict::kInfeasible) return;
  const std::vector<HbmInterval> intervals = HbmIntervals(graph, plan);
  // A step may end with a persistent storage in another stay than it began with: both are one
  // interval with a gap, so that they get one offset.
  std::vector<std::uint32_t> first(graph.storages.size(), kNone);  // by storage: its first stay
  std::vector<std::uint32_t> layout_of;                            // by interval
  LayoutProblem problem;
  problem.capacity = plan.budget_bytes;
  problem.alignment = options.alignment;
  for (const HbmInterval& stay : intervals) {
    const auto index = static_cast<std::uint32_t>(problem.intervals.size());
    const bool cyclic = stay.storage != kNone && graph.storages[stay.storage].persistent;
    if (cyclic && stay.at_start) first[stay.storage] = index;
    if (cyclic && stay.kept && !stay.at_start && first[stay.storage] != kNone) {
      Interval& interval = problem.intervals[first[stay.storage]];
      if (interval.end < stay.begin) interval.gaps.push_back({interval.end, stay.begin});
      interval.end = stay.end;
      layout_of.push_back(first[stay.storage]);
      continue;
    }
    layout_of.push_back(index);
    problem.intervals.push_back({.begin = stay.begin, .end = stay.end, .bytes = stay.bytes});
  }
  if (!CheckLayoutProblem(problem).ok()) return;  // as many bytes as no machine has
  const LayoutResult layout = MinimizeLayout(problem, {.steps_max = options.steps});
  plan.high_water_bytes = layout.high_water;
  plan.lower_bound_bytes = layout.lower_bound;
  plan.places.reserve(intervals.size());
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const HbmInterval& stay = intervals[i];
    plan.places.push_back({stay.storage, stay.bytes, layout.offsets[layout_of[i]],
                           stay.at_start ? kNone : stay.begin, stay.kept});
  }
}

}  // namespace hmm::plan
