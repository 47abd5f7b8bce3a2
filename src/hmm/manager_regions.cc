// SPDX-License-Identifier: Apache-2.0
//
// The manager's verbs of regions and jobs.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "hmm/core.h"
#include "hmm/manager.h"
#include "hmm/refuse.h"
#include "hmm/region_ops.h"
#include "hmm/room_op.h"
#include "share/bell.h"

namespace hmm::core {
namespace {

absl::Status NoRegion(RegionId region) {
  return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
               absl::StrCat("the session has no region ", region));
}

absl::Status Draining() {
  return WithRetry(
      Error(absl::StatusCode::kUnavailable, Reason::kDraining, "the daemon is draining"),
      std::chrono::milliseconds(1000));
}

// The tier that a lease or a Store names, or the session's own; it must be mappable.
absl::StatusOr<TierId> TierOf(const Core& core, const Session& session, std::string_view name) {
  std::optional<TierId> named;
  HMM_RETURN_IF_ERROR(core.MappableByName(name, named));
  return named.value_or(session.device);
}

}  // namespace

Manager::OpId Manager::LeaseRegion(const CallContext& call, const LeaseArgs& args,
                                   Callback<Location> done) {
  if (core_->draining) return Refuse(done, Draining());
  auto session = core_->Active(call.session);
  if (!session.ok()) return Refuse(done, session.status());
  const auto tier = TierOf(*core_, **session, args.tier);
  if (!tier.ok()) return Refuse(done, tier.status());
  const absl::Status fits = core_->regions.CheckNew(call.session, args.region, 0);
  if (!fits.ok()) return Refuse(done, fits);
  const RoomArgs room{.tenant = (*session)->tenant,
                      .tier = *tier,
                      .bytes = args.bytes,
                      .wait = args.wait,
                      .fixed = true};
  return core_->Launch(std::make_unique<RoomOp>(
      *core_, call, room,
      [core = core_.get(), session = call.session, id = args.region, bytes = args.bytes,
       done = std::move(done)](absl::StatusOr<Room> taken) mutable {
        if (!taken.ok()) return std::move(done)(taken.status());
        // Another call may have taken the id while this one waited.
        const absl::Status still = core->regions.CheckNew(session, id, 0);
        if (!still.ok()) {
          core->store.ReturnRoom(*taken);
          return std::move(done)(still);
        }
        core->regions.AddLeased(session, id, *taken, bytes);
        std::move(done)(Location{taken->tier, taken->extent.segment, taken->extent.offset, bytes});
      }));
}

absl::Status Manager::AttachRegion(SessionId id, RegionId region, share::Mapping mapping,
                                   Bytes bytes) {
  if (core_->draining) return Draining();
  HMM_ASSIGN_OR_RETURN(const Session* session, core_->Active(id));
  HMM_RETURN_IF_ERROR(core_->regions.CheckNew(session->id, region, bytes));
  core_->regions.AddAttached(id, region, std::move(mapping), bytes);
  return absl::OkStatus();
}

absl::Status Manager::ReleaseRegion(SessionId id, RegionId region_id) {
  HMM_RETURN_IF_ERROR(core_->Active(id).status());
  Region* region = core_->regions.Find(id, region_id);
  if (region == nullptr) return NoRegion(region_id);
  // Used while its keys end: the last of them may be the one that would free it.
  core_->regions.Use(*region);
  core_->regions.Release(*region);
  core_->jobs.CancelRegion(*region, Error(absl::StatusCode::kCancelled, Reason::kCancelled,
                                          "the region was released before the key was done"));
  core_->regions.Unuse(*region);
  core_->Kick();
  return absl::OkStatus();
}

Manager::OpId Manager::DrainRegion(const CallContext& call, const DrainArgs& args,
                                   Callback<bool> done) {
  auto session = core_->Active(call.session);
  if (!session.ok()) return Refuse(done, session.status());
  Region* region = core_->regions.Find(call.session, args.region);
  if (region == nullptr) return Refuse(done, NoRegion(args.region));
  return core_->Launch(std::make_unique<DrainOp>(*core_, call, args, *region, std::move(done)));
}

absl::Status Manager::StartJob(SessionId id, JobArgs args) {
  HMM_ASSIGN_OR_RETURN(Session * session, core_->Active(id));
  const bool store = args.kind == JobKind::kStore;
  if (store && core_->draining) return Draining();
  HMM_RETURN_IF_ERROR(core_->CheckBatch(args.keys.size()));
  TierId tier = session->device;
  if (store) {
    HMM_ASSIGN_OR_RETURN(tier, TierOf(*core_, *session, args.tier));
  }
  return core_->jobs.Start(*session, std::move(args), tier);
}

absl::StatusOr<std::vector<JobStatus>> Manager::ListJobs(SessionId id) const {
  HMM_RETURN_IF_ERROR(core_->Active(id).status());
  return core_->jobs.All(id);
}

absl::StatusOr<std::vector<absl::StatusOr<JobStatus>>> Manager::PollJobs(
    SessionId id, absl::Span<const JobId> jobs) const {
  HMM_RETURN_IF_ERROR(core_->Active(id).status());
  HMM_RETURN_IF_ERROR(core_->CheckBatch(jobs.size()));
  std::vector<absl::StatusOr<JobStatus>> result;
  result.reserve(jobs.size());
  for (const JobId job : jobs) result.push_back(core_->jobs.Status(id, job));
  return result;
}

Manager::OpId Manager::AwaitJobs(const CallContext& call, std::vector<JobId> jobs,
                                 Callback<std::vector<absl::StatusOr<JobStatus>>> done) {
  auto session = core_->Active(call.session);
  absl::Status fits = session.status();
  if (fits.ok()) fits = core_->CheckBatch(jobs.size());
  if (!fits.ok()) {
    std::move(done)(fits);
    return 0;
  }
  return core_->Launch(
      std::make_unique<AwaitJobsOp>(*core_, call, std::move(jobs), std::move(done)));
}

absl::Status Manager::ForgetJobs(SessionId id, absl::Span<const JobId> jobs) {
  HMM_RETURN_IF_ERROR(core_->Active(id).status());
  for (const JobId job : jobs) core_->jobs.Forget(id, job);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<absl::Status>> Manager::CancelJobs(SessionId id,
                                                              absl::Span<const JobId> jobs) {
  HMM_RETURN_IF_ERROR(core_->Active(id).status());
  HMM_RETURN_IF_ERROR(core_->CheckBatch(jobs.size()));
  std::vector<absl::Status> results;
  results.reserve(jobs.size());
  for (const JobId job : jobs) {
    results.push_back(core_->jobs.Cancel(
        id, job, Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the job was cancelled")));
  }
  core_->Kick();
  return results;
}

absl::StatusOr<share::UniqueFd> Manager::OpenJobEvents(SessionId id) {
  HMM_ASSIGN_OR_RETURN(Session * session, core_->Active(id));
  HMM_ASSIGN_OR_RETURN(share::Bell bell, share::Bell::Make());
  session->bell = std::move(bell.ringer);
  // For those that ended before there was a bell.
  const std::vector<JobStatus> jobs = core_->jobs.All(id);
  if (std::any_of(jobs.begin(), jobs.end(), [](const JobStatus& job) { return job.ended; })) {
    share::Ring(session->bell);
  }
  return std::move(bell.listener);
}

}  // namespace hmm::core
