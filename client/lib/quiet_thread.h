// SPDX-License-Identifier: Apache-2.0
//
// The library's threads in somebody else's process. Any thread; the mask of the one that calls is
// as before when it returns.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"

namespace hmm::client_internal {

// A thread that takes none of the application's signals; the caller's to join or detach. Not
// joinable, and `body` gone unused, when the system has none left.
template <typename Body>
std::thread StartQuietThread(Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  HMM_CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
  std::thread thread;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error&) {
  }
  HMM_CHECK(pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
  return thread;
}

}  // namespace hmm::client_internal
