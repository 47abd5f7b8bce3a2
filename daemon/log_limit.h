// SPDX-License-Identifier: Apache-2.0
//
// Bounds how often one kind of line is logged: peers cause them at will. One thread.
#pragma once

#include <chrono>

namespace hmm::daemon {

class LogLimit {
 public:
  // True at most once in five seconds.
  bool Allow() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return false;
    next_ = now + std::chrono::seconds(5);
    return true;
  }

 private:
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace hmm::daemon
