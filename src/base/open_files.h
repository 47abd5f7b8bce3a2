// SPDX-License-Identifier: Apache-2.0
//
// How far the limit of open files goes in hmmd. Of the daemon, which opens them, and of the doctor,
// which foretells it. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hmm {

// What the daemon opens before anybody attaches, beside the `open` it starts with: queues,
// listeners, tiers, their files, the ring; of each tenant two listeners with a spare each, and a
// lock.
constexpr std::uint64_t OpenFilesOfDaemon(std::uint64_t open, std::uint64_t tiers,
                                          std::uint64_t tenants) {
  return open + 38 + 2 * tiers + 5 * tenants;
}

// Sessions that the limit has room for, of which `own` are the daemon's: a session takes five
// (socket, pidfd, page, bell, and its share of the tenant's files), and as many stay for calls.
constexpr std::uint64_t SessionsWithin(std::uint64_t limit, std::uint64_t own) {
  return std::max<std::uint64_t>((limit - std::min(limit, own)) / 10, 2);
}

}  // namespace hmm
