// SPDX-License-Identifier: Apache-2.0
//
// The tensor's record and its state machine. Plain data; who changes it: TensorStore::Transition
// for the state, the store for copies, nobody else.
//
//          Seal, or first unpin seen             move begins          arrived on flash
//   GONE -> CREATING ------------> RESIDENT(tier) ----------> MOVING -----------------> ABSENT
//    ^         |                     |        ^                |  |  ^                    |  |
//    |         |                     |        +----------------+  |  +--------------------+  |
//    |         |                     |        arrived, cancelled, |      SwapIn begins       |
//    |         v                     v        taken back, failed  v                          v
//    +------ DOOMED <--------------- Free, owner died, dropped ------------------------------+
//      last pin gone                (an extent that a copier still uses outlives its tensor)
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "base/ids.h"
#include "base/units.h"
#include "hmm/key_bytes.h"
#include "tier/tier.h"

namespace hmm::core {

struct AllowedTransition {
  TensorState from;
  TensorState to;
  std::string_view cause;
};

// Every transition there is. Anything else is a bug and stops the daemon.
inline constexpr std::array<AllowedTransition, 11> kTransitions = {{
    {TensorState::kGone, TensorState::kCreating, "Allocate got room"},
    {TensorState::kCreating, TensorState::kResident,
     "Seal; or its write pin was given back; or its owner acquires it; or it is allocated ahead"},
    {TensorState::kCreating, TensorState::kDoomed, "Free; or its session died"},
    {TensorState::kResident, TensorState::kMoving, "a move or a drop begins"},
    {TensorState::kResident, TensorState::kDoomed, "Free; or its session died"},
    {TensorState::kMoving, TensorState::kResident,
     "arrived in a mappable tier; or a pin took the move back; or an Acquire cancelled a demotion; "
     "or the copy failed and the source is mappable"},
    {TensorState::kMoving, TensorState::kAbsent,
     "arrived on flash; or the copy failed and the source is flash"},
    {TensorState::kMoving, TensorState::kDoomed, "Free; its session died; or dropped to make room"},
    {TensorState::kAbsent, TensorState::kMoving, "SwapIn begins"},
    {TensorState::kAbsent, TensorState::kDoomed, "Free; its session died; dropped; or lost"},
    {TensorState::kDoomed, TensorState::kGone, "no pin holds it any more"},
}};

constexpr bool TransitionAllowed(TensorState from, TensorState to) {
  for (const AllowedTransition& t : kTransitions) {
    if (t.from == from && t.to == to) return true;
  }
  return false;
}

using TensorIndex = std::uint32_t;  // into the store's records, over all tenants
using CopyIndex = std::uint32_t;    // into the store's copies
inline constexpr std::uint32_t kNoIndex = std::numeric_limits<std::uint32_t>::max();

// One materialisation of a tensor in a tier.
struct Copy {
  enum class Role : std::uint8_t {
    kNone,
    kHome,    // the bytes: what the residency table names
    kClean,   // identical to the home copy above; the first thing to drop
    kTarget,  // being filled by a move
    kOrphan,  // a copier still uses it, the tensor no longer does; freed when the copier is done
  };
  tier::Extent extent;
  std::uint64_t checksum = 0;  // XXH3-64, where has_checksum
  TensorIndex tensor = kNoIndex;
  TenantId tenant = 0;
  CopyIndex next = kNoIndex;  // of the same tensor (orphans are in no chain)
  std::uint16_t copiers = 0;  // moves and jobs that read or fill it
  TierId tier = 0;
  Role role : 3 = Role::kNone;
  tier::ByteState account : 4 = tier::ByteState::kReserved;  // how the tier's ledger counts it
  bool has_checksum : 1 = false;
};
// There may be millions of either; a field more is felt (tests/bench/bench_memory.cc).
static_assert(sizeof(Copy) == 48);

struct Tensor {
  Bytes bytes = 0;
  TimePoint created{};
  TimePoint touched{};
  std::uint64_t move = 0;       // Relocator's id of the move under way, 0: none
  std::uint64_t last_move = 0;  // number of its latest record in the journal, 0: never moved
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  TenantId tenant = 0;
  SessionId owner = 0;  // session whose death frees it; 0: belongs to the tenant
  CopyIndex home = kNoIndex;
  CopyIndex copies = kNoIndex;      // chain of all copies but orphans
  std::uint32_t holds = 0;          // calls that are about to pin it: not a victim
  std::uint32_t recompute_us = 0;   // at most: an hour and 11 minutes are as good as more
  std::uint16_t accesses_seen = 0;  // sum of the pages' access counts at the last look (it wraps)
  KeyBytes key_bytes;
  TensorState state = TensorState::kGone;
  TensorKind kind = TensorKind::kOther;
  std::uint8_t priority : 4 = 0;
  std::uint8_t chances : 4 = 0;  // rounds through the LRU list its priority still buys
  bool sealed : 1 = false;
  bool droppable : 1 = false;
  bool key_linked : 1 = false;  // the tenant's key index has it
  bool hidden : 1 = false;      // filled by a job: no handle names it yet, its holder ends it
  bool lost : 1 = false;        // ABSENT for good: DATA_LOSS to whoever asks
  // Allocated ahead and not yet known to be taken: RESIDENT, so that TryPin works, but accounted as
  // reserved and in no recency list.
  bool ahead : 1 = false;

  Handle handle() const { return {slot, generation}; }
  std::string_view key() const { return key_bytes.view(); }
};
static_assert(sizeof(Tensor) == 96);

}  // namespace hmm::core
