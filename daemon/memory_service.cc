// SPDX-License-Identifier: Apache-2.0
//
// hmm.v1.Memory, on the tenant server: the queue's thread is the manager's, all runs inline.
#include <grpcpp/server_builder.h>

#include <chrono>
#include <utility>

#include "base/status.h"
#include "daemon/authenticate.h"
#include "daemon/call.h"
#include "daemon/convert.h"
#include "daemon/service.h"
#include "daemon/session_call.h"
#include "hmm/v1/memory.grpc.pb.h"

namespace hmm::daemon {
namespace {

template <typename Request, typename Response>
absl::StatusOr<core::CallContext> ContextOf(const Call<Request, Response>& call, SessionId session,
                                            bool pins) {
  const v1::CallHeader& header = call.request().call();
  if (pins && header.call_id() == 0) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 "call.call_id is 0; a call that pins needs one, so that Release can undo it");
  }
  return core::CallContext{.session = session,
                           .call_id = header.call_id(),
                           .oldest_live_call_id = header.oldest_live_call_id(),
                           .deadline = call.deadline()};
}

class MemoryService final : public Service {
 public:
  MemoryService(core::Manager& manager, const core::ManagerOptions& limits)
      : manager_(manager), batch_max_(limits.batch_max) {}

  void Register(grpc::ServerBuilder& builder) override { builder.RegisterService(&service_); }
  void Serve(CallScope& scope) override;

 private:
  template <typename Request, typename Response>
  using CallOf = Call<Request, Response>*;

  void Allocate(CallOf<v1::AllocateRequest, v1::AllocateResponse> call);
  void Acquire(CallOf<v1::AcquireRequest, v1::AcquireResponse> call);
  void Lookup(CallOf<v1::LookupRequest, v1::LookupResponse> call);
  void Swap(CallOf<v1::SwapRequest, v1::SwapResponse> call);
  absl::Status Seal(const v1::SealRequest& request, SessionId session, v1::SealResponse& out);
  absl::Status Release(const v1::ReleaseRequest& request, SessionId session,
                       v1::ReleaseResponse& out);
  absl::Status Prefetch(const v1::PrefetchRequest& request, SessionId session,
                        v1::PrefetchResponse& out);
  absl::Status Free(const v1::FreeRequest& request, SessionId session, v1::FreeResponse& out);
  absl::Status Describe(const v1::DescribeRequest& request, SessionId session,
                        v1::DescribeResponse& out);

  // Answers `call` with what the manager has for it.
  template <typename Result, typename Request, typename Response>
  core::Callback<Result> Reply(Call<Request, Response>* call) {
    return [this, call](absl::StatusOr<Result> result) {
      if (!result.ok()) return call->Finish(result.status());
      call->response().set_epoch(manager_.boot_epoch());
      Encode(*result, call->response());
      call->Finish(absl::OkStatus());
    };
  }

  core::Manager& manager_;
  const std::size_t batch_max_;
  v1::Memory::AsyncService service_;
  Method<v1::AllocateRequest, v1::AllocateResponse> allocate_;
  Method<v1::SealRequest, v1::SealResponse> seal_;
  Method<v1::AcquireRequest, v1::AcquireResponse> acquire_;
  Method<v1::LookupRequest, v1::LookupResponse> lookup_;
  Method<v1::ReleaseRequest, v1::ReleaseResponse> release_;
  Method<v1::PrefetchRequest, v1::PrefetchResponse> prefetch_;
  Method<v1::SwapRequest, v1::SwapResponse> swap_;
  Method<v1::FreeRequest, v1::FreeResponse> free_;
  Method<v1::DescribeRequest, v1::DescribeResponse> describe_;
};

void MemoryService::Serve(CallScope& scope) {
  const auto arm = [&](auto& method, auto request, auto handle) {
    ArmMethod(scope, service_, method, request, handle);
  };
  const auto answer = [this](auto verb) {
    return [this, verb](auto* call) { AnswerCall(manager_, call, *this, verb); };
  };
  using Async = v1::Memory::AsyncService;
  arm(allocate_, &Async::RequestAllocate, [this](auto* call) { Allocate(call); });
  arm(acquire_, &Async::RequestAcquire, [this](auto* call) { Acquire(call); });
  arm(lookup_, &Async::RequestLookup, [this](auto* call) { Lookup(call); });
  arm(swap_, &Async::RequestSwap, [this](auto* call) { Swap(call); });
  arm(seal_, &Async::RequestSeal, answer(&MemoryService::Seal));
  arm(release_, &Async::RequestRelease, answer(&MemoryService::Release));
  arm(prefetch_, &Async::RequestPrefetch, answer(&MemoryService::Prefetch));
  arm(free_, &Async::RequestFree, answer(&MemoryService::Free));
  arm(describe_, &Async::RequestDescribe, answer(&MemoryService::Describe));
}

// --- calls that may wait
// --------------------------------------------------------------------------

void MemoryService::Allocate(CallOf<v1::AllocateRequest, v1::AllocateResponse> call) {
  const auto session = Authenticate(manager_, call->Metadata(kTokenKey));
  if (!session.ok()) return call->Finish(session.status());
  if (auto status = CheckBatch("tensors", call->request().tensors_size(), batch_max_);
      !status.ok()) {
    return call->Finish(status);
  }
  if (auto status = CheckBatch("taken", call->request().taken_size(), batch_max_); !status.ok()) {
    return call->Finish(status);
  }
  const auto context = ContextOf(*call, *session, true);
  if (!context.ok()) return call->Finish(context.status());
  auto args = Decode(call->request());
  if (!args.ok()) return call->Finish(args.status());
  AwaitOp(manager_, call,
          manager_.Allocate(*context, *std::move(args), Reply<core::AllocateResult>(call)));
}

void MemoryService::Acquire(CallOf<v1::AcquireRequest, v1::AcquireResponse> call) {
  const auto session = Authenticate(manager_, call->Metadata(kTokenKey));
  if (!session.ok()) return call->Finish(session.status());
  if (auto status = CheckBatch("handles", call->request().handles_size(), batch_max_);
      !status.ok()) {
    return call->Finish(status);
  }
  const auto context = ContextOf(*call, *session, true);
  if (!context.ok()) return call->Finish(context.status());
  AwaitOp(manager_, call,
          manager_.Acquire(*context, Decode(call->request()), Reply<core::AcquireResult>(call)));
}

void MemoryService::Lookup(CallOf<v1::LookupRequest, v1::LookupResponse> call) {
  const auto session = Authenticate(manager_, call->Metadata(kTokenKey));
  if (!session.ok()) return call->Finish(session.status());
  if (auto status = CheckBatch("keys", call->request().keys_size(), batch_max_); !status.ok()) {
    return call->Finish(status);
  }
  const bool pins = !call->request().no_pin();
  const auto context = ContextOf(*call, *session, pins);
  if (!context.ok()) return call->Finish(context.status());
  AwaitOp(manager_, call,
          manager_.Lookup(*context, Decode(call->request()),
                          [this, call, pins](absl::StatusOr<core::LookupResult> r) {
                            if (!r.ok()) return call->Finish(r.status());
                            call->response().set_epoch(manager_.boot_epoch());
                            Encode(*r, pins, call->response());
                            call->Finish(absl::OkStatus());
                          }));
}

void MemoryService::Swap(CallOf<v1::SwapRequest, v1::SwapResponse> call) {
  const auto session = Authenticate(manager_, call->Metadata(kTokenKey));
  if (!session.ok()) return call->Finish(session.status());
  if (auto status = CheckBatch("handles", call->request().handles_size(), batch_max_);
      !status.ok()) {
    return call->Finish(status);
  }
  const core::CallContext context{.session = *session, .deadline = call->deadline()};
  AwaitOp(manager_, call,
          manager_.Swap(context, Decode(call->request()), Reply<core::SwapResult>(call)));
}

// --- calls that answer at once
// --------------------------------------------------------------------

absl::Status MemoryService::Seal(const v1::SealRequest& request, SessionId session,
                                 v1::SealResponse& out) {
  HMM_RETURN_IF_ERROR(CheckBatch("items", request.items_size(), batch_max_));
  HMM_ASSIGN_OR_RETURN(const auto result, manager_.Seal(session, Decode(request)));
  Encode(result, out);
  return absl::OkStatus();
}

absl::Status MemoryService::Release(const v1::ReleaseRequest& request, SessionId session,
                                    v1::ReleaseResponse& out) {
  if (request.call_id() == 0) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 "call_id is 0; name the call to undo");
  }
  HMM_ASSIGN_OR_RETURN(const std::uint32_t undone,
                       manager_.Release(session, request.call_id(), request.oldest_live_call_id()));
  out.set_undone(undone);
  return absl::OkStatus();
}

absl::Status MemoryService::Prefetch(const v1::PrefetchRequest& request, SessionId session,
                                     v1::PrefetchResponse& out) {
  HMM_RETURN_IF_ERROR(CheckBatch("handles", request.handles_size(), batch_max_));
  HMM_RETURN_IF_ERROR(CheckBatch("keys", request.keys_size(), batch_max_));
  const TimePoint now = std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
  HMM_ASSIGN_OR_RETURN(const core::PrefetchArgs args, Decode(request, now));
  HMM_ASSIGN_OR_RETURN(const auto result, manager_.Prefetch(session, args));
  Encode(result, out);
  return absl::OkStatus();
}

absl::Status MemoryService::Free(const v1::FreeRequest& request, SessionId session,
                                 v1::FreeResponse& out) {
  HMM_RETURN_IF_ERROR(CheckBatch("handles", request.handles_size(), batch_max_));
  HMM_ASSIGN_OR_RETURN(const auto result, manager_.Free(session, DecodeHandles(request.handles())));
  Encode(result, out);
  return absl::OkStatus();
}

absl::Status MemoryService::Describe(const v1::DescribeRequest& request, SessionId session,
                                     v1::DescribeResponse& out) {
  HMM_RETURN_IF_ERROR(CheckBatch("handles", request.handles_size(), batch_max_));
  HMM_RETURN_IF_ERROR(CheckBatch("keys", request.keys_size(), batch_max_));
  if (request.handles_size() > 0 && request.keys_size() > 0) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 "handles and keys at once; Describe takes either");
  }
  const std::vector<std::string> keys(request.keys().begin(), request.keys().end());
  HMM_ASSIGN_OR_RETURN(const auto result,
                       manager_.Describe(session, DecodeHandles(request.handles()), keys));
  for (const absl::StatusOr<core::TensorInfo>& info : result) {
    v1::DescribeResponse::Result& to = *out.add_results();
    if (info.ok()) {
      Encode(*info, manager_, *to.mutable_tensor());
    } else {
      EncodeError(info.status(), *to.mutable_error());
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Service> CreateMemoryService(core::Manager& manager,
                                             const core::ManagerOptions& limits) {
  return std::make_unique<MemoryService>(manager, limits);
}

}  // namespace hmm::daemon
