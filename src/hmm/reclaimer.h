// SPDX-License-Identifier: Apache-2.0
//
// Makes room: takes it from a tier where there is some, picks victims where there is none, and
// keeps tiers below their watermarks in the background.
//
// What goes first in a tier: clean copies (they cost nothing), then tensors by recency, coldest
// first. A victim goes down the demotion path; where nothing below takes it and it may be dropped,
// it is dropped. Demotion wants room below, so reclaim recurses downwards, never up: it ends at the
// bottom, where only droppable tensors go.
//
// One thread (the executor's).
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "hmm/relocator.h"
#include "hmm/session_table.h"
#include "hmm/store.h"
#include "hmm/types.h"

namespace hmm::core {

enum class Purpose {
  kAllocate,    // new bytes: stays out of the reserve
  kBackground,  // demotion by watermark: stays out of the reserve below
  kExchange,    // a SwapIn somebody waits for, or making room for one: may use the reserve
};

class Reclaimer {
 public:
  Reclaimer(const ManagerOptions& options, Tiers& tiers, TensorStore& store, SessionTable& sessions,
            Relocator& relocator, Counters& counters);

  // Next tier on the way down from `tier`: the first of a slower kind that is not offline.
  std::optional<TierId> Below(TierId tier) const;
  // Hops from `from` (exclusive) to `to` (inclusive); empty when they are the same.
  std::vector<TierId> Path(TierId from, TierId to) const;

  // Room in `tier` now, after dropping what costs nothing if need be. Errors as Tier::Allocate's
  // (TOO_LARGE also for new bytes that only the reserve could hold), and QUOTA past the tenant's
  // share, PINNED when nothing could be moved away, UNAVAILABLE/DRAINING.
  // It may move or drop any tensor without holds: look anew at what was found before.
  absl::StatusOr<Room> Take(TenantId tenant, TierId tier, Bytes bytes, Purpose purpose);

  // Starts what is needed to have `bytes` more free in `tier`, counting what leaves it already.
  struct Progress {
    Bytes freed = 0;         // at once
    Bytes leaving = 0;       // by moves started now
    bool blocked = false;    // a victim found no room below, yet: moves there are under way
    bool exhausted = false;  // no further victim
    bool saw_pinned = false;
  };
  Progress MakeRoom(TierId tier, Bytes bytes, copy::Priority priority,
                    std::optional<TenantId> only = std::nullopt,
                    std::size_t victims_max = std::numeric_limits<std::size_t>::max());

  // Background demotion of every tier, a bounded batch. True: more to do at once (droppable tensors
  // of the bottom): call again soon.
  bool Background();

  void SetState(TierId tier, tier::TierState state, std::string note);
  tier::TierState state(TierId tier) const { return states_[tier].state; }
  const std::string& note(TierId tier) const { return states_[tier].note; }
  // Kept out of reach of new bytes: the configured reserve, or the largest extent if that is more.
  Bytes Reserve(TierId tier) const;

 private:
  enum class Outcome { kFreed, kLeaving, kBlocked, kPinned, kNoPlace };
  // What the tier below refused in this pass: tensors of `bytes` or more, and tenants past their
  // share. They need not ask again, or a full node would cost the product of all lists.
  struct Refused {
    Bytes bytes = std::numeric_limits<Bytes>::max();
    std::vector<TenantId> tenants;
    bool Covers(const Tensor& tensor) const;
    void Note(const Tensor& tensor, const absl::Status& why);
  };
  Outcome Evict(TensorIndex victim, copy::Priority priority, Refused& refused);
  Outcome Drop(TensorIndex victim);
  TensorIndex NextVictim(TierId tier, std::optional<TenantId> only, std::size_t& budget,
                         bool& saw_pinned);
  bool UsedSince(TensorIndex index);
  // At most `count` of them, which it lowers.
  Bytes DropClean(TierId tier, Bytes bytes, std::optional<TenantId> only, std::size_t& count);
  // There are enough free bytes, but not in one piece of this tenant's: empties some window.
  Progress MakeWindow(TierId tier, Bytes length);
  // What lies in a window: drops its clean copies, lists its tensors. Lowers `looks`.
  Bytes ClearWindow(TierId tier, const tier::Tier::Window& window, std::size_t& looks,
                    std::vector<TensorIndex>& victims);
  // What `purpose` may not touch of the tier's free bytes.
  Bytes Kept(TierId tier, Bytes length, Purpose purpose) const;
  Bytes FreeIn(TierId tier) const;
  absl::Status CheckTenant(TenantId tenant, TierId tier, Bytes length);
  absl::Status Refusal(TierId tier, Bytes bytes, const Progress& progress) const;

  struct TierStatus {
    tier::TierState state = tier::TierState::kOnline;
    std::string note;
    bool draining = false;  // of the watermark's hysteresis
    Bytes largest = 0;
  };

  const ManagerOptions& options_;
  Tiers& tiers_;
  TensorStore& store_;
  SessionTable& sessions_;
  Relocator& relocator_;
  Counters& counters_;
  std::vector<TierStatus> states_;
  unsigned depth_ = 0;
};

}  // namespace hmm::core
