// SPDX-License-Identifier: Apache-2.0
//
// The manager: all metadata of the daemon, on one executor, without locks. It knows tenants,
// sessions, tensors and tiers, and decides what moves; the mover carries the bytes.
//
// Threads: every method on the executor's thread. Callbacks run there too, exactly once, possibly
// before the method that took them returns.
//
// Injected: executor, clock, tiers, copier, so that a test runs the whole core on one thread, with
// a manual clock, fake tiers and a seed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/ids.h"
#include "copy/copier.h"
#include "copy/mover.h"
#include "hmm/types.h"
#include "tier/tier.h"

namespace hmm::core {

template <typename T>
using Callback = absl::AnyInvocable<void(absl::StatusOr<T>) &&>;

class Core;

class Manager {
 public:
  // `tiers` from fastest to slowest; the last is the bottom. REQUIRES: 1..16 tiers, at least one
  // mappable, names unique. Executor, clock, copier outlive the manager.
  Manager(ManagerOptions options, std::vector<std::unique_ptr<tier::Tier>> tiers,
          copy::Copier& copier, Executor& executor, const Clock& clock);
  ~Manager();

  std::uint64_t boot_epoch() const;

  // --- sessions ---------------------------------------------------------------------------------
  // A process attached. RESOURCE_EXHAUSTED/REFUSED past sessions_max, NOT_FOUND for an unknown
  // device, UNAVAILABLE/DRAINING.
  absl::StatusOr<SessionGrant> OpenSession(const SessionInfo& info);
  // Its socket closed: no new calls, waiting ones end CANCELLED; its pins stay.
  void CloseSession(SessionId session);
  // Its process is dead: pins go, what it owned is freed. Also closes it.
  void ReapSession(SessionId session);
  // nullopt: no ACTIVE session has this token.
  std::optional<SessionId> FindSession(const share::Token& token) const;
  // For the client to map. NOT_FOUND also for other tenants' segments. The descriptor stays ours.
  absl::StatusOr<tier::SegmentInfo> GetSegment(SessionId session, SegmentId segment) const;
  // Called when a tier has failed for good.
  void OnTierOffline(absl::AnyInvocable<void(TierId, std::string_view why)> offline);
  // Called when a session must be thrown out (its tenant overcommits memory behind our back). The
  // owner of the socket closes it and the session.
  void OnExpel(absl::AnyInvocable<void(SessionId, std::string_view why)> expel);

  // --- verbs (design section 4, proto/hmm/v1/memory.proto) ---------------------------------------
  // Calls that may wait return an id for Cancel; 0 when they have answered already.
  using OpId = std::uint64_t;
  OpId Allocate(const CallContext& call, AllocateArgs args, Callback<AllocateResult> done);
  OpId Acquire(const CallContext& call, AcquireArgs args, Callback<AcquireResult> done);
  OpId Lookup(const CallContext& call, LookupArgs args, Callback<LookupResult> done);
  OpId Swap(const CallContext& call, SwapArgs args, Callback<SwapResult> done);
  // The caller gave up: undone and answered CANCELLED. Unknown ids are ignored.
  void Cancel(OpId op);

  absl::StatusOr<std::vector<absl::Status>> Seal(SessionId session,
                                                 absl::Span<const SealItem> items);
  // Pins taken back now. Tensors of an Allocate that is undone are freed, unless sealed since.
  absl::StatusOr<std::uint32_t> Release(SessionId session, std::uint64_t call_id,
                                        std::uint64_t oldest_live_call_id);
  absl::StatusOr<std::vector<absl::Status>> Prefetch(SessionId session, const PrefetchArgs& args);
  absl::StatusOr<std::vector<absl::StatusOr<FreeResult>>> Free(SessionId session,
                                                               absl::Span<const Handle> handles);
  absl::StatusOr<std::vector<absl::StatusOr<TensorInfo>>> Describe(
      SessionId session, absl::Span<const Handle> handles, absl::Span<const std::string> keys);

  // --- inspection -------------------------------------------------------------------------------
  // `viewer`: a session sees its tenant alone, nullopt sees all.
  StatusInfo GetStatus(std::optional<SessionId> viewer) const;
  std::vector<TierInfo> ListTiers(std::optional<SessionId> viewer) const;
  // In slot order from `cursor` (0 first), at most `limit`; `next` 0 at the end. `tier`: filter by
  // name, empty for all. NOT_FOUND for an unknown tier.
  absl::StatusOr<TensorPage> ListTensors(std::optional<SessionId> viewer, std::string_view tier,
                                         std::uint64_t cursor, std::size_t limit) const;
  std::vector<SessionStatus> ListSessions(std::optional<SessionId> viewer) const;
  const tier::Tier& tier(TierId id) const;
  std::size_t tier_count() const;

  // --- administration ---------------------------------------------------------------------------
  absl::Status SetWatermarks(std::string_view tier, double high, double low,
                             std::optional<Bytes> reserve);
  OpId Evict(std::string_view tier, Bytes used_bytes_max, TimePoint deadline,
             Callback<EvictResult> done);
  // Takes no new sessions and allocations; waiting calls end UNAVAILABLE/DRAINING. Returns the
  // sessions still attached.
  std::size_t Drain(bool on);
  bool draining() const;

  // Tests: every invariant of the core (ledgers, lists, slots, waits), and the counts of
  // transitions taken so far. Validate costs O(tensors).
  absl::Status Validate() const;
  const TransitionCounts& transitions() const;

 private:
  std::unique_ptr<Core> core_;
};

}  // namespace hmm::core
