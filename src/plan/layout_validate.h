// SPDX-License-Identifier: Apache-2.0
//
// The oracle of the layout: looks at every pair of intervals. Shares no code with the solver, so
// that a mistake there is not repeated here. Pure; may be called from any thread.
#pragma once

#include <cstddef>
#include <string>

#include "plan/layout.h"

namespace hmm::plan {

enum class LayoutRule {
  kGood,
  kCount,      // there must be one offset an interval
  kAlignment,  // `first` is not at a multiple of its or the problem's alignment
  kBounds,     // `first` ends above the capacity
  kOverlap,    // `first` and `second` live at the same time and share bytes
  kHighWater,  // the result names another high water than its offsets have
};

struct LayoutFault {
  LayoutRule rule = LayoutRule::kGood;
  std::size_t first = 0;  // indices of the intervals concerned
  std::size_t second = 0;

  bool ok() const { return rule == LayoutRule::kGood; }
};

// The first rule that `result` breaks, in the order of LayoutRule. O(n^2).
LayoutFault ValidateLayout(const LayoutProblem& problem, const LayoutResult& result);

// "intervals 3 and 7 overlap: ..." or "good".
std::string DescribeFault(const LayoutProblem& problem, const LayoutResult& result,
                          const LayoutFault& fault);

}  // namespace hmm::plan
