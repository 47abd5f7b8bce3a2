// SPDX-License-Identifier: Apache-2.0
//
// grpc.health.v1.Health: "" (the daemon), "hmm.v1.Memory" (not while draining), "hmm.tier.<name>"
// (online and as configured). Needs no token.
#include <grpcpp/server_builder.h>

#include <string>
#include <string_view>

#include "base/status.h"
#include "daemon/call.h"
#include "daemon/service.h"
#include "daemon/text.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace hmm::daemon {
namespace {

namespace health = grpc::health::v1;
constexpr std::string_view kTierPrefix = "hmm.tier.";

class HealthService final : public Service {
 public:
  HealthService(core::Manager& manager, const HealthState& state, CoreGate gate)
      : manager_(manager), state_(state), gate_(gate) {}

  void Register(grpc::ServerBuilder& builder) override { builder.RegisterService(&service_); }

  void Serve(CallScope& scope) override {
    grpc::ServerCompletionQueue* const queue = scope.queue;
    check_.scope = &scope;
    check_.request = [this, queue](auto* context, auto* in, auto* writer, void* tag) {
      service_.RequestCheck(context, in, writer, queue, queue, tag);
    };
    check_.handle = [this](auto* call) {
      gate_.Run([this, call] { return Check(call->request().service(), call->response()); },
                [call](const absl::Status& status) { call->Finish(status); });
    };
    check_.ArmAll();
  }

 private:
  absl::Status Check(std::string_view service, health::HealthCheckResponse& out) const {
    bool serving = !state_.stopping;
    if (service == "hmm.v1.Memory") {
      serving = serving && !manager_.draining();
    } else if (service.starts_with(kTierPrefix)) {
      const std::string_view name = service.substr(kTierPrefix.size());
      bool found = false;
      for (const core::TierInfo& tier : manager_.ListTiers(std::nullopt)) {
        if (tier.name != name) continue;
        found = true;
        serving = serving && tier.state == tier::TierState::kOnline;
      }
      if (!found) return Unknown(service);
    } else if (!service.empty() && service != "hmm.v1.Inspection" && service != "hmm.v1.Admin") {
      return Unknown(service);
    }
    out.set_status(serving ? health::HealthCheckResponse::SERVING
                           : health::HealthCheckResponse::NOT_SERVING);
    return absl::OkStatus();
  }

  static absl::Status Unknown(std::string_view service) {
    return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
                 Cat("no service '", service, "'; ask for \"\", hmm.v1.Memory or hmm.tier.<name>"));
  }

  core::Manager& manager_;
  const HealthState& state_;
  const CoreGate gate_;
  health::Health::AsyncService service_;
  Method<health::HealthCheckRequest, health::HealthCheckResponse> check_;
};

}  // namespace

std::unique_ptr<Service> CreateHealthService(core::Manager& manager, const HealthState& state,
                                             CoreGate gate) {
  return std::make_unique<HealthService>(manager, state, gate);
}

}  // namespace hmm::daemon
