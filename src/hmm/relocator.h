// SPDX-License-Identifier: Apache-2.0
//
// Carries tensors between tiers: freezes them (MOVING, then a look at all pins), hands the copies
// to the mover hop by hop, and settles what comes back. It is told where to; it never picks
// victims.
//
//   Freeze -> [copy to path[0]] -> home switched -> [copy to path[1]] -> ... -> RESIDENT | ABSENT
//
// A tensor on its way stays MOVING between hops, so nobody can pin it in the middle.
// One thread (the executor's).
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "copy/mover.h"
#include "hmm/events.h"
#include "hmm/moves.h"
#include "hmm/session_table.h"
#include "hmm/store.h"
#include "hmm/types.h"

namespace hmm::core {

class Relocator {
 public:
  // `settled` is called whenever a move ended or room came free: time to look again.
  Relocator(const ManagerOptions& options, Tiers& tiers, TensorStore& store, SessionTable& sessions,
            copy::Copier& copier, Executor& executor, const Clock& clock, Counters& counters,
            MoveJournal& journal, EventBus& events, std::function<void()> settled);

  // RESIDENT or CREATING-and-put-down -> MOVING. False: a pin holds it, nothing changed. ABSENT
  // tensors have no pins to look for: always true. REQUIRES: at rest.
  bool Freeze(TensorIndex index);

  // Moves the tensor along `path` (rooms in the order of the hops, the last is where it will rest).
  // A path that ends where it began moves the tensor within its tier. Takes the rooms in every
  // case. FAILED_PRECONDITION/PINNED, UNAVAILABLE/QUEUE_FULL: nothing changed, rooms returned. A
  // hint that has not started by its deadline is dropped, unless somebody waits for it by then
  // (Raise).
  absl::Status Start(TensorIndex index, std::vector<Room> path, copy::Priority priority,
                     TimePoint deadline = TimePoint::max());

  // The home becomes the clean copy that already lies in `tier` below: no bytes move. PINNED as
  // Start.
  absl::Status SwitchToClean(TensorIndex index, TierId tier);

  // Frees the tensor now, or when the last pin goes. True: deferred.
  bool Doom(TensorIndex index);
  // Looks again at doomed tensors whose pins were in the way, at most `limit` of them.
  void SweepDoomed(std::size_t limit);
  // Lost tensors that belong to a tenant have nobody who would free them: doomed once whoever
  // waited for them has been told.
  void DoomLost();
  bool doomed_waiting() const { return !doomed_.empty(); }

  // The tensor is needed where it still is: a demotion under way is cancelled. False: not demoting.
  bool CancelDemotion(TensorIndex index);
  // Whether it would be: it is, as long as the tensor still lies in memory.
  bool Cancellable(TensorIndex index) const;
  // A move under way is served at `priority` from now on.
  void Raise(TensorIndex index, copy::Priority priority);
  // Drops hints whose time has passed before they started.
  void DropStaleHints();
  bool hints_waiting() const { return !hints_.empty(); }
  // Where the move under way ends. REQUIRES: tensor.move != 0.
  TierId Destination(TensorIndex index) const;
  // How urgent the move under way is. REQUIRES: tensor.move != 0.
  copy::Priority PriorityOf(TensorIndex index) const;

  // Bytes of a tier whose tensors are on their way out of it for good; of them, a tenant's.
  Bytes leaving_bytes(TierId tier) const { return leaving_[tier]; }
  Bytes leaving_bytes(TierId tier, TenantId tenant) const;
  // Bytes that are used twice now, by tensors on their way to another place in the tier.
  Bytes within_bytes(TierId tier) const { return within_[tier]; }
  std::size_t leaving_count(TierId tier) const { return leaving_count_[tier]; }
  // Remembers that a tensor leaves for good, because of what the journal says now.
  void NoteDropped(TensorIndex index);
  const copy::Mover& mover() const { return mover_; }
  copy::Mover& mover() { return mover_; }
  std::size_t moves() const { return moves_.size(); }
  // What is counted of moves against the moves.
  absl::Status Validate() const;
  // Reads or writes of a tier that failed in a row, the worse of the two; a success of the same
  // kind resets it.
  unsigned errors(TierId tier) const { return std::max(errors_[tier].reads, errors_[tier].writes); }
  // Since the start, and when a copy last told how the tier does.
  struct Health {
    std::uint64_t read_errors = 0;
    std::uint64_t write_errors = 0;
    std::uint64_t checksum_errors = 0;
    std::optional<TimePoint> proved;
    bool proved_ok = false;
  };
  const Health& health(TierId tier) const { return health_[tier]; }

 private:
  struct Move {
    TensorIndex tensor = kNoIndex;  // kNoIndex: detached, only extents remain to settle
    CopyIndex source = kNoIndex;
    CopyIndex target = kNoIndex;
    std::vector<Room> rest;  // hops after this one
    copy::Priority priority{};
    copy::MoveId id = 0;  // in the mover
    TierId from = 0;      // where the tensor rested before the first hop
    bool down = false;
    bool within = false;  // ends in the tier it began in
    Bytes twice = 0;      // counted in within_[from]
    Decision decision;
    Bytes leaving = 0;  // counted in leaving_[leaving_from]
    TierId leaving_from = 0;
    TenantId tenant = 0;
    TimePoint hint_until = TimePoint::max();  // in hints_ unless max
  };
  struct Errors {
    unsigned reads = 0;
    unsigned writes = 0;
  };

  absl::Status SubmitHop(std::uint64_t key, Move& move, const Room& to);
  void OnHopDone(std::uint64_t key, copy::CopyResult result);
  void Arrive(std::uint64_t key, Move& move, const copy::CopyResult& result);
  void Fail(std::uint64_t key, Move& move, const absl::Status& why);
  Decision Decide(TensorIndex index) const;
  void Note(TensorIndex index, const Decision& decision, TierId from, TierId to,
            MoveOutcome outcome, std::optional<Reason> error = std::nullopt);
  void NoteHealth(TierId from, TierId to, const absl::Status& status);
  void Rest(TensorIndex index);  // MOVING -> RESIDENT or ABSENT, by the home's tier
  void EndMove(std::uint64_t key);
  void Detach(std::uint64_t key);
  void Finish(TensorIndex index);  // of a doomed tensor without pins
  void ReturnRooms(std::vector<Room>& rooms);
  void CountLeaving(Move& move, TensorIndex index);
  void UncountLeaving(Move& move);
  void UncountTwice(Move& move);
  void CountError(TierId from, TierId to);
  void ForgetHint(std::uint64_t key, Move& move);
  static std::uint64_t Share(TierId tier, TenantId tenant) {
    return (static_cast<std::uint64_t>(tier) << 32) | tenant;
  }

  Tiers& tiers_;
  TensorStore& store_;
  SessionTable& sessions_;
  const Clock& clock_;
  Counters& counters_;
  MoveJournal& journal_;
  EventBus& events_;
  std::function<void()> settled_;
  copy::Mover mover_;
  absl::flat_hash_map<std::uint64_t, std::unique_ptr<Move>> moves_;
  std::uint64_t next_ = 1;
  std::vector<Bytes> leaving_;
  std::vector<std::size_t> leaving_count_;
  std::vector<Bytes> within_;
  absl::flat_hash_map<std::uint64_t, Bytes> leaving_of_;  // by Share(tier, tenant); no zeros
  std::vector<Errors> errors_;
  std::vector<Health> health_;
  std::set<std::pair<TimePoint, std::uint64_t>> hints_;  // deadline, key of the move
  std::vector<TensorIndex> doomed_;
  std::size_t sweep_at_ = 0;
  std::vector<std::pair<TenantId, Handle>> lost_;
};

}  // namespace hmm::core
