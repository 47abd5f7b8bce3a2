// SPDX-License-Identifier: Apache-2.0
//
// Why a plan moves a storage, or leaves it where it is: its gaps with the three factors of design
// section 7, the slots its moves have on the links, and a sentence for people. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/assemble.h"
#include "plan/cost.h"
#include "plan/graph.h"
#include "plan/lifetimes.h"
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

// Explains storage after storage of one plan: made once in O(n log n), then each costs what it has.
class Explainer {
 public:
  // REQUIRES: `plan` is a plan of `graph` (Validate finds nothing). Borrows all three.
  Explainer(const Graph& graph, const Machine& machine, const Plan& plan);

  // REQUIRES: `storage` is in the graph.
  StorageReport Explain(StorageIndex storage) const;

 private:
  struct Slot {
    StorageIndex storage = kNone;
    std::uint32_t channel = kNone;
    std::uint32_t boundary = 0;  // position of the next op
    MoveSlot slot;
  };
  struct StorageGap {
    StorageIndex storage = kNone;
    std::uint32_t gap = 0;  // into Problem::gaps
  };

  void CountUses();
  void ListMoves();
  void ListGaps();
  GapReport ReportOf(std::uint32_t gap) const;
  // `slots` are the storage's; of the SwapOuts, those before `outs_taken` belong to earlier gaps.
  void Attribute(const Gap& gap, const std::vector<Slot>& slots, GapReport& report,
                 std::size_t& outs_taken) const;
  std::string Between(const GapReport& gap) const;
  std::string Why(const StorageReport& report) const;
  std::string WhyMoved(const StorageReport& report) const;
  std::string WhyNot(const StorageReport& report) const;

  const Graph& graph_;
  const Machine& machine_;
  const Plan& plan_;
  const Problem problem_;
  const std::vector<GapFactors> factors_;  // by gap
  std::vector<double> uses_;               // by storage: ops that touch it
  std::vector<std::uint32_t> offloaded_;   // by storage: the group with which it lies in DDR
  std::vector<bool> absent_at_start_;      // by storage
  std::vector<Slot> slots_;                // by storage, then in the order of the sequence
  std::vector<StorageGap> gaps_;           // by storage, then in the order of the gaps
};

// One storage alone. REQUIRES: as Explainer.
StorageReport Explain(const Graph& graph, const Machine& machine, const Plan& plan,
                      StorageIndex storage);

// The order of ops and recomputations in which a plan runs them.
Order OrderOf(const Graph& graph, const Plan& plan);

}  // namespace hmm::plan
