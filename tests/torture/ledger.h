// SPDX-License-Identifier: Apache-2.0
//
// Everything that must return when clients go: what the daemon's books say, and what the kernel
// says of the daemon's process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace hmm::testing {

struct Ledger {
  struct Tier {
    std::string name;
    std::uint64_t free = 0;  // committed or not
    std::uint64_t creating = 0;
    std::uint64_t resident = 0;
    std::uint64_t moving = 0;
    std::uint64_t reserved = 0;
    std::uint64_t pinned = 0;
    std::uint64_t tensors = 0;
    friend bool operator==(const Tier&, const Tier&) = default;
  };
  std::uint64_t sessions = 0;
  std::uint64_t pins = 0;
  std::uint64_t tensors = 0;
  std::vector<Tier> tiers;
  std::size_t descriptors = 0;     // open in the daemon
  std::size_t memory_files = 0;    // of them memfds: tables, pages, arenas
  std::uint64_t memory_bytes = 0;  // that these files really hold
  friend bool operator==(const Ledger&, const Ledger&) = default;
};
std::ostream& operator<<(std::ostream& out, const Ledger& ledger);

// Sends all that can go to the bottom and gives back the memory it had, so that two looks at the
// same tensors are equal, and reads.
Ledger Settle(const std::string& dir, pid_t daemon);

}  // namespace hmm::testing
