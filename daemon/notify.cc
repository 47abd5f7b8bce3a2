// SPDX-License-Identifier: Apache-2.0
#include "daemon/notify.h"

#include <systemd/sd-daemon.h>

#include <chrono>
#include <cstdint>

#include "daemon/text.h"

namespace hmm::daemon {
namespace {

// Posts itself; lives in the executor's timers and ends with them.
struct Ping {
  Executor& executor;
  Duration every;
  void operator()() const {
    sd_notify(0, "WATCHDOG=1");
    executor.PostAfter(every, *this);
  }
};

}  // namespace

void NotifyReady(const std::string& status) {
  sd_notify(0, Cat("READY=1\nSTATUS=", status).c_str());
}

void NotifyStopping(const std::string& status) {
  sd_notify(0, Cat("STOPPING=1\nSTATUS=", status).c_str());
}

void StartWatchdog(Executor& executor) {
  std::uint64_t interval_us = 0;
  if (sd_watchdog_enabled(/*unset_environment=*/0, &interval_us) <= 0) return;
  executor.Post(Ping{executor, std::chrono::microseconds(interval_us / 2)});
}

}  // namespace hmm::daemon
