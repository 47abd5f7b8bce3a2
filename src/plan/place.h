// SPDX-License-Identifier: Apache-2.0
//
// The layout of a plan: an address for every stay in HBM that holds for any durations, since it is
// made on the line of the sequence (plan/stays.h), not of time. A persistent storage that is there
// at the end of a step is where the next step expects it. Pure.
#pragma once

#include <cstdint>

#include "plan/graph.h"
#include "plan/plan.h"

namespace hmm::plan {

struct PlaceOptions {
  Bytes alignment = 1;  // of every offset; a power of two up to 2^40
  // LayoutOptions::steps_max: about as many microseconds. Past it the best found so far is taken.
  std::uint64_t steps = 100'000;
};

// Fills in places, alignment, high water and lower bound. Nothing for a plan that is infeasible, or
// whose stays add up to 2^60 bytes or more. REQUIRES: `plan` is a plan of `graph`.
void PlaceInHbm(const Graph& graph, const PlaceOptions& options, Plan& plan);

}  // namespace hmm::plan
