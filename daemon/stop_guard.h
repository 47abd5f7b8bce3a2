// SPDX-License-Identifier: Apache-2.0
//
// The end of a stop that does not end: a read or write that the kernel never answers cannot be
// taken back, and the thread in it cannot be joined. Flash is a cache that the next start empties,
// so leaving such copies loses nothing; being stuck would hold up whoever stops the daemon.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "copy/under_way.h"

namespace hmm::daemon {

class StopGuard {
 public:
  // Ends the process with status 0 if the object lives longer than `patience`, and logs what was
  // under way. 0 because it was stopped as asked: a service manager has nothing to repair.
  // `under_way` outlives it.
  StopGuard(Duration patience, const copy::UnderWay& under_way);
  ~StopGuard();
  StopGuard(const StopGuard&) = delete;
  StopGuard& operator=(const StopGuard&) = delete;

 private:
  const Duration patience_;
  const copy::UnderWay& under_way_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace hmm::daemon
