// SPDX-License-Identifier: Apache-2.0
//
// Knows whether this process is a fork child of the one that made an object. gRPC, threads and the
// MADV_DONTFORK mappings do not survive a fork, so a child must touch none of them.
//
// Any thread. Forked() is two loads: it stands on the path of TryPin.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

namespace hmm::client_internal {

// The one static of the library. A fork handler takes no argument, so what it changes must be
// reachable without one; it counts forks of the process, which is a fact about the process and not
// about any client in it.
extern std::atomic<std::uint64_t> fork_generation;

// Part of every object that a child must leave alone. Remembers the process it was made in.
class ForkGuard {
 public:
  ForkGuard();
  bool Forked() const { return fork_generation.load(std::memory_order_relaxed) != generation_; }

 private:
  std::uint64_t generation_;
};

// FAILED_PRECONDITION/FORKED.
absl::Status ForkedError();

// Whether this process was forked from one in which a client had been made. gRPC does not survive
// that (child and parent would share its epoll set), so no client can be made here before an exec.
inline bool DescendsFromClient() { return fork_generation.load(std::memory_order_relaxed) != 0; }

}  // namespace hmm::client_internal
