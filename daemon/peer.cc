// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/status.h"
#include "daemon/text.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5; absent from Debian 12's headers
#endif

namespace hmm::daemon {
namespace {

// Field 22 of /proc/<pid>/stat: start time in clock ticks since boot. nullopt: no such process.
std::optional<std::uint64_t> StartTicks(std::uint32_t pid) {
  std::ifstream file(Cat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The command, field 2, may hold blanks and parentheses; it ends at the last ')'.
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  std::uint64_t ticks = 0;
  if (!absl::SimpleAtoi(field, &ticks)) return std::nullopt;
  return ticks;
}

std::uint64_t NowTicks() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const auto hz = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  return static_cast<std::uint64_t>(now.tv_sec) * hz +
         static_cast<std::uint64_t>(now.tv_nsec) * hz / 1'000'000'000;
}

bool HungUp(int socket) {
  pollfd poll_fd{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

absl::Status Dead(std::uint32_t pid) {
  return Error(absl::StatusCode::kNotFound, Reason::kRefused, Cat("process ", pid, " is gone"));
}

}  // namespace

absl::StatusOr<Peer> GetPeer(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return PosixError("SO_PEERCRED", errno);
  }
  return Peer{.uid = credentials.uid, .pid = static_cast<std::uint32_t>(credentials.pid)};
}

std::uint32_t OverflowUid() {
  std::uint32_t uid = 65534;
  std::ifstream("/proc/sys/kernel/overflowuid") >> uid;
  return uid;
}

absl::Status Authorize(const Peer& peer, Role role, std::uint32_t overflow_uid) {
  const auto refuse = [&](std::string_view why) {
    return Error(absl::StatusCode::kPermissionDenied, Reason::kRefused,
                 Cat("uid ", peer.uid, " is not served here: ", why));
  };
  if (peer.uid == overflow_uid) {
    return refuse("it stands for users without a number in this namespace");
  }
  if (role == Role::kAdmin && peer.uid != 0 && peer.uid != geteuid()) {
    return refuse("the admin socket serves root and the daemon's own user");
  }
  return absl::OkStatus();
}

absl::StatusOr<share::UniqueFd> OpenPeerPidfd(int socket, const Peer& peer) {
  int fd = -1;
  socklen_t length = sizeof fd;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &length) == 0) return share::UniqueFd(fd);
  if (errno == ESRCH || errno == EINVAL || errno == ENODATA) return Dead(peer.pid);
  if (errno != ENOPROTOOPT) return PosixError("SO_PEERPIDFD", errno);

  // Without it the pid may have been reused between connect and here. Then the process that has it
  // now started after we looked, its start time changed, or the socket is hung up.
  const std::uint64_t accepted = NowTicks();
  const auto before = StartTicks(peer.pid);
  const long opened = syscall(SYS_pidfd_open, static_cast<pid_t>(peer.pid), 0);
  if (opened < 0) return errno == ESRCH ? Dead(peer.pid) : PosixError("pidfd_open", errno);
  share::UniqueFd pidfd(static_cast<int>(opened));
  const auto after = StartTicks(peer.pid);
  if (!before.has_value() || before != after || *before > accepted || HungUp(socket)) {
    return Dead(peer.pid);
  }
  return pidfd;
}

std::string CommandOf(std::uint32_t pid) {
  std::ifstream file(Cat("/proc/", pid, "/comm"));
  std::string command;
  std::getline(file, command);
  return command;
}

}  // namespace hmm::daemon
