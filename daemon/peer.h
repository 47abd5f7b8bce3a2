// SPDX-License-Identifier: Apache-2.0
//
// Who is at the other end of a unix socket. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "share/memory_file.h"

namespace hmm::daemon {

// As the kernel noted them when the peer connected.
struct Peer {
  std::uint32_t uid = 0;
  std::uint32_t pid = 0;
};
absl::StatusOr<Peer> GetPeer(int socket);

// The uid that stands for "not representable here" (user namespaces): whoever shows up with it
// could be anybody, so it is served nowhere. Usually 65534.
std::uint32_t OverflowUid();

enum class Role { kTenant, kAdmin };

// PERMISSION_DENIED/REFUSED unless the peer may use a socket of this role: the admin socket serves
// root and the daemon's own uid.
absl::Status Authorize(const Peer& peer, Role role, std::uint32_t overflow_uid);

// A pidfd of the process that connected. SO_PEERPIDFD where the kernel has it. Elsewhere by pid,
// with a check that the pid was not reused meanwhile. NOT_FOUND: it is dead already.
absl::StatusOr<share::UniqueFd> OpenPeerPidfd(int socket, const Peer& peer);

// "python3"; empty when it cannot be read.
std::string CommandOf(std::uint32_t pid);

}  // namespace hmm::daemon
