// SPDX-License-Identifier: Apache-2.0
#include "share/bell.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/status.h"

namespace hmm::share {

absl::StatusOr<Bell> Bell::Make() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return PosixError("socketpair", errno);
  }
  return Bell{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void Ring(const UniqueFd& ringer) {
  if (!ringer.valid()) return;
  const char one = 1;
  (void)send(ringer.get(), &one, sizeof one, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool TakeRings(int listener) {
  std::array<char, 256> rings;
  bool any = false;
  while (recv(listener, rings.data(), rings.size(), MSG_DONTWAIT) > 0) any = true;
  return any;
}

}  // namespace hmm::share
