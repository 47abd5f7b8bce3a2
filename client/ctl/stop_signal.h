// SPDX-License-Identifier: Apache-2.0
//
// Turns SIGINT and SIGTERM into a stop_token for the life of the object: work in hand ends, pins
// are given back. A second signal ends the process at once. REQUIRES: made before other threads
// start (they inherit the blocked signals); one at a time.
#pragma once

#include <signal.h>

#include <stop_token>
#include <thread>

namespace hmm::ctl {

class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  // Restores the signals as they were before, for a child about to be started.
  const sigset_t& previous_mask() const { return previous_; }

 private:
  void Wait();

  sigset_t signals_{};
  sigset_t previous_{};
  int signal_fd_ = -1;
  int end_fd_ = -1;
  std::stop_source source_;
  std::thread thread_;
};

}  // namespace hmm::ctl
