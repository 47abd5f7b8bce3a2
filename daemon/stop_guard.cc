// SPDX-License-Identifier: Apache-2.0
#include "daemon/stop_guard.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "daemon/text.h"

namespace hmm::daemon {
namespace {

// The objects that other threads are in are left as they are: no destructors. Sockets are gone
// since the stop began; locks go with the process.
[[noreturn]] void End(Duration patience, const copy::UnderWay& under_way) {
  std::string stuck;
  for (const auto& [tier, copies] : under_way.Copies()) {
    stuck += Cat(stuck.empty() ? "" : ", ", tier, ": ", copies, copies == 1 ? " copy" : " copies");
  }
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
  if (stuck.empty()) {
    spdlog::warn("not stopped after {} ms, no copy is under way; ended as it is", ms);
  } else {
    spdlog::error("stuck after {} ms: {}; ended without them, which loses nothing", ms, stuck);
  }
  spdlog::default_logger()->flush();
  std::_Exit(0);
}

}  // namespace

StopGuard::StopGuard(Duration patience, const copy::UnderWay& under_way)
    : patience_(patience), under_way_(under_way), thread_([this] {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, patience_, [this] { return ended_; })) {
          End(patience_, under_way_);
        }
      }) {}

StopGuard::~StopGuard() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace hmm::daemon
