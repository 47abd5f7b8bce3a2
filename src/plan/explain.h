// SPDX-License-Identifier: Apache-2.0
//
// Why a plan moves a storage, or leaves it where it is: its gaps with the three factors of design
// section 7, the slots its moves have on the links, and a sentence for people. Pure; O(n log n).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/cost.h"
#include "plan/graph.h"
#include "plan/machine.h"
#include "plan/plan.h"

namespace hmm::plan {

struct MoveSlot {
  std::uint32_t move = 0;     // into Plan::moves
  std::uint32_t place = 0;    // in the queue of its link (or stream) in one step, from 0
  std::uint32_t of = 0;       // tasks in that queue; 0: a drop, which is in none
  double idle_before_us = 0;  // that the queue stands still before it
};

struct GapReport {
  GapKind kind = GapKind::kInner;
  OpIndex after_op = kNone;   // the use before; kNone: there is none in this step
  OpIndex before_op = kNone;  // the use after; of the next step for a gap that wraps; kNone: none
  GapFactors factors;         // frequency, recompute cost, bandwidth
  double cost_us = 0;         // EvictionCost(factors)
  bool over_budget = false;   // unplanned, memory exceeds the budget somewhere in it
  bool moved = false;         // the plan gives the bytes up here
  double stall_us = 0;        // predicted, by its moves
};

struct StorageReport {
  StorageIndex storage = 0;
  Bytes bytes = 0;
  bool pinned = false;
  double uses_per_step = 0;  // ops that touch it
  double recompute_us = -1;  // < 0: cannot be
  double in_us = 0;          // to bring it back over the link, alone; 0: no link
  std::vector<GapReport> gaps;
  std::vector<MoveSlot> moves;  // in the order of the sequence
  std::string why;
};

// The storage of this name or alias. NOT_FOUND if the graph has none.
absl::StatusOr<StorageIndex> FindStorage(const Graph& graph, std::string_view name);

// REQUIRES: `plan` is a plan of `graph` (Validate finds nothing), `storage` is in it.
StorageReport Explain(const Graph& graph, const Machine& machine, const Plan& plan,
                      StorageIndex storage);

// The order of ops and recomputations in which a plan runs them.
Order OrderOf(const Graph& graph, const Plan& plan);

}  // namespace hmm::plan
