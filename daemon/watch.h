// SPDX-License-Identifier: Apache-2.0
//
// Inspection.Watch: events as they happen, for any number of watchers up to a bound, none of which
// is waited for.
//
//   core's thread    watcher: its place in the ring of events (hmm/events.h), its filter
//        | a batch, when the last one has left      ^ left
//   home's thread    stream: one message under way at most
//
// A watcher whose place the ring has overwritten is dropped with SLOW_WATCHER. If it does not read
// even that, its stream is broken off after a while.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "daemon/service.h"
#include "daemon/stream.h"
#include "hmm/events.h"
#include "hmm/manager.h"
#include "hmm/v1/inspection.grpc.pb.h"

namespace hmm::daemon {

using WatchStream = Stream<v1::WatchRequest, v1::WatchResponse>;
using WatchStreamPtr = std::shared_ptr<WatchStream>;

class WatchHub {
 public:
  WatchHub(core::Manager& manager, CoreGate gate, bool tenant_view, std::size_t watchers_max);
  // REQUIRES: neither thread runs any more.
  ~WatchHub();

  // A call that just arrived. On the home thread.
  void Serve(WatchStreamPtr stream);
  // The server stops. On the home thread.
  void End();

 private:
  struct Watcher {
    std::uint64_t id = 0;
    WatchStreamPtr stream;  // touched on the home thread alone
    std::optional<std::string> token;
    std::uint64_t cursor = 0;  // last event that it took, or that was not for it
    std::array<bool, 8> types{};
    std::optional<TierId> tier;
    std::optional<TenantId> tenant;
    std::string tier_name;
    Duration occupancy{};  // 0: none
    bool sample_due = false;
    bool writing = false;
    bool greeted = false;  // the first message is on its way
  };
  using WatcherPtr = std::shared_ptr<Watcher>;

  // On the core's thread.
  void Add(const WatcherPtr& watcher);
  void Remove(std::uint64_t id);
  absl::Status Configure(Watcher& watcher) const;
  absl::Status ConfigureTypes(Watcher& watcher) const;
  void Pump(const WatcherPtr& watcher);
  bool Alive(const Watcher& watcher) const;
  bool Passes(const Watcher& watcher, const core::Event& event) const;
  bool Fill(Watcher& watcher, v1::WatchResponse& out) const;
  void Drop(const WatcherPtr& watcher, const absl::Status& why);
  void SampleLater(const WatcherPtr& watcher);
  std::optional<SessionId> ViewerOf(const Watcher& watcher) const;

  core::Manager& manager_;
  const CoreGate gate_;
  const bool tenant_view_;
  const std::size_t watchers_max_;
  // Core's.
  std::map<std::uint64_t, WatcherPtr> watchers_;
  std::uint64_t next_ = 1;
  std::optional<core::EventBus::Subscription> subscription_;
  // Home's.
  std::set<WatchStreamPtr> streams_;
  bool ending_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace hmm::daemon
