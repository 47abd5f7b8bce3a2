// SPDX-License-Identifier: Apache-2.0
//
// A bounded wait for what another thread or process does: asks again and again, with a short pause
// on a clock, until it holds or the bound has passed. Not a timed assertion: the bound is there to
// fail a test that would hang.
#pragma once

#include <poll.h>

#include <chrono>

namespace hmm::testing {

template <typename Condition>
bool WaitUntil(Condition condition, std::chrono::milliseconds bound = std::chrono::seconds(30)) {
  const auto end = std::chrono::steady_clock::now() + bound;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    ::poll(nullptr, 0, 2);
  }
  return true;
}

}  // namespace hmm::testing
