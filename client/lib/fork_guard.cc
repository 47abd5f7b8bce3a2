// SPDX-License-Identifier: Apache-2.0
#include "client/lib/fork_guard.h"

#include <pthread.h>

#include "base/check.h"
#include "base/status.h"

namespace hmm::client_internal {

std::atomic<std::uint64_t> fork_generation{0};

namespace {

// Only an atomic add: async-signal-safe, as a child of a threaded process requires.
void InChild() { fork_generation.fetch_add(1, std::memory_order_relaxed); }

bool Register() {
  HMM_CHECK(pthread_atfork(nullptr, nullptr, &InChild) == 0);
  return true;
}

}  // namespace

ForkGuard::ForkGuard() {
  [[maybe_unused]] static const bool registered = Register();
  generation_ = fork_generation.load(std::memory_order_relaxed);
}

absl::Status ForkedError() {
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kForked,
               "the process was forked from one that had connected, which gRPC does not survive; "
               "fork before the first Connect, or exec in the child");
}

}  // namespace hmm::client_internal
