// SPDX-License-Identifier: Apache-2.0
//
// Proves a plan safe, or says which rule it breaks and where. Shares no code with what makes plans
// and looks at no time: only the sequence, the waits and the channels' order count, so what holds
// here holds for any durations. Pure; O((n + waits) x channels + accesses).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/graph.h"
#include "plan/machine.h"
#include "plan/plan.h"

namespace hmm::plan {

enum class Rule : std::uint8_t {
  kShape,       // an index, size or kind is wrong; an op or move is missing or there twice
  kOrder,       // an op does not wait for one that it depends on
  kAbsent,      // a use of bytes that are not in HBM
  kEarlyUse,    // a use that does not wait for the move that brings the bytes
  kEarlyCopy,   // a copy that does not wait for the write, or the copy, it reads
  kLateWrite,   // a write after the copy out has begun, which the copy misses
  kLost,        // bytes given up without a valid copy or a recomputation
  kTwice,       // bytes brought in that are there already
  kPinned,      // a pinned storage is moved
  kPath,        // a move along no link, or to a tier where the storage has no home
  kRemake,      // a recomputation that would not give the same bytes
  kFetch,       // a data-dependent fetch that is missing or does not follow what decides it
  kCycle,       // the step does not end as it began, or an output is gone
  kOverBudget,  // HBM can exceed the budget
  kOverTier,    // DDR or flash can exceed its capacity
  kFigures,     // a total of the plan contradicts its moves
  kAddress,     // two stays whose bytes may share an address at one time, or a place that is amiss
};
std::string_view RuleName(Rule rule);

struct PlanFault {
  Rule rule = Rule::kShape;
  TaskIndex task = kNone;        // where; kNone: the plan as a whole
  StorageIndex storage = kNone;  // of what, if of one
  std::string text;
};
// Empty: the plan is proved. At most 32 faults. An infeasible verdict is checked against the floor.
std::vector<PlanFault> Validate(const Graph& graph, const Machine& machine, const Plan& plan);

}  // namespace hmm::plan
