// SPDX-License-Identifier: Apache-2.0
//
// From a graph to a plan. Objective, in order: fit; least exposed time; least bytes moved. Pure and
// deterministic: no clock, no threads, and effort is bounded by counted steps, not by time.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "plan/graph.h"
#include "plan/machine.h"
#include "plan/place.h"
#include "plan/plan.h"

namespace hmm::plan {

struct PlanOptions {
  // Tasks placed in all tries together. 0: by the size of the graph, about a second's worth.
  std::uint64_t steps = 0;
  bool reorder = true;    // move ops where dependencies allow and it hides a transfer
  bool recompute = true;  // run an op again where that is cheaper than a round trip
  bool baselines = true;  // also consider what the baselines would do, so that none is better
  bool layout = true;     // give every stay in HBM an address
  PlaceOptions place;
  // Where fragmentation or alignment puts the layout's high water over the budget: plan for as much
  // less, up to so often, and take the first plan whose addresses fit too. If none does, the plan
  // stays the first one and its high_water_bytes says so.
  std::uint32_t fit_tries = 0;
};

// INVALID_ARGUMENT as CheckGraph; an infeasible graph is a verdict, not an error.
absl::StatusOr<Plan> MakePlan(const Graph& graph, const Machine& machine, Bytes budget,
                              const PlanOptions& options = {});

// The parts of a plan that the graph alone decides: unplanned peak, floor, and the op of each.
void FillGraphTotals(const Graph& graph, Plan& plan);
void CopyTotals(const Plan& from, Plan& to);
// Step and stall times as the links' contention makes them.
void ApplyContention(const Graph& graph, const Machine& machine, Plan& plan);
// What no plan can exceed on this machine, given what this one moves.
void FillCeilings(const Graph& graph, const Machine& machine, Plan& plan);

}  // namespace hmm::plan
