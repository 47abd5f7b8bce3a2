// SPDX-License-Identifier: Apache-2.0
#include "daemon/listen.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/strip.h"
#include "base/status.h"
#include "daemon/text.h"

namespace hmm::daemon {
namespace {

constexpr int kBacklog = 128;

}  // namespace

absl::Status MakeDirectory(const std::string& directory, unsigned mode) {
  std::error_code error;
  if (std::filesystem::is_directory(directory, error)) return absl::OkStatus();
  const std::filesystem::path parent = std::filesystem::path(directory).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (mkdir(directory.c_str(), mode) != 0) return PosixError(directory, errno);
  // Whatever the umask says.
  if (chmod(directory.c_str(), mode) != 0) return PosixError(directory, errno);
  return absl::OkStatus();
}

absl::Status DirectoryError(const absl::Status& status) {
  if (ReasonOf(status) != Reason::kIo) return status;
  return Error(status.code(), Reason::kIo,
               Cat("daemon.dir: ", MessageOf(status),
                   "; name a directory that this user may make and write in, with --dir, $HMM_DIR "
                   "or [daemon] dir"));
}

absl::StatusOr<LockFile> LockFile::Take(const std::string& directory) {
  const std::string path = directory + "/hmmd.lock";
  share::UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return PosixError(path, errno);
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return PosixError(path, errno);
    std::array<char, 32> pid{};
    const ssize_t n = pread(fd.get(), pid.data(), pid.size() - 1, 0);
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kExists,
                 Cat("hmmd (pid ", n > 0 ? absl::StripSuffix(pid.data(), "\n") : "unknown",
                     ") runs on ", directory, " already; stop it, or give this one another --dir"));
  }
  const std::string pid = Cat(getpid(), "\n");
  if (ftruncate(fd.get(), 0) != 0 || pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
    return PosixError(path, errno);
  }
  return LockFile(std::move(fd));
}

absl::StatusOr<Listener> Listener::Bind(const std::string& path, int type, unsigned mode) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                 Cat(path, " is ", path.size(), " bytes long; a socket's path has at most ",
                     sizeof address.sun_path - 1, ": choose a shorter daemon.dir"));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  share::UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return PosixError("socket", errno);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return PosixError(path, errno);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return PosixError(path, errno);
  }
  struct stat status {};
  // Never through a link: a tenant's directory may be the tenant's to write.
  if (fchmodat(AT_FDCWD, path.c_str(), mode, AT_SYMLINK_NOFOLLOW) != 0 ||
      lstat(path.c_str(), &status) != 0 || listen(fd.get(), kBacklog) != 0) {
    const int error = errno;
    unlink(path.c_str());
    return PosixError(path, error);
  }
  Listener listener(std::move(fd));
  listener.path_ = path;
  listener.device_ = status.st_dev;
  listener.inode_ = status.st_ino;
  return listener;
}

Listener::~Listener() {
  struct stat status {};
  if (path_.empty() || lstat(path_.c_str(), &status) != 0) return;
  if (status.st_dev == device_ && status.st_ino == inode_) unlink(path_.c_str());
}

absl::StatusOr<std::map<std::string, share::UniqueFd>> AdoptSystemdSockets() {
  char** names = nullptr;
  const int count = sd_listen_fds_with_names(/*unset_environment=*/1, &names);
  if (count < 0) return PosixError("sd_listen_fds", -count);
  std::map<std::string, share::UniqueFd> sockets;
  absl::Status status;
  for (int i = 0; i < count; ++i) {
    const std::string name = names[i];
    share::UniqueFd fd(SD_LISTEN_FDS_START + i);
    const bool session = name == kSessionSocket;
    if (!session && name != kMemorySocket && name != kAdminSocket) {
      status = Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     Cat("systemd passed a socket named '", name, "'; the names are ",
                         kMemorySocket, ", ", kSessionSocket, ", ", kAdminSocket));
    } else if (sd_is_socket_unix(fd.get(), session ? SOCK_SEQPACKET : SOCK_STREAM, 1, nullptr, 0) <=
               0) {
      status = Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     Cat("the socket '", name, "' from systemd is no listening unix ",
                         session ? "ListenSequentialPacket=" : "ListenStream=", " socket"));
    } else {
      fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
      sockets[name] = std::move(fd);
    }
    std::free(names[i]);
  }
  std::free(names);
  if (!status.ok()) return status;
  return sockets;
}

}  // namespace hmm::daemon
