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
#include "copy/calibration.h"
#include "copy/copier.h"
#include "copy/fragment_copier.h"
#include "copy/mover.h"
#include "hmm/events.h"
#include "hmm/region_types.h"
#include "hmm/types.h"
#include "tier/tier.h"

namespace hmm::core {

template <typename T>
using Callback = absl::AnyInvocable<void(absl::StatusOr<T>) &&>;

class Core;

class Manager {
 public:
  // `tiers` from fastest to slowest; the last is the bottom. REQUIRES: 1..16 tiers, at least one
  // mappable, names unique. Executor, clock, copiers outlive the manager; without one for fragments
  // jobs are refused.
  Manager(ManagerOptions options, std::vector<std::unique_ptr<tier::Tier>> tiers,
          copy::Copier& copier, Executor& executor, const Clock& clock,
          copy::FragmentCopier* fragments = nullptr);
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

  // --- regions and jobs (proto/hmm/v1/regions.proto) --------------------------------------------
  // A contiguous range that reclaim never touches, until it is released or the session is reaped.
  // Errors as Allocate's; ALREADY_EXISTS, RESOURCE_EXHAUSTED/QUOTA past the bounds of regions.
  OpId LeaseRegion(const CallContext& call, const LeaseArgs& args, Callback<Location> done);
  // A client's own memory, mapped by whoever calls (share/foreign_file.h).
  absl::Status AttachRegion(SessionId session, RegionId region, share::Mapping mapping,
                            Bytes bytes);
  // Keys of jobs that use it and have not begun end CANCELLED; its memory goes when copies under
  // way are done. NOT_FOUND.
  absl::Status ReleaseRegion(SessionId session, RegionId region);
  // Answers when no job uses the region any more. DEADLINE_EXCEEDED, NOT_FOUND.
  OpId DrainRegion(const CallContext& call, const DrainArgs& args, Callback<bool> done);
  // Starts a job (hmm/job_table.h: errors). It runs on without the caller.
  absl::Status StartJob(SessionId session, JobArgs args);
  absl::StatusOr<std::vector<JobStatus>> ListJobs(SessionId session) const;
  // NOT_FOUND by job: never started, or forgotten.
  absl::StatusOr<std::vector<absl::StatusOr<JobStatus>>> PollJobs(
      SessionId session, absl::Span<const JobId> jobs) const;
  // As PollJobs, once all have ended, or at the call's deadline.
  OpId AwaitJobs(const CallContext& call, std::vector<JobId> jobs,
                 Callback<std::vector<absl::StatusOr<JobStatus>>> done);
  // Frees the places of jobs whose verdicts nobody needs; running ones run on.
  absl::Status ForgetJobs(SessionId session, absl::Span<const JobId> jobs);
  absl::StatusOr<std::vector<absl::Status>> CancelJobs(SessionId session,
                                                       absl::Span<const JobId> jobs);
  // A descriptor for the client (share/bell.h) that is rung when a job of the session ends; an
  // earlier one hears nothing any more.
  absl::StatusOr<share::UniqueFd> OpenJobEvents(SessionId session);

  // --- inspection -------------------------------------------------------------------------------
  // `viewer`: a session sees its tenant alone, nullopt sees all.
  StatusInfo GetStatus(std::optional<SessionId> viewer) const;
  std::vector<TierInfo> ListTiers(std::optional<SessionId> viewer) const;
  // In slot order from `cursor` (0 first), at most `limit`; `next` 0 at the end. A call looks at a
  // bounded number of slots, `looks` if given: a page may be empty and not the last. NOT_FOUND for
  // a tier or tenant that does not exist, PERMISSION_DENIED for another tenant than the viewer's.
  absl::StatusOr<TensorPage> ListTensors(std::optional<SessionId> viewer,
                                         const TensorFilter& filter, std::uint64_t cursor,
                                         std::size_t limit, std::size_t looks = 0) const;
  std::vector<SessionStatus> ListSessions(std::optional<SessionId> viewer) const;
  // Why a tensor is where it is. By handle, or by key if that is not empty. Without a viewer of
  // `tenant`; of the one that has such a tensor if that is empty, INVALID_ARGUMENT if several do.
  absl::StatusOr<Explanation> Explain(std::optional<SessionId> viewer, std::string_view tenant,
                                      Handle handle, std::string_view key,
                                      std::size_t moves_max) const;
  // Of one tier, or with an empty name of all.
  absl::StatusOr<std::vector<TierHealth>> GetHealth(std::string_view tier) const;
  EventBus& events();
  // The viewer's tenant; without a viewer the named one. NOT_FOUND, UNAUTHENTICATED.
  absl::StatusOr<TenantId> TenantOf(std::optional<SessionId> viewer, std::string_view name) const;
  const std::string& tenant_name(TenantId tenant) const;
  absl::StatusOr<TierId> TierByName(std::string_view name) const;
  TopologyInfo GetTopology() const;
  void SetTopology(TopologyFacts facts);
  const tier::Tier& tier(TierId id) const;
  std::size_t tier_count() const;

  // --- administration ---------------------------------------------------------------------------
  absl::Status SetWatermarks(std::string_view tier, double high, double low,
                             std::optional<Bytes> reserve);
  OpId Evict(std::string_view tier, Bytes used_bytes_max, TimePoint deadline,
             Callback<EvictResult> done);
  // Grows or shrinks a tier while it is used (resize_op.h). FAILED_PRECONDITION/PINNED: pins hold
  // more than `bytes`; .../FULL: what must leave has no place below.
  OpId ResizeTier(std::string_view tier, Bytes bytes, TimePoint deadline,
                  Callback<ResizeResult> done);
  // Empties sparse ranges and gives their memory back; all tiers with an empty name.
  OpId Compact(std::string_view tier, TimePoint deadline, Callback<CompactResult> done);
  OpId SwapMany(TensorSelector selector, std::string_view tier, TimePoint deadline,
                Callback<SwapManyResult> done);
  // `tier`: empty for the fastest.
  absl::StatusOr<PrefetchManyResult> PrefetchMany(TensorSelector selector, std::string_view tier);
  // An operator did what the manager does not see.
  void NoteAdmin(std::string_view action, std::string_view arguments, const absl::Status& outcome);
  // Measures the links of the demotion paths with scratch in the real tiers (copy/calibration.h);
  // what it finds is used for estimates from then on. UNAVAILABLE/QUEUE_FULL while another one
  // runs.
  OpId Calibrate(TimePoint deadline, Callback<std::vector<copy::LinkModel>> done);
  // Called after each of them that ended well, before `done`.
  void OnCalibrated(absl::AnyInvocable<void(const std::vector<copy::LinkModel>&)> calibrated);
  void SetMeasurement(LinkMeasurement measured);
  // Takes no new sessions and allocations; waiting calls end UNAVAILABLE/DRAINING. Returns the
  // sessions still attached.
  std::size_t Drain(bool on);
  bool draining() const;

  // Tests: every invariant of the core (ledgers, lists, slots, waits), and the counts of
  // transitions taken so far. Validate costs O(tensors).
  absl::Status Validate() const;
  const TransitionCounts& transitions() const;

 private:
  absl::StatusOr<PrefetchManyResult> DoPrefetchMany(TensorSelector selector, std::string_view tier);
  absl::Status DoSetWatermarks(std::string_view tier, double high, double low,
                               std::optional<Bytes> reserve);

  std::unique_ptr<Core> core_;
};

}  // namespace hmm::core
