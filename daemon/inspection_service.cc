// SPDX-License-Identifier: Apache-2.0
//
// hmm.v1.Inspection: looks, never changes. On the tenant server it shows the caller's tenant alone.
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/status.h"
#include "daemon/authenticate.h"
#include "daemon/call.h"
#include "daemon/convert.h"
#include "daemon/service.h"
#include "daemon/text.h"
#include "daemon/version.h"
#include "hmm/v1/inspection.grpc.pb.h"

namespace hmm::daemon {
namespace {

constexpr std::size_t kPageDefault = 1000;
constexpr std::size_t kPageMax = 10000;

using Viewer = std::optional<SessionId>;

class InspectionService final : public Service {
 public:
  InspectionService(core::Manager& manager, CoreGate gate, bool tenant_view)
      : manager_(manager), gate_(gate), tenant_view_(tenant_view) {}

  void Register(grpc::ServerBuilder& builder) override { builder.RegisterService(&service_); }
  void Serve(CallScope& scope) override;

 private:
  // On the core's thread.
  absl::Status GetStatus(const v1::GetStatusRequest& request, Viewer viewer,
                         v1::GetStatusResponse& out);
  absl::Status ListTiers(const v1::ListTiersRequest& request, Viewer viewer,
                         v1::ListTiersResponse& out);
  absl::Status ListTensors(const v1::ListTensorsRequest& request, Viewer viewer,
                           v1::ListTensorsResponse& out);
  absl::Status ListSessions(const v1::ListSessionsRequest& request, Viewer viewer,
                            v1::ListSessionsResponse& out);

  template <typename Request, typename Response>
  void Answer(Call<Request, Response>* call,
              absl::Status (InspectionService::*verb)(const Request&, Viewer, Response&)) {
    std::optional<std::string> token;
    if (const auto given = call->Metadata(kTokenKey)) token.emplace(*given);
    // The call is ours until Finish: filling its response on the core's thread races with nobody.
    gate_.Run(
        [this, call, verb, token = std::move(token)]() -> absl::Status {
          Viewer viewer;
          if (tenant_view_) {
            HMM_ASSIGN_OR_RETURN(viewer, Authenticate(manager_, token));
          }
          call->response().set_epoch(manager_.boot_epoch());
          return (this->*verb)(call->request(), viewer, call->response());
        },
        [call](const absl::Status& status) { call->Finish(status); });
  }

  core::Manager& manager_;
  const CoreGate gate_;
  const bool tenant_view_;
  v1::Inspection::AsyncService service_;
  Method<v1::GetStatusRequest, v1::GetStatusResponse> get_status_;
  Method<v1::ListTiersRequest, v1::ListTiersResponse> list_tiers_;
  Method<v1::ListTensorsRequest, v1::ListTensorsResponse> list_tensors_;
  Method<v1::ListSessionsRequest, v1::ListSessionsResponse> list_sessions_;
};

void InspectionService::Serve(CallScope& scope) {
  grpc::ServerCompletionQueue* const queue = scope.queue;
  const auto arm = [&](auto& method, auto request, auto verb) {
    method.scope = &scope;
    method.request = [this, queue, request](auto* context, auto* in, auto* writer, void* tag) {
      (service_.*request)(context, in, writer, queue, queue, tag);
    };
    method.handle = [this, verb](auto* call) { Answer(call, verb); };
    method.ArmAll();
  };
  using Async = v1::Inspection::AsyncService;
  arm(get_status_, &Async::RequestGetStatus, &InspectionService::GetStatus);
  arm(list_tiers_, &Async::RequestListTiers, &InspectionService::ListTiers);
  arm(list_tensors_, &Async::RequestListTensors, &InspectionService::ListTensors);
  arm(list_sessions_, &Async::RequestListSessions, &InspectionService::ListSessions);
}

absl::Status InspectionService::GetStatus(const v1::GetStatusRequest& /*request*/, Viewer viewer,
                                          v1::GetStatusResponse& out) {
  Encode(manager_.GetStatus(viewer), out);
  out.set_epoch(manager_.boot_epoch());
  out.set_version(kVersion);
  return absl::OkStatus();
}

absl::Status InspectionService::ListTiers(const v1::ListTiersRequest& /*request*/, Viewer viewer,
                                          v1::ListTiersResponse& out) {
  for (const core::TierInfo& tier : manager_.ListTiers(viewer)) Encode(tier, *out.add_tiers());
  return absl::OkStatus();
}

absl::Status InspectionService::ListTensors(const v1::ListTensorsRequest& request, Viewer viewer,
                                            v1::ListTensorsResponse& out) {
  std::uint64_t cursor = 0;
  if (!request.page_token().empty() && !absl::SimpleAtoi(request.page_token(), &cursor)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 "page_token is not one of ours; pass next_page_token as it came");
  }
  const std::size_t limit = request.page_size() == 0
                                ? kPageDefault
                                : std::min<std::size_t>(request.page_size(), kPageMax);
  HMM_ASSIGN_OR_RETURN(const core::TensorPage page,
                       manager_.ListTensors(viewer, request.tier(), cursor, limit));
  for (const core::TensorInfo& tensor : page.tensors) {
    Encode(tensor, manager_, *out.add_tensors());
  }
  if (page.next != 0) out.set_next_page_token(Cat(page.next));
  return absl::OkStatus();
}

absl::Status InspectionService::ListSessions(const v1::ListSessionsRequest& /*request*/,
                                             Viewer viewer, v1::ListSessionsResponse& out) {
  for (const core::SessionStatus& session : manager_.ListSessions(viewer)) {
    Encode(session, *out.add_sessions());
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Service> CreateInspectionService(core::Manager& manager, CoreGate gate,
                                                 bool tenant_view) {
  return std::make_unique<InspectionService>(manager, gate, tenant_view);
}

}  // namespace hmm::daemon
