// SPDX-License-Identifier: Apache-2.0
//
// From decisions (which gaps, and where their moves stand in the order) to a plan with every wait
// in it and its predicted times. Pure; O(n log n). All planners, ours and the baselines, end here.
//
// Memory waits. Tasks take HBM when they start. In the order of the sequence let A(j) be all bytes
// taken up to task j. Releases (an op's end, a SwapOut's end) are demanded only when A(j) less what
// has been demanded exceeds the budget, the one predicted to end first at first; from then on every
// task that takes bytes, on any channel, waits for it. So at any moment, with j the latest such
// task that has started: all bytes there <= A(j) - demanded(j) <= budget, whatever the durations.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/lifetimes.h"
#include "plan/machine.h"
#include "plan/plan.h"

namespace hmm::plan {

// One chosen gap. Boundary p is the point in the sequence just before position p; p = n is the end.
struct GapPlan {
  std::uint32_t gap = 0;
  bool copies_out = false;           // false: the copy below is valid, dropping is enough
  std::uint32_t out_before = kNone;  // boundary at which the SwapOut stands: after its last write
  std::uint32_t out_rank = 0;        // order among the SwapOuts of one boundary
  std::uint32_t leave_before = 0;   // boundary from which the bytes may go; >= from + 1, out_before
  std::uint32_t in_before = kNone;  // boundary at which the SwapIn stands; kWrap: <= to is in the
                                    // next step's head, else in this one's tail
  bool on_demand = false;           // the SwapIn also waits for the op before it (baselines)
};

struct Problem {
  const Graph* graph = nullptr;
  const Machine* machine = nullptr;
  Bytes budget = 0;
  Order order;
  Lifetimes lifetimes;
  std::vector<Gap> gaps;
  std::vector<std::uint32_t> gap_begin;  // gaps of life l: [gap_begin[l], gap_begin[l + 1])
  std::vector<double> us;                // of each position
  std::vector<double> start_us;          // n + 1, never falling: when each position starts, and the
                                         // end, were nothing ever moved
  double compute_us = 0;                 // the given ops alone; a recomputation is stall
};
Problem MakeProblem(const Graph& graph, const Machine& machine, Bytes budget, Order order);

// Which chosen gaps need a SwapOut: those at which the copy below is not valid. REQUIRES: `chosen`
// is sorted by gap.
void MarkCopies(const Problem& problem, std::vector<GapPlan>& chosen);

// Where the lower copies lie: DDR, and flash for those with the longest gaps when DDR is too small.
struct HomeTiers {
  bool ok = true;
  TierKind short_tier = TierKind::kDdr;
  Bytes short_bytes = 0;
  std::vector<StorageIndex> in_flash;  // sorted
};
HomeTiers AssignHomes(const Problem& problem, const std::vector<GapPlan>& chosen);

struct Assembled {
  bool ok = false;  // false: HBM is over the budget at `failed_position`
  std::uint32_t failed_position = 0;
  Plan plan;                     // without verdict and totals of the graph
  std::vector<double> op_start;  // by position
  std::vector<double> op_end;
};
// REQUIRES: `chosen` is sorted by gap and marked.
Assembled Assemble(const Problem& problem, const std::vector<GapPlan>& chosen,
                   const HomeTiers& homes);

}  // namespace hmm::plan
