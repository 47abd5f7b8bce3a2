// SPDX-License-Identifier: Apache-2.0
//
// What giving up a gap's bytes costs and brings: the three factors of design section 7 (access
// frequency, recompute cost, bandwidth) for one gap of one step. `plan explain` prints them. Pure.
#pragma once

#include <vector>

#include "plan/assemble.h"

namespace hmm::plan {

struct GapFactors {
  double uses_per_step = 0;  // frequency: accesses of the life
  double recompute_us = -1;  // to make the bytes anew; < 0: cannot be
  double out_us = 0;         // on the link; 0 where the copy below is valid anyway
  double in_us = 0;          // 0 where nothing is brought back
  double link_share = 0;     // bandwidth: (out + in) / step compute time
  double slack_us = 0;       // compute time between the uses round the gap
  double exposed_us = 0;  // of out + in, what slack and the time since the last write cannot hide
  double relief = 0;      // bytes x over-budget time the gap covers
};

// P(use soon) x min(time to bring back, time to recompute), of design section 7, with the next use
// known: what the move costs the step, plus the link time it takes from others at a small price.
double EvictionCost(const GapFactors& factors);

// Factors of every gap; `target` by position: above it counts as over the budget.
std::vector<GapFactors> ComputeFactors(const Problem& problem, const std::vector<Bytes>& target);

// Calls fn(first, last) for each range of positions, half open, in which the gap's bytes are
// absent.
template <typename Fn>
void ForAbsent(const Gap& gap, std::uint32_t positions, Fn fn) {
  switch (gap.kind) {
    case GapKind::kInner:
      fn(gap.from + 1, gap.to);
      break;
    case GapKind::kHead:
    case GapKind::kAll:
      fn(0U, gap.to);
      break;
    case GapKind::kTail:
      fn(gap.from + 1, positions);
      break;
    case GapKind::kWrap:
      fn(gap.from + 1, positions);
      fn(0U, gap.to);
      break;
  }
}

}  // namespace hmm::plan
