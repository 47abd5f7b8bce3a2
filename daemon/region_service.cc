// SPDX-License-Identifier: Apache-2.0
//
// hmm.v1.Regions, on the tenant server: the queue's thread is the manager's, all runs inline.
#include <grpcpp/server_builder.h>

#include <chrono>
#include <utility>

#include "base/status.h"
#include "daemon/authenticate.h"
#include "daemon/call.h"
#include "daemon/convert.h"
#include "daemon/region_convert.h"
#include "daemon/service.h"
#include "daemon/session_call.h"
#include "hmm/v1/regions.grpc.pb.h"

namespace hmm::daemon {
namespace {

TimePoint Now() { return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()); }

class RegionService final : public Service {
 public:
  RegionService(core::Manager& manager, const core::ManagerOptions& limits)
      : manager_(manager), batch_max_(limits.batch_max) {}

  void Register(grpc::ServerBuilder& builder) override { builder.RegisterService(&service_); }
  void Serve(CallScope& scope) override;

 private:
  template <typename Request, typename Response>
  using CallOf = Call<Request, Response>*;

  void Lease(CallOf<v1::LeaseRegionRequest, v1::LeaseRegionResponse> call);
  void Drain(CallOf<v1::DrainRegionRequest, v1::DrainRegionResponse> call);
  void Poll(CallOf<v1::PollJobsRequest, v1::PollJobsResponse> call);
  absl::Status Release(const v1::ReleaseRegionRequest& request, SessionId session,
                       v1::ReleaseRegionResponse& out);
  absl::Status Store(const v1::StoreRequest& request, SessionId session, v1::StoreResponse& out);
  absl::Status Load(const v1::LoadRequest& request, SessionId session, v1::LoadResponse& out);
  absl::Status Cancel(const v1::CancelJobsRequest& request, SessionId session,
                      v1::CancelJobsResponse& out);

  using JobStates = std::vector<absl::StatusOr<core::JobStatus>>;
  static void FinishPoll(CallOf<v1::PollJobsRequest, v1::PollJobsResponse> call,
                         const std::vector<core::JobId>& jobs,
                         const absl::StatusOr<JobStates>& states);
  absl::Status Forget(SessionId session,
                      const google::protobuf::RepeatedField<std::uint64_t>& jobs) {
    return manager_.ForgetJobs(session, std::vector<core::JobId>(jobs.begin(), jobs.end()));
  }

  core::Manager& manager_;
  const std::size_t batch_max_;
  v1::Regions::AsyncService service_;
  Method<v1::LeaseRegionRequest, v1::LeaseRegionResponse> lease_;
  Method<v1::ReleaseRegionRequest, v1::ReleaseRegionResponse> release_;
  Method<v1::DrainRegionRequest, v1::DrainRegionResponse> drain_;
  Method<v1::StoreRequest, v1::StoreResponse> store_;
  Method<v1::LoadRequest, v1::LoadResponse> load_;
  Method<v1::PollJobsRequest, v1::PollJobsResponse> poll_;
  Method<v1::CancelJobsRequest, v1::CancelJobsResponse> cancel_;
};

void RegionService::Serve(CallScope& scope) {
  const auto arm = [&](auto& method, auto request, auto handle) {
    ArmMethod(scope, service_, method, request, handle);
  };
  const auto answer = [this](auto verb) {
    return [this, verb](auto* call) { AnswerCall(manager_, call, *this, verb); };
  };
  using Async = v1::Regions::AsyncService;
  arm(lease_, &Async::RequestLeaseRegion, [this](auto* call) { Lease(call); });
  arm(drain_, &Async::RequestDrainRegion, [this](auto* call) { Drain(call); });
  arm(poll_, &Async::RequestPollJobs, [this](auto* call) { Poll(call); });
  arm(release_, &Async::RequestReleaseRegion, answer(&RegionService::Release));
  arm(store_, &Async::RequestStore, answer(&RegionService::Store));
  arm(load_, &Async::RequestLoad, answer(&RegionService::Load));
  arm(cancel_, &Async::RequestCancelJobs, answer(&RegionService::Cancel));
}

// --- calls that may wait ------------------------------------------------------------------------

void RegionService::Lease(CallOf<v1::LeaseRegionRequest, v1::LeaseRegionResponse> call) {
  const auto session = Authenticate(manager_, call->Metadata(kTokenKey));
  if (!session.ok()) return call->Finish(session.status());
  const core::CallContext context{.session = *session, .deadline = call->deadline()};
  AwaitOp(manager_, call,
          manager_.LeaseRegion(context, Decode(call->request()),
                               [this, call](absl::StatusOr<core::Location> location) {
                                 if (!location.ok()) return call->Finish(location.status());
                                 call->response().set_epoch(manager_.boot_epoch());
                                 EncodeLocation(*location, *call->response().mutable_location());
                                 call->Finish(absl::OkStatus());
                               }));
}

void RegionService::Drain(CallOf<v1::DrainRegionRequest, v1::DrainRegionResponse> call) {
  const auto session = Authenticate(manager_, call->Metadata(kTokenKey));
  if (!session.ok()) return call->Finish(session.status());
  const core::CallContext context{.session = *session, .deadline = call->deadline()};
  const core::DrainArgs args{.region = call->request().region(),
                             .cancel = call->request().cancel()};
  AwaitOp(manager_, call,
          manager_.DrainRegion(context, args, [this, call](absl::StatusOr<bool> drained) {
            call->response().set_epoch(manager_.boot_epoch());
            call->Finish(drained.status());
          }));
}

void RegionService::FinishPoll(CallOf<v1::PollJobsRequest, v1::PollJobsResponse> call,
                               const std::vector<core::JobId>& jobs,
                               const absl::StatusOr<JobStates>& states) {
  if (!states.ok()) return call->Finish(states.status());
  for (std::size_t i = 0; i < states->size(); ++i) {
    v1::JobState& state = *call->response().add_jobs();
    state.set_job(jobs[i]);
    const absl::StatusOr<core::JobStatus>& job = (*states)[i];
    if (job.ok()) {
      Encode(*job, state);
    } else {
      EncodeError(job.status(), *state.mutable_error());
    }
  }
  call->Finish(absl::OkStatus());
}

void RegionService::Poll(CallOf<v1::PollJobsRequest, v1::PollJobsResponse> call) {
  const auto session = Authenticate(manager_, call->Metadata(kTokenKey));
  if (!session.ok()) return call->Finish(session.status());
  const v1::PollJobsRequest& request = call->request();
  call->response().set_epoch(manager_.boot_epoch());
  absl::Status status = CheckBatch("jobs", request.jobs_size(), batch_max_);
  if (status.ok()) status = CheckBatch("forget", request.forget_size(), batch_max_);
  if (status.ok()) status = Forget(*session, request.forget());
  if (!status.ok()) return call->Finish(status);
  if (request.jobs().empty()) {
    const auto all = manager_.ListJobs(*session);
    if (!all.ok()) return call->Finish(all.status());
    for (const core::JobStatus& job : *all) Encode(job, *call->response().add_jobs());
    return call->Finish(absl::OkStatus());
  }
  const std::vector<core::JobId> jobs(request.jobs().begin(), request.jobs().end());
  if (!request.wait()) return FinishPoll(call, jobs, manager_.PollJobs(*session, jobs));
  const core::CallContext context{.session = *session, .deadline = call->deadline()};
  AwaitOp(manager_, call,
          manager_.AwaitJobs(context, jobs, [call, jobs](absl::StatusOr<JobStates> states) {
            FinishPoll(call, jobs, states);
          }));
}

// --- calls that answer at once ------------------------------------------------------------------

absl::Status RegionService::Release(const v1::ReleaseRegionRequest& request, SessionId session,
                                    v1::ReleaseRegionResponse& /*out*/) {
  return manager_.ReleaseRegion(session, request.region());
}

absl::Status RegionService::Store(const v1::StoreRequest& request, SessionId session,
                                  v1::StoreResponse& /*out*/) {
  HMM_RETURN_IF_ERROR(CheckBatch("keys", request.keys_size(), batch_max_));
  HMM_RETURN_IF_ERROR(CheckBatch("forget", request.forget_size(), batch_max_));
  HMM_RETURN_IF_ERROR(Forget(session, request.forget()));
  HMM_ASSIGN_OR_RETURN(core::JobArgs args, Decode(request, Now()));
  return manager_.StartJob(session, std::move(args));
}

absl::Status RegionService::Load(const v1::LoadRequest& request, SessionId session,
                                 v1::LoadResponse& /*out*/) {
  HMM_RETURN_IF_ERROR(CheckBatch("keys", request.keys_size(), batch_max_));
  HMM_RETURN_IF_ERROR(CheckBatch("forget", request.forget_size(), batch_max_));
  HMM_RETURN_IF_ERROR(Forget(session, request.forget()));
  return manager_.StartJob(session, Decode(request, Now()));
}

absl::Status RegionService::Cancel(const v1::CancelJobsRequest& request, SessionId session,
                                   v1::CancelJobsResponse& out) {
  HMM_RETURN_IF_ERROR(CheckBatch("jobs", request.jobs_size(), batch_max_));
  HMM_ASSIGN_OR_RETURN(
      const auto results,
      manager_.CancelJobs(session,
                          std::vector<core::JobId>(request.jobs().begin(), request.jobs().end())));
  for (const absl::Status& result : results) {
    v1::CancelJobsResponse::Result& to = *out.add_results();
    if (!result.ok()) EncodeError(result, *to.mutable_error());
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Service> CreateRegionService(core::Manager& manager,
                                             const core::ManagerOptions& limits) {
  return std::make_unique<RegionService>(manager, limits);
}

}  // namespace hmm::daemon
