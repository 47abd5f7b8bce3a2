// SPDX-License-Identifier: Apache-2.0
//
// The daemon as an object: main.cc and tests/rpc start it and stop it.
//
//   main thread      Start, Stop
//   executor thread  tenant server's queue: manager, tiers, mover
//   io thread        sockets, sessions, timers (Asio)
//   admin thread     admin server's queue; asleep while nobody is connected there
//   worker threads   copies of memory, and of flash without io_uring
//   ring thread      copies from and to flash (io_uring)
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "copy/copier.h"
#include "copy/fragment_copier.h"
#include "copy/under_way.h"
#include "daemon/calibration_file.h"
#include "daemon/config.h"
#include "daemon/flash_engine.h"
#include "daemon/listen.h"
#include "daemon/server.h"
#include "daemon/service.h"
#include "daemon/sessions.h"
#include "hmm/manager.h"

namespace hmm::daemon {

// Connections to each socket, as the file descriptor limit allows.
struct ConnectionBudget {
  std::size_t admin = 0;
  std::size_t rpc = 0;
  std::size_t sessions = 0;
};

class Daemon {
 public:
  // Returns when clients can connect: the pools are reserved before the sockets appear. `config`
  // has passed CheckConfig. Errors: FAILED_PRECONDITION/EXISTS when another daemon has the
  // directory; what tiers and sockets say.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Config& config);
  ~Daemon();  // stops

  // Drains, lets calls under way end (config.stop_timeout at most), removes the sockets, and waits
  // for the copies, which a medium may hold up without end (stop_guard.h). Idempotent.
  void Stop();
  // What has been handed to the copiers and has not ended. Any thread, also while Stop runs.
  const copy::UnderWay& under_way() const { return under_way_; }

  Executor& executor() { return tenant_->executor(); }

 private:
  explicit Daemon(const Config& config);

  absl::Status Claim();         // 1. directory, lock, systemd's sockets
  void CreateServers();         // 2. queues, so that the core has its executor
  absl::Status CreateCore();    // 3. copier, tiers, manager
  absl::Status StartServers();  // 4. services, threads
  void KnowLinks();             // 5. what was measured of the links, or a measurement
  absl::Status OpenSockets();   // 6. clients come
  absl::StatusOr<std::unique_ptr<tier::Tier>> CreateTier(const TierConfig& tier, TierId id,
                                                         const FlashEngine& engine) const;
  absl::StatusOr<Listener> Open(const char* name, int type, unsigned mode);
  absl::Status OpenTenantSockets(const TenantConfig& tenant);
  // Runs on the thread and waits for it.
  void OnExecutor(Task task);
  void OnIo(Task task);
  // Measures, before there are clients. A failure is a warning: estimates are then guesses.
  void Calibrate();

  const Config config_;
  ConnectionBudget budget_;
  HealthState health_;  // the executor's
  SteadyClock clock_;
  copy::UnderWay under_way_;

  // In the order of their lives: what stands below may use what stands above.
  std::optional<LockFile> lock_;
  std::vector<LockFile> tenant_locks_;  // of directories outside ours
  std::map<std::string, share::UniqueFd> adopted_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> io_work_;
  std::unique_ptr<RpcServer> tenant_;
  std::unique_ptr<RpcServer> admin_;
  std::optional<CalibrationFile> calibration_;
  std::unique_ptr<core::Manager> manager_;
  // Ends before the manager does: its copies under way touch the manager's tiers. By then the
  // executor runs nothing, so that nobody submits to it.
  std::unique_ptr<copy::Copier> copier_;
  std::unique_ptr<copy::FragmentCopier> fragments_;
  std::unique_ptr<Sessions> sessions_;
  std::vector<Listener> listeners_;
  std::thread io_thread_;
  bool stopped_ = false;
};

}  // namespace hmm::daemon
