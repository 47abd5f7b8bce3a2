// SPDX-License-Identifier: Apache-2.0
//
// Where the moves of chosen gaps stand in the order. SwapIns: backward list scheduling, each as
// late as it can and still end before its use, given the transfers placed after it and the room
// each position has. SwapOuts: from the last write, earliest deadline first. Pure; O((G + n) log
// n).
#pragma once

#include <cstdint>
#include <vector>

#include "plan/assemble.h"

namespace hmm::plan {

struct ScheduleOptions {
  bool tail_prefetch = true;  // SwapIns due early in a step may stand at the end of the step before
};

// `start_us`: n + 1 never falling times of the positions, as Problem::start_us or as a timeline
// with its stalls gave them. `chosen`: gaps, ascending, that together fit. Marked, sorted by gap.
std::vector<GapPlan> Schedule(const Problem& problem, const std::vector<std::uint32_t>& chosen,
                              const std::vector<double>& start_us, const ScheduleOptions& options);

// Boundaries and order of the SwapOuts of marked gap plans.
void ScheduleOuts(const Problem& problem, const std::vector<double>& start_us,
                  std::vector<GapPlan>& plans);

}  // namespace hmm::plan
