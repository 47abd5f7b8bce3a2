// SPDX-License-Identifier: Apache-2.0
//
// hmm.v1.Inspection: looks, never changes. On the tenant server it shows the caller's tenant alone.
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "daemon/authenticate.h"
#include "daemon/call.h"
#include "daemon/convert.h"
#include "daemon/page_token.h"
#include "daemon/service.h"
#include "daemon/text.h"
#include "daemon/topology_convert.h"
#include "daemon/version.h"
#include "daemon/watch.h"
#include "hmm/v1/inspection.grpc.pb.h"

namespace hmm::daemon {
namespace {

constexpr std::size_t kPageDefault = 1000;
constexpr std::size_t kPageMax = 10000;
// A page is gathered in slices, between which others are served and the thread rests: a slice costs
// them some 100 us, and a thread that never sleeps would be made to wait by the system's scheduler.
constexpr std::size_t kSliceTensors = 128;
constexpr std::size_t kSliceLooks = 4096;
constexpr Duration kSliceRest = std::chrono::milliseconds(1);
// Where one thread serves tenants' calls and sends their pages, a page is short: sending one of
// 1000 keeps a call waiting for half a millisecond.
constexpr std::size_t kTenantPageMax = 256;
constexpr std::size_t kPageLooks = 1u << 18;  // then it is sent as it is
constexpr std::size_t kMovesDefault = 16;
constexpr std::size_t kMovesMax = 256;

using Viewer = std::optional<SessionId>;

class InspectionService final : public Service {
 public:
  InspectionService(core::Manager& manager, CoreGate gate, bool tenant_view,
                    std::size_t watchers_max)
      : manager_(manager),
        gate_(gate),
        tenant_view_(tenant_view),
        watches_(manager, gate, tenant_view, watchers_max) {}

  void Register(grpc::ServerBuilder& builder) override { builder.RegisterService(&service_); }
  void Serve(CallScope& scope) override;
  void EndStreams() override { watches_.End(); }

 private:
  // On the core's thread.
  absl::Status GetStatus(const v1::GetStatusRequest& request, Viewer viewer,
                         v1::GetStatusResponse& out);
  absl::Status ListTiers(const v1::ListTiersRequest& request, Viewer viewer,
                         v1::ListTiersResponse& out);
  absl::Status Explain(const v1::ExplainRequest& request, Viewer viewer, v1::ExplainResponse& out);
  absl::Status GetHealth(const v1::GetHealthRequest& request, Viewer viewer,
                         v1::GetHealthResponse& out);
  absl::Status ListSessions(const v1::ListSessionsRequest& request, Viewer viewer,
                            v1::ListSessionsResponse& out);

  // A page of tensors: gathered slice by slice, then sent.
  struct Listing {
    Call<v1::ListTensorsRequest, v1::ListTensorsResponse>* call = nullptr;
    std::optional<std::string> token;
    core::TensorFilter filter;
    std::string query;
    std::uint64_t cursor = 0;
    std::size_t limit = 0;
    std::size_t looks = kPageLooks;
  };
  void ListTensors(Call<v1::ListTensorsRequest, v1::ListTensorsResponse>* call);
  absl::StatusOr<Viewer> ViewerOf(const std::optional<std::string>& token) const;
  absl::Status Begin(Listing& listing) const;
  void ListSlice(std::shared_ptr<Listing> listing);
  absl::StatusOr<bool> Gather(Listing& listing) const;  // true: the page is complete
  absl::Status GetTopology(const v1::GetTopologyRequest& request, Viewer viewer,
                           v1::GetTopologyResponse& out);

  template <typename Request, typename Response>
  void Answer(Call<Request, Response>* call,
              absl::Status (InspectionService::*verb)(const Request&, Viewer, Response&)) {
    std::optional<std::string> token;
    if (const auto given = call->Metadata(kTokenKey)) token.emplace(*given);
    // The call is ours until Finish: filling its response on the core's thread races with nobody.
    gate_.Run(
        [this, call, verb, token = std::move(token)]() -> absl::Status {
          HMM_ASSIGN_OR_RETURN(const Viewer viewer, ViewerOf(token));
          call->response().set_epoch(manager_.boot_epoch());
          return (this->*verb)(call->request(), viewer, call->response());
        },
        [call](const absl::Status& status) { call->Finish(status); });
  }

  core::Manager& manager_;
  const CoreGate gate_;
  const bool tenant_view_;
  WatchHub watches_;
  v1::Inspection::AsyncService service_;
  Method<v1::GetStatusRequest, v1::GetStatusResponse> get_status_;
  Method<v1::ListTiersRequest, v1::ListTiersResponse> list_tiers_;
  Method<v1::ListTensorsRequest, v1::ListTensorsResponse> list_tensors_;
  Method<v1::ListSessionsRequest, v1::ListSessionsResponse> list_sessions_;
  Method<v1::ExplainRequest, v1::ExplainResponse> explain_;
  Method<v1::GetHealthRequest, v1::GetHealthResponse> get_health_;
  StreamMethod<v1::WatchRequest, v1::WatchResponse> watch_;
  Method<v1::GetTopologyRequest, v1::GetTopologyResponse> get_topology_;
};

void InspectionService::Serve(CallScope& scope) {
  const auto arm_with = [&](auto& method, auto request, auto handle) {
    ArmMethod(scope, service_, method, request, handle);
  };
  const auto arm = [&](auto& method, auto request, auto verb) {
    arm_with(method, request, [this, verb](auto* call) { this->Answer(call, verb); });
  };
  using Async = v1::Inspection::AsyncService;
  arm(get_status_, &Async::RequestGetStatus, &InspectionService::GetStatus);
  arm(list_tiers_, &Async::RequestListTiers, &InspectionService::ListTiers);
  arm(explain_, &Async::RequestExplain, &InspectionService::Explain);
  arm(get_health_, &Async::RequestGetHealth, &InspectionService::GetHealth);
  arm_with(list_tensors_, &Async::RequestListTensors, [this](auto* call) { ListTensors(call); });
  arm_with(watch_, &Async::RequestWatch,
           [this](WatchStreamPtr stream) { watches_.Serve(std::move(stream)); });
  arm(list_sessions_, &Async::RequestListSessions, &InspectionService::ListSessions);
  arm(get_topology_, &Async::RequestGetTopology, &InspectionService::GetTopology);
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

absl::StatusOr<Viewer> InspectionService::ViewerOf(const std::optional<std::string>& token) const {
  if (!tenant_view_) return Viewer();
  HMM_ASSIGN_OR_RETURN(const SessionId session, Authenticate(manager_, token));
  return Viewer(session);
}

void InspectionService::ListTensors(Call<v1::ListTensorsRequest, v1::ListTensorsResponse>* call) {
  auto listing = std::make_shared<Listing>();
  listing->call = call;
  if (const auto token = call->Metadata(kTokenKey)) listing->token.emplace(*token);
  gate_.ToCore([this, listing] {
    if (const absl::Status status = Begin(*listing); !status.ok()) {
      return gate_.ToHome([listing, status] { listing->call->Finish(status); });
    }
    // Who asks for page after page is no reason to rest less.
    if (listing->cursor != 0) {
      return gate_.AfterOnCore(kSliceRest, [this, listing] { ListSlice(listing); });
    }
    ListSlice(listing);
  });
}

absl::Status InspectionService::Begin(Listing& listing) const {
  const v1::ListTensorsRequest& request = listing.call->request();
  listing.call->response().set_epoch(manager_.boot_epoch());
  HMM_ASSIGN_OR_RETURN(const Viewer viewer, ViewerOf(listing.token));
  HMM_ASSIGN_OR_RETURN(listing.filter, Decode(request));
  listing.limit = request.page_size() == 0 ? kPageDefault
                                           : std::min<std::size_t>(request.page_size(), kPageMax);
  if (tenant_view_) listing.limit = std::min(listing.limit, kTenantPageMax);
  v1::ListTensorsRequest query = request;
  query.clear_page_size();
  query.clear_page_token();
  listing.query = query.SerializeAsString();
  if (viewer.has_value()) {
    // On the tenant socket the tenant is part of the query, said or not.
    HMM_ASSIGN_OR_RETURN(const TenantId tenant, manager_.TenantOf(viewer, request.tenant()));
    listing.query += Cat("/", tenant);
  }
  if (request.page_token().empty()) return absl::OkStatus();
  HMM_ASSIGN_OR_RETURN(listing.cursor,
                       ReadPageToken(request.page_token(), listing.query, manager_.boot_epoch()));
  return absl::OkStatus();
}

void InspectionService::ListSlice(std::shared_ptr<Listing> listing) {
  const absl::StatusOr<bool> complete = Gather(*listing);
  if (complete.ok() && !*complete) {
    return gate_.AfterOnCore(kSliceRest, [this, listing] { ListSlice(listing); });
  }
  gate_.ToHome([listing, status = complete.status()] { listing->call->Finish(status); });
}

absl::StatusOr<bool> InspectionService::Gather(Listing& listing) const {
  v1::ListTensorsResponse& out = listing.call->response();
  // Anew for each slice: the session may have ended meanwhile.
  HMM_ASSIGN_OR_RETURN(const Viewer viewer, ViewerOf(listing.token));
  const std::size_t left = listing.limit - static_cast<std::size_t>(out.tensors_size());
  const std::size_t looks = std::min(kSliceLooks, listing.looks);
  HMM_ASSIGN_OR_RETURN(const core::TensorPage page,
                       manager_.ListTensors(viewer, listing.filter, listing.cursor,
                                            std::min(left, kSliceTensors), looks));
  for (const core::TensorInfo& tensor : page.tensors) {
    Encode(tensor, manager_, *out.add_tensors());
  }
  listing.cursor = page.next;
  listing.looks -= looks;
  if (page.next == 0) return true;
  if (listing.looks > 0 && static_cast<std::size_t>(out.tensors_size()) < listing.limit)
    return false;
  out.set_next_page_token(MakePageToken(listing.query, manager_.boot_epoch(), page.next));
  return true;
}

absl::Status InspectionService::Explain(const v1::ExplainRequest& request, Viewer viewer,
                                        v1::ExplainResponse& out) {
  if ((request.handle() != 0) == !request.key().empty()) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 "give a handle or a key, one of them");
  }
  const std::size_t moves = request.moves_max() == 0
                                ? kMovesDefault
                                : std::min<std::size_t>(request.moves_max(), kMovesMax);
  HMM_ASSIGN_OR_RETURN(
      const core::Explanation explanation,
      manager_.Explain(viewer, viewer.has_value() ? std::string_view() : request.tenant(),
                       Handle::Unpack(request.handle()), request.key(), moves));
  Encode(explanation, manager_, out);
  // Whose call it was that needed room is another tenant's business.
  for (v1::MoveRecord& move : *out.mutable_moves()) {
    if (viewer.has_value()) move.clear_for_session();
  }
  return absl::OkStatus();
}

absl::Status InspectionService::GetHealth(const v1::GetHealthRequest& request, Viewer /*viewer*/,
                                          v1::GetHealthResponse& out) {
  HMM_ASSIGN_OR_RETURN(const std::vector<core::TierHealth> tiers,
                       manager_.GetHealth(request.tier()));
  out.set_serving(!manager_.draining());
  for (const core::TierHealth& tier : tiers) Encode(tier, *out.add_tiers());
  return absl::OkStatus();
}

absl::Status InspectionService::ListSessions(const v1::ListSessionsRequest& /*request*/,
                                             Viewer viewer, v1::ListSessionsResponse& out) {
  for (const core::SessionStatus& session : manager_.ListSessions(viewer)) {
    Encode(session, *out.add_sessions());
  }
  return absl::OkStatus();
}

absl::Status InspectionService::GetTopology(const v1::GetTopologyRequest& /*request*/,
                                            Viewer /*viewer*/, v1::GetTopologyResponse& out) {
  Encode(manager_.GetTopology(), manager_, out);
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Service> CreateInspectionService(core::Manager& manager, CoreGate gate,
                                                 bool tenant_view, std::size_t watchers_max) {
  return std::make_unique<InspectionService>(manager, gate, tenant_view, watchers_max);
}

}  // namespace hmm::daemon
