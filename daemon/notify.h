// SPDX-License-Identifier: Apache-2.0
//
// What systemd is told (sd_notify). Everything is a no-op outside of systemd. Any thread.
#pragma once

#include <string>

#include "base/executor.h"

namespace hmm::daemon {

void NotifyReady(const std::string& status);
void NotifyStopping(const std::string& status);

// Pings the watchdog from timers of the executor, twice in each interval that systemd set, so that
// a ping proves that the core still runs. Nothing happens when no watchdog was asked for.
void StartWatchdog(Executor& executor);

}  // namespace hmm::daemon
