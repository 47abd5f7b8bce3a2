// SPDX-License-Identifier: Apache-2.0
//
// The layout of a hundred thousand intervals and more, where looking at pairs is too slow: a walk
// over time with two heaps that grow towards each other, long lives from below, short ones from
// above. Internal to the layout. Pure; O(n log n) a try, and a handful of tries.
//
//   offset   |  short lives, from the top    |
//            |-----------\      /------------|
//            |            \____/   __________|
//            |____________________/          |
//            |  long lives, from the bottom  |
//            |  back at the same offset      |  there at both ends of the time, with a gap
//            |  there throughout             |
#pragma once

#include <cstdint>
#include <vector>

#include "plan/layout.h"

namespace hmm::plan::internal {

// Offsets in the order of problem.intervals, with the lowest high water of the tries; stops at one
// that is at or below `enough`. Gaps are used only of intervals that live from the first to the
// last moment of all and have one. REQUIRES: CheckLayoutProblem(problem).ok().
std::vector<Bytes> PlaceInHeaps(const LayoutProblem& problem, Bytes enough, std::uint64_t& steps);

// The highest end of an interval at these offsets.
Bytes HighWater(const LayoutProblem& problem, const std::vector<Bytes>& offsets);

}  // namespace hmm::plan::internal
