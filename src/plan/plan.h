// SPDX-License-Identifier: Apache-2.0
//
// A plan: one step's ops and moves in one order, what each waits for, and what that costs. A value.
//
//   sequence   op 0   out A   op 1   in B   op 2 ...       a task's number is its place in here
//   channels   each compute stream, and each link direction, runs its tasks one after another in
//              the order of the sequence
//   waits      a task starts when the one before it on its channel and all it waits for have ended
//
// Every wait points backwards in the sequence, so nothing can wait in a circle. Start times are
// predictions only: whatever the durations, the waits alone keep HBM within the budget and every
// tensor where it is used (plan/validate.h proves it for a given plan). A step ends when its ops
// and moves have ended; in the next one the same begins again.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "plan/graph.h"

namespace hmm::plan {

using TaskIndex = std::uint32_t;  // place in Plan::sequence
inline constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

enum class Verdict : std::uint8_t {
  kFits,        // needs no plan: the whole step lies within the budget
  kPlanned,     // fits with the moves given
  kInfeasible,  // no plan can: see short_op, short_bytes, smallest_budget_bytes
};
std::string_view VerdictName(Verdict verdict);  // "fits", "planned", "infeasible"

enum class MoveKind : std::uint8_t {
  kSwapOut,    // a copy to the next tier down; HBM -> DDR frees the bytes when it and all uses end
  kSwapIn,     // a copy to the next tier up; DDR -> HBM takes the bytes when it starts
  kDrop,       // frees bytes whose copy below is valid, or which are made anew; costs nothing
  kRecompute,  // runs the producing op again instead of bringing the bytes back
};
std::string_view MoveKindName(MoveKind kind);

struct Move {
  MoveKind kind = MoveKind::kSwapOut;
  StorageIndex storage = kNone;  // kNone: a fetch of `group`
  std::uint32_t group = kNone;   // k members of a data-dependent group, known only at run time
  TierKind from = TierKind::kHbm;
  TierKind to = TierKind::kDdr;  // equals `from` for a drop and a recomputation
  Bytes bytes = 0;
  OpIndex producer = kNone;   // the op a recomputation runs again
  OpIndex after_op = kNone;   // the last op it waits for; kNone: the start of the step
  OpIndex before_op = kNone;  // the first op that waits for it; kNone: the end of the step
  double start_us = 0;        // predicted
  double end_us = 0;
  double stall_us = 0;  // predicted time that ops (or the end of the step) waited for it
};

struct Task {
  bool is_move = false;
  std::uint32_t index = 0;  // into Graph::ops or Plan::moves
};

// The lower copy of a storage that moves. Its room there is kept for the whole step.
struct Home {
  StorageIndex storage = kNone;
  TierKind tier = TierKind::kDdr;
  bool in_hbm_at_start = false;
  bool valid_at_start = false;  // the lower copy holds the bytes when the step starts
};

// A stay in HBM and its address. Places whose bytes overlap are never there together, whatever the
// durations.
struct HbmPlace {
  StorageIndex storage =
      kNone;  // kNone: workspace, or fetched members, of the op or move at `begin`
  Bytes bytes = 0;
  Bytes offset = 0;
  TaskIndex begin = kNone;  // the task that takes the bytes when it starts; kNone: there from the
                            // start of the step
  bool kept = false;  // still there at the end of the step; a persistent storage that is there
                      // at both ends is at the same offset there
};

// What no plan can exceed, told so that a person can judge the machine.
struct Ceilings {
  double link_bytes_per_us = 0;  // DDR -> HBM, large transfers
  double hide_80_percent_bytes_per_us =
      0;                         // link rate at which 80% of this plan's SwapIns could hide
  double hideable_fraction = 1;  // of this plan's SwapIn bytes, at most, on this link
  double link_to_hbm_ratio = 0;  // share of what is read once from HBM that the link can feed
  double group_fetch_us = 0;     // data-dependent fetches: never hidden
};

struct Plan {
  std::string planner;
  Verdict verdict = Verdict::kFits;
  Bytes budget_bytes = 0;
  Bytes unplanned_peak_bytes = 0;  // all resident from first to last use
  OpIndex unplanned_peak_op = 0;
  Bytes floor_bytes = 0;  // the largest op's own tensors: no plan goes below
  OpIndex floor_op = 0;
  // Infeasible only.
  Bytes short_bytes = 0;
  OpIndex short_op = 0;
  TierKind short_tier = TierKind::kHbm;
  Bytes smallest_budget_bytes = 0;  // of `short_tier`

  std::vector<Task> sequence;
  std::vector<TaskIndex> wait_begin;  // waits of task t: waits[wait_begin[t] .. wait_begin[t + 1])
  std::vector<TaskIndex> waits;
  std::vector<Move> moves;
  std::vector<Home> homes;
  std::vector<std::uint32_t> offloaded_groups;  // members in DDR, k of them fetched at each use

  Bytes peak_bytes = 0;   // HBM, for any durations
  double compute_us = 0;  // the ops alone
  double step_us = 0;
  double stall_us = 0;    // step_us - compute_us
  Bytes moved_bytes = 0;  // by SwapIn and SwapOut, each leg of a staged move counted
  double recompute_us = 0;
  Ceilings ceilings;

  // The layout (plan/place.h): empty, and 0, where none was made.
  std::vector<HbmPlace> places;
  Bytes alignment_bytes = 1;    // of every offset
  Bytes high_water_bytes = 0;   // the highest end of a place; may exceed the budget by what
                                // fragmentation and alignment cost
  Bytes lower_bound_bytes = 0;  // no offsets for these stays have a lower one
};

// Channels, numbered: four link directions, then the compute streams.
inline constexpr std::uint32_t kLinkChannels = 4;
// kNone for a drop, which is a mark and runs nowhere.
std::uint32_t ChannelOf(const Graph& graph, const Plan& plan, const Task& task);
std::uint32_t LinkChannel(TierKind from, TierKind to);  // kNone: not neighbours
std::uint32_t ChannelCount(const Graph& graph);

}  // namespace hmm::plan
