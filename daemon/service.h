// SPDX-License-Identifier: Apache-2.0
//
// The services. Each decodes, calls the manager, encodes. Which of them a server has, and on
// which thread the manager is called, is decided in daemon.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/executor.h"
#include "hmm/manager.h"

namespace grpc {
class ServerBuilder;
}

namespace hmm::daemon {

struct CallScope;

class Service {
 public:
  virtual ~Service() = default;
  // Before the server is built.
  virtual void Register(grpc::ServerBuilder& builder) = 0;
  // Arms all methods. Once, on the queue's thread or before it runs.
  virtual void Serve(CallScope& scope) = 0;
  // The server stops: ends calls that would go on for ever. On the queue's thread.
  virtual void EndStreams() {}
};

// The way from a server's queue to the manager and back. On the tenant server both are one thread
// and everything runs inline; on the admin server work hops to the core and its result hops back.
class CoreGate {
 public:
  using Work = absl::AnyInvocable<absl::Status()>;
  using Then = absl::AnyInvocable<void(const absl::Status&)>;

  static CoreGate Inline(Executor& core) { return CoreGate(core, core, true); }
  static CoreGate Hop(Executor& core, Executor& home) { return CoreGate(core, home, false); }

  void Run(Work work, Then then) const;
  void ToCore(Task task) const;
  void ToHome(Task task) const;
  // Never inline: others get their turn first.
  void LaterOnCore(Task task) const { core_->Post(std::move(task)); }
  void AfterOnCore(Duration delay, Task task) const { core_->PostAfter(delay, std::move(task)); }
  void AfterOnHome(Duration delay, Task task) const { home_->PostAfter(delay, std::move(task)); }

 private:
  CoreGate(Executor& core, Executor& home, bool inline_calls)
      : core_(&core), home_(&home), inline_(inline_calls) {}
  Executor* core_;
  Executor* home_;
  bool inline_;
};

// State of the whole daemon that health answers; written and read on the core's thread.
struct HealthState {
  bool stopping = false;
};

std::unique_ptr<Service> CreateMemoryService(core::Manager& manager,
                                             const core::ManagerOptions& limits);
std::unique_ptr<Service> CreateRegionService(core::Manager& manager,
                                             const core::ManagerOptions& limits);
// `tenant_view`: needs a session token and shows that tenant alone. `watchers_max`: fewer than
// there may be connections, so that who watches keeps nobody from looking or steering.
std::unique_ptr<Service> CreateInspectionService(core::Manager& manager, CoreGate gate,
                                                 bool tenant_view, std::size_t watchers_max);
std::unique_ptr<Service> CreateAdminService(core::Manager& manager, CoreGate gate);
std::unique_ptr<Service> CreateHealthService(core::Manager& manager, const HealthState& state,
                                             CoreGate gate);
// `services`: full names of those of the same server.
std::unique_ptr<Service> CreateReflectionService(std::vector<std::string> services);

}  // namespace hmm::daemon
