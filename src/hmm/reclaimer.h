// SPDX-License-Identifier: Apache-2.0
//
// Makes room: takes it from a tier where there is some, picks victims where there is none, and
// keeps tiers below their watermarks in the background.
//
// What goes first in a tier: tensors allocated ahead that nobody took, clean copies (neither costs
// anything), then tensors by recency, coldest first. A victim goes down the demotion path, past a
// tier that cannot give room (full of pins); where no tier further down takes it and it may be
// dropped, it is dropped. Demotion wants room below, so reclaim recurses downwards, never up: it
// ends at the bottom, where only droppable tensors go.
//
// One thread (the executor's).
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hmm/events.h"
#include "hmm/link_times.h"
#include "hmm/moves.h"
#include "hmm/relocator.h"
#include "hmm/session_table.h"
#include "hmm/store.h"
#include "hmm/types.h"
#include "policy/watermark.h"

namespace hmm::core {

enum class Purpose {
  kAllocate,    // new bytes: stays out of the reserve
  kBackground,  // demotion by watermark: stays out of the reserve below
  kExchange,    // a SwapIn somebody waits for, or making room for one: may use the reserve
};

class Reclaimer {
 public:
  Reclaimer(const ManagerOptions& options, Tiers& tiers, TensorStore& store, SessionTable& sessions,
            Relocator& relocator, const LinkTimes& link_times, Counters& counters,
            MoveJournal& journal, EventBus& events, const Clock& clock);

  // Next tier on the way down from `tier`: where the options send its tensors, else the first of a
  // slower kind; offline ones are passed by.
  std::optional<TierId> Below(TierId tier) const;
  // Hops from `from` (exclusive) to `to` (inclusive), one of each kind between them; empty when
  // they are the same.
  std::vector<TierId> Path(TierId from, TierId to) const;

  // Room in `tier` now, after dropping what costs nothing if need be. Errors as Tier::Allocate's
  // (TOO_LARGE also for new bytes that only the reserve could hold), and QUOTA past the tenant's
  // share, PINNED when nothing could be moved away, UNAVAILABLE/DRAINING.
  // It may move or drop any tensor without holds: look anew at what was found before.
  absl::StatusOr<Room> Take(TenantId tenant, TierId tier, Bytes bytes, Purpose purpose);

  // Room that is to spare now: above the reserve, below the watermark and the tenant's share. It
  // reclaims nothing, so that what is allocated ahead is never at the cost of what is used.
  std::optional<Room> TakeSpare(TenantId tenant, TierId tier, Bytes bytes);

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

  // Sends one tensor down, or drops it where nothing below takes it and it may be. False: it stays.
  bool Demote(TensorIndex index);

  // Whether it may be dropped and is sooner recomputed than brought back from `below`.
  bool CheaperToDrop(TensorIndex victim, TierId below) const;

  // Of one that is ahead: whether it went; else a client has it, and it is ordinary now.
  bool TakeBack(TensorIndex index);

  // A room that never moves (a leased region): no window is emptied around it.
  void AddFixed(const Room& room);
  void RemoveFixed(const Room& room);
  const std::vector<tier::Tier::Window>& fixed(TierId tier) const { return fixed_[tier]; }

  // Background demotion of every tier, a bounded batch. True: more to do at once (droppable tensors
  // of the bottom): call again soon.
  bool Background();

  // Whether Background would do anything.
  bool WantsBackground() const;

  void SetState(TierId tier, tier::TierState state, std::string note, std::optional<Reason> reason);
  tier::TierState state(TierId tier) const { return states_[tier].state; }
  const std::string& note(TierId tier) const { return states_[tier].note; }
  // Why it is not online; unset: it is.
  std::optional<Reason> reason(TierId tier) const { return states_[tier].reason; }
  TimePoint since(TierId tier) const { return states_[tier].since; }
  // Tensors of this tier that went nowhere to make room, since the start.
  std::uint64_t dropped(TierId tier) const { return states_[tier].dropped; }
  // Kept out of reach of new bytes: the configured reserve, or the largest extent if that is more.
  Bytes Reserve(TierId tier) const;

 private:
  enum class Outcome { kFreed, kLeaving, kBlocked, kPinned, kNoPlace };
  // What a tier further down refused in this pass: tensors of `bytes` or more, and tenants past
  // their share. They need not ask again, or a full node would cost the product of all lists.
  struct Refused {
    Bytes bytes = std::numeric_limits<Bytes>::max();
    std::vector<TenantId> tenants;
    bool Covers(const Tensor& tensor) const;
    void Note(const Tensor& tensor, const absl::Status& why);
  };
  using RefusedByTier = absl::InlinedVector<Refused, 4>;
  // To the next tier down that takes it; where none does, it is dropped if it may be.
  Outcome Evict(TensorIndex victim, copy::Priority priority, RefusedByTier& refused);
  Outcome Drop(TensorIndex victim);
  TensorIndex NextVictim(TierId tier, std::optional<TenantId> only, std::size_t& budget,
                         bool& saw_pinned);
  bool UsedSince(TensorIndex index);
  // Both: at most `count` of them, which they lower.
  // One that a client has pinned is taken: it stays, as an ordinary tensor.
  Bytes TakeBackAhead(TierId tier, Bytes bytes, std::optional<TenantId> only, std::size_t& count);
  Bytes DropClean(TierId tier, Bytes bytes, std::optional<TenantId> only, std::size_t& count);
  // There are enough free bytes, but not in one piece of this tenant's: empties some window.
  Progress MakeWindow(TierId tier, Bytes length);
  // The same where what leaves is lost: of all windows the one that is missed least. False: none
  // among what is coldest.
  bool DropColdWindow(TierId tier, Bytes length, Progress& progress);
  // What lies in a window: takes back what is ahead, drops its clean copies, lists its tensors.
  // Lowers `looks`.
  Bytes ClearWindow(TierId tier, const tier::Tier::Window& window, std::size_t& looks,
                    std::vector<TensorIndex>& victims);
  // What `purpose` may not touch of the tier's free bytes.
  Bytes Kept(TierId tier, Bytes length, Purpose purpose) const;
  Bytes FreeIn(TierId tier) const;
  // Why what MakeRoom moves now moves.
  MoveCause VictimCause(TierId tier, copy::Priority priority) const;
  void NoteDrain(TierId tier, bool draining, Bytes used, const policy::Watermarks& marks);
  absl::Status CheckTenant(TenantId tenant, TierId tier, Bytes length);
  Bytes TenantMax(TenantId tenant, TierId tier) const;  // what it may hold there
  policy::Watermarks MarksOf(TierId tier) const;        // those of a tier that shrinks: of its goal
  absl::Status Refusal(TenantId tenant, TierId tier, Bytes bytes, const Progress& progress) const;

  struct TierStatus {
    tier::TierState state = tier::TierState::kOnline;
    std::string note;
    std::optional<Reason> reason;
    TimePoint since{};
    bool draining = false;  // of the watermark's hysteresis
    Bytes largest = 0;
    std::uint64_t dropped = 0;
  };

  const ManagerOptions& options_;
  Tiers& tiers_;
  TensorStore& store_;
  SessionTable& sessions_;
  Relocator& relocator_;
  const LinkTimes& link_times_;
  Counters& counters_;
  MoveJournal& journal_;
  EventBus& events_;
  const Clock& clock_;
  std::vector<TierStatus> states_;
  std::vector<std::vector<tier::Tier::Window>> fixed_;  // by tier
  unsigned depth_ = 0;
};

}  // namespace hmm::core
