// SPDX-License-Identifier: Apache-2.0
//
// What Manager hides: the parts of the core, and the calls that wait.
//
//   settled / time passed -> Kick (posted once) -> sweep doomed, step waiting calls in order of
//   arrival, background demotion -> next look after `rescan` while anything waits
//
// Room is given out in order. Calls that wait for room of a tier queue there; only the first
// collects rooms as they come free (so a large call is not starved by small ones), and it keeps
// them until all its rooms are there. When it made no progress for kPatience (it got no room, and
// nothing is on its way out of the tier), others that can be served at once may pass. A call that
// waits for its own quota queues nowhere. Rooms of several tiers are collected from the fastest
// tier down, moves run from the slowest up: no two calls can hold what the other waits for.
//
// One thread (the executor's).
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "hmm/events.h"
#include "hmm/job_table.h"
#include "hmm/link_times.h"
#include "hmm/manager.h"
#include "hmm/moves.h"
#include "hmm/reclaimer.h"
#include "hmm/region_table.h"
#include "hmm/relocator.h"
#include "hmm/session_table.h"
#include "hmm/store.h"
#include "hmm/types.h"

namespace hmm::core {

class Core;
using OpId = std::uint64_t;

// A call that may wait. Step is called when something may have changed.
class Op {
 public:
  Op(Core& core, const CallContext& call) : core_(core), call_(call) {}
  virtual ~Op() = default;
  // True: answered, the op can be deleted.
  virtual bool Step() = 0;
  // Answers with what it has and gives back what it holds: the deadline passed (nothing more will
  // be tried), or `why` is not OK (session closing, cancelled, draining: all undone).
  virtual void End(const absl::Status& why) = 0;
  // Why what it moves moves.
  virtual MoveCause cause() const { return MoveCause::kRoom; }
  // Of its batch: what it keeps in memory, and what ending it takes.
  virtual std::size_t elements() const { return 1; }

  const CallContext& call() const { return call_; }

 protected:
  friend class Core;
  Core& core_;
  CallContext call_;
  OpId id_ = 0;
};

class Core {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(50);

  Core(ManagerOptions options, Tiers tiers, copy::Copier& by, Executor& executor,
       const Clock& clock, copy::FragmentCopier* fragments);

  // Runs the op's first step; keeps it while it waits. Returns its id, 0 when it has answered.
  OpId Launch(std::unique_ptr<Op> op);
  void Cancel(OpId id, const absl::Status& why);
  void CancelSession(SessionId session, const absl::Status& why);
  // Something changed: look again soon. Cheap, idempotent.
  void Kick();

  // --- room in order ----------------------------------------------------------------------------
  // Whether this op may take room of the tier now: it is first in its queue (it enters it if need
  // be), or nobody waits.
  bool MayTake(TierId tier, const Op& op) const;
  // Whether no other op waits for room of the tier.
  bool NobodyElse(TierId tier, const Op& op) const;
  void Queue(TierId tier, const Op& op);
  bool First(TierId tier, const Op& op) const {
    return !rooms_[tier].ops.empty() && rooms_[tier].ops.front() == &op;
  }
  void Progressed(TierId tier, const Op& op);
  void Unqueue(const Op& op, TierId tier);
  void Unqueue(const Op& op);

  // --- small helpers of the verbs ---------------------------------------------------------------
  absl::StatusOr<TierId> TierByName(std::string_view name) const;
  // The viewer's tenant (then a name must be its own), or without a viewer the named one.
  absl::StatusOr<TenantId> TenantFor(std::optional<SessionId> viewer, std::string_view name) const;
  // ACTIVE sessions only; UNAUTHENTICATED/UNKNOWN_SESSION.
  absl::StatusOr<Session*> Active(SessionId id);
  absl::Status CheckBatch(std::size_t elements) const;
  // Where a session's tensors go by default, and the slowest tier of its device's path it can map.
  TierId LowestMappable(TierId device) const;
  // OK and `tier` unset for an empty name.
  absl::Status MappableByName(std::string_view name, std::optional<TierId>& tier) const;
  absl::Status SealOne(Session& session, const SealItem& item);
  // Its client uses it: no longer ahead. Nothing for one that is not.
  void TakeAhead(TensorIndex index);
  // Those of the handles that were allocated ahead for this session are ordinary from here on.
  void MarkTaken(Session& session, absl::Span<const Handle> taken);
  LookupResult FindRun(const Session& session, const std::vector<std::string>& keys,
                       std::optional<TierId> target) const;
  absl::Status PrefetchOne(TensorIndex index, TierId target, TimePoint deadline);
  Location LocationOf(TensorIndex index);
  bool Mappable(TierId tier) const { return tiers[tier]->mappable(); }
  // `measured`: false when a link of the way has moved nothing yet.
  Duration EstimateTime(TierId from, TierId to, Bytes bytes, bool* measured = nullptr) const;
  void StartTimers();
  void EmitSession(const Session& session, SessionChange change, std::string_view why = {});
  void EmitAdmin(std::string_view action, std::string_view arguments, const absl::Status& outcome);
  // Frees what a dead session owned, a bounded number of tensors a look.
  void Bury(SessionId session, std::vector<Handle> handles);
  void BurySome();
  std::size_t waiting() const { return ops_.size(); }
  // UNAVAILABLE/QUEUE_FULL: as many wait as may, over all or of this session's tenant.
  absl::Status CheckWaiting(SessionId session, std::size_t elements = 1) const;
  absl::Status Validate() const;
  // Expires with the core: for completions that may outlive it.
  std::weak_ptr<int> alive() const { return alive_; }

  ManagerOptions options;
  Tiers tiers;
  copy::Copier& copier;
  Executor& executor;
  const Clock& clock;
  TimePoint started_at;
  Counters counters;
  std::vector<std::uint64_t> hits;  // by tier
  bool draining = false;
  absl::AnyInvocable<void(SessionId, std::string_view)> expel;
  absl::AnyInvocable<void(TierId, std::string_view)> tier_offline;
  EventBus events;
  MoveJournal journal;
  LinkTimes link_times;
  TopologyFacts topology;
  absl::AnyInvocable<void(const std::vector<copy::LinkModel>&)> calibrated;
  std::weak_ptr<copy::Calibration> calibrating;  // expired: none
  TensorStore store;
  SessionTable sessions;
  Relocator relocator;
  Reclaimer reclaimer;
  RegionTable regions;
  JobTable jobs;

 private:
  void Look();
  bool Step(Op& op);
  void End(Op& op, const absl::Status& why);
  void Audit();
  void WatchTiers();
  void Arm();

  std::map<OpId, std::unique_ptr<Op>> ops_;  // in order of arrival
  struct RoomQueue {
    std::deque<const Op*> ops;
    TimePoint progressed{};
  };
  std::vector<RoomQueue> rooms_;
  struct Grave {
    TenantId tenant = 0;
    SessionId owner = 0;
    std::vector<Handle> handles;
  };
  std::vector<Grave> dying_;
  OpId next_op_ = 1;
  bool kicked_ = false;
  bool armed_ = false;
  bool looking_ = false;
  // Tasks on the executor hold it weakly: they outlive us at shutdown.
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace hmm::core
