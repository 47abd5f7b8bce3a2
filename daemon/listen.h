// SPDX-License-Identifier: Apache-2.0
//
// The daemon's claim on its runtime directory: the lock file, and the listening sockets, adopted
// from systemd or bound here. Main thread, at start and at the end.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "share/memory_file.h"

namespace hmm::daemon {

inline constexpr char kMemorySocket[] = "hmm.sock";
inline constexpr char kSessionSocket[] = "session.sock";
inline constexpr char kAdminSocket[] = "admin.sock";

// Creates `directory` (and its parents) with `mode` if it is not there.
absl::Status MakeDirectory(const std::string& directory, unsigned mode);
// Why the daemon's own directory cannot be had, with what to do about it.
absl::Status DirectoryError(const absl::Status& status);

// An flock on <directory>/hmmd.lock for as long as the object lives. The file stays: removing it
// would let a third daemon lock a new file while a second still waits for the old one.
class LockFile {
 public:
  // FAILED_PRECONDITION/EXISTS names the pid of the daemon that holds it.
  static absl::StatusOr<LockFile> Take(const std::string& directory);

 private:
  explicit LockFile(share::UniqueFd fd) : fd_(std::move(fd)) {}
  share::UniqueFd fd_;
};

// A listening socket. Removes its path when it goes, if this process bound it and the path still
// leads to it.
class Listener {
 public:
  Listener() = default;
  Listener(Listener&& other) noexcept { *this = std::move(other); }
  Listener& operator=(Listener&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(path_, other.path_);
    std::swap(device_, other.device_);
    std::swap(inode_, other.inode_);
    return *this;
  }
  ~Listener();

  static Listener Adopt(share::UniqueFd fd) { return Listener(std::move(fd)); }
  // REQUIRES: the lock on the directory is held, so that a path that exists is a dead daemon's.
  static absl::StatusOr<Listener> Bind(const std::string& path, int type, unsigned mode);

  // For the accept loop, once.
  share::UniqueFd TakeFd() { return std::move(fd_); }

 private:
  explicit Listener(share::UniqueFd fd) : fd_(std::move(fd)) {}
  share::UniqueFd fd_;
  std::string path_;  // empty: not ours to remove
  unsigned long device_ = 0;
  unsigned long inode_ = 0;
};

// The sockets that systemd passed, by name (FileDescriptorName=). INVALID_ARGUMENT/BAD_CONFIG for a
// name that is none of the three, or a socket of the wrong type. Clears the environment.
absl::StatusOr<std::map<std::string, share::UniqueFd>> AdoptSystemdSockets();

}  // namespace hmm::daemon
