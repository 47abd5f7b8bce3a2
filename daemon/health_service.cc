// SPDX-License-Identifier: Apache-2.0
//
// grpc.health.v1.Health: "" (the daemon), "hmm.v1.Memory" (not while draining), "hmm.tier.<name>"
// (online and as configured). Needs no token. Watch looks ten times a second and tells of changes.
#include <grpcpp/server_builder.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "daemon/call.h"
#include "daemon/service.h"
#include "daemon/stream.h"
#include "daemon/text.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace hmm::daemon {
namespace {

namespace health = grpc::health::v1;
constexpr std::string_view kTierPrefix = "hmm.tier.";
constexpr std::size_t kWatchersMax = 256;
constexpr Duration kLookEvery = std::chrono::milliseconds(100);

using HealthStream = Stream<health::HealthCheckRequest, health::HealthCheckResponse>;
using HealthStreamPtr = std::shared_ptr<HealthStream>;

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
    watch_.scope = &scope;
    watch_.request = [this, queue](auto* context, auto* in, auto* writer, void* tag) {
      service_.RequestWatch(context, in, writer, queue, queue, tag);
    };
    watch_.handle = [this](HealthStreamPtr stream) { Watch(std::move(stream)); };
    watch_.ArmAll();
  }

  void EndStreams() override {
    ending_ = true;
    const auto watchers = std::exchange(watchers_, {});
    for (const auto& [id, watcher] : watchers) {
      watcher->stream->Finish(
          Error(absl::StatusCode::kUnavailable, Reason::kDraining, "the daemon is stopping"));
    }
  }

 private:
  // Home's thread, all of it.
  struct Watcher {
    HealthStreamPtr stream;
    int said = -1;
    bool writing = false;
  };

  void Watch(HealthStreamPtr stream) {
    if (ending_ || watchers_.size() >= kWatchersMax) {
      return stream->Finish(WithRetry(
          Error(absl::StatusCode::kUnavailable, ending_ ? Reason::kDraining : Reason::kQueueFull,
                ending_ ? "the daemon is stopping" : "too many watchers"),
          std::chrono::milliseconds(1000)));
    }
    const std::uint64_t id = next_++;
    auto watcher = std::make_shared<Watcher>();
    watcher->stream = stream;
    watchers_.emplace(id, watcher);
    stream->OnEnd([this, id] { watchers_.erase(id); });
    Look(watcher);
    if (!std::exchange(looking_, true)) LookLater();
  }

  void LookLater() {
    gate_.AfterOnHome(kLookEvery, [this] {
      looking_ = !watchers_.empty();
      if (!looking_) return;
      const auto watchers = watchers_;
      for (const auto& [id, watcher] : watchers) Look(watcher);
      LookLater();
    });
  }

  void Look(const std::shared_ptr<Watcher>& watcher) {
    gate_.ToCore([this, watcher] {
      health::HealthCheckResponse now;
      // A service may come to be: a watch of an unknown one is no error.
      if (!Check(watcher->stream->request().service(), now).ok()) {
        now.set_status(health::HealthCheckResponse::SERVICE_UNKNOWN);
      }
      gate_.ToHome([watcher, now] { Say(watcher, now); });
    });
  }

  static void Say(const std::shared_ptr<Watcher>& watcher, const health::HealthCheckResponse& now) {
    // One that does not read gets the state of then, not all between.
    if (watcher->writing || watcher->said == now.status()) return;
    watcher->said = now.status();
    watcher->writing = true;
    watcher->stream->Write(now, [watcher](bool /*ok*/) { watcher->writing = false; });
  }

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
  StreamMethod<health::HealthCheckRequest, health::HealthCheckResponse> watch_;
  std::map<std::uint64_t, std::shared_ptr<Watcher>> watchers_;
  std::uint64_t next_ = 1;
  bool looking_ = false;
  bool ending_ = false;
};

}  // namespace

std::unique_ptr<Service> CreateHealthService(core::Manager& manager, const HealthState& state,
                                             CoreGate gate) {
  return std::make_unique<HealthService>(manager, state, gate);
}

}  // namespace hmm::daemon
