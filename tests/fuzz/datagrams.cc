// SPDX-License-Identifier: Apache-2.0
#include "fuzz/datagrams.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "fuzz/require.h"

namespace hmm::fuzz {
namespace {

constexpr std::size_t kSentMax = 5;  // one more than the daemon takes

share::UniqueFd Memory(off_t bytes, int seals, unsigned flags = 0) {
  share::UniqueFd fd(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  Require(fd.valid() && ftruncate(fd.get(), bytes) == 0, "a memory file can be made");
  Require(fcntl(fd.get(), F_ADD_SEALS, seals) == 0, "and sealed");
  return fd;
}

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  Require(path.size() < sizeof address.sun_path, "a short path");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace

Descriptors::Descriptors() {
  constexpr int kSized = F_SEAL_SHRINK | F_SEAL_GROW;
  fds_.push_back(Memory(16384, kSized));
  fds_.push_back(Memory(off_t{1} << 40, kSized));
  fds_.push_back(Memory(16384, kSized | F_SEAL_WRITE));
  fds_.push_back(Memory(16384, F_SEAL_SHRINK));
  fds_.push_back(Memory(0, kSized));
  fds_.emplace_back(open("/dev/null", O_RDWR | O_CLOEXEC));
  fds_.emplace_back(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  fds_.emplace_back(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  fds_.emplace_back(eventfd(0, EFD_CLOEXEC));
  for (const share::UniqueFd& fd : fds_) Require(fd.valid(), "descriptors to send can be had");
}

std::vector<int> Descriptors::Some(Script& script) const {
  std::vector<int> some;
  const std::size_t n = script.Byte();
  for (std::size_t i = n < 128 ? 0 : 1 + n % kSentMax; i > 0; --i) {
    some.push_back(Number(script.Pick(fds_.size())));
  }
  return some;
}

std::string Spoil(std::string bytes, Script& script) {
  switch (script.Pick(8)) {
    case 0:
      bytes.resize(std::min<std::size_t>(script.Byte(), bytes.size()));
      break;
    case 1:
      bytes.resize(bytes.size() + 1 + script.Pick(250), '\xa5');
      break;
    case 2:
    case 3:
      for (std::size_t n = 1 + script.Pick(3); n > 0 && !bytes.empty(); --n) {
        bytes[script.Number<std::uint16_t>() % bytes.size()] = static_cast<char>(script.Byte());
      }
      break;
    case 4:
      bytes = std::string(script.Bytes(script.Byte()));
      break;
    default:
      break;
  }
  return bytes;
}

bool SendDatagram(int socket, const std::string& bytes, std::span<const int> descriptors) {
  iovec data{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kSentMax * sizeof(int))> control{};
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  return sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

bool TakeDatagrams(int socket, std::string* last) {
  constexpr int kTakenMax = 256;
  for (int i = 0; i < kTakenMax; ++i) {
    std::array<char, 1024> buffer;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(8 * sizeof(int))> control{};
    iovec data{.iov_base = buffer.data(), .iov_len = buffer.size()};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t n = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0) return errno == EAGAIN;
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t k = 0; k < count; ++k) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(c) + k * sizeof(int), sizeof fd);
        close(fd);
      }
    }
    if (n == 0) return false;
    if (last != nullptr) last->assign(buffer.data(), static_cast<std::size_t>(n));
  }
  return true;
}

std::string AbstractName(const std::string& word) {
  return std::string(1, '\0') + "hmm-fuzz-" + word + "-" + std::to_string(getpid());
}

share::UniqueFd ListenAt(const std::string& path) {
  share::UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un address = AddressOf(path);
  constexpr int kWaiting = 16;
  Require(fd.valid() &&
              bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
              listen(fd.get(), kWaiting) == 0,
          "a socket can listen at " + path);
  return fd;
}

share::UniqueFd ConnectTo(const std::string& path) {
  share::UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un address = AddressOf(path);
  Require(fd.valid() &&
              connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
          "a socket can connect to " + path);
  return fd;
}

std::vector<std::string> OpenDescriptors() {
  const std::string folder = "/proc/self/fd";
  DIR* const all = opendir(folder.c_str());
  Require(all != nullptr, folder + " can be read");
  std::vector<std::string> open;
  while (const dirent* const entry = readdir(all)) {
    const std::string name = entry->d_name;
    if (name[0] == '.' || name == std::to_string(dirfd(all))) continue;
    std::array<char, 128> target{};
    const ssize_t n = readlink((folder + "/" + name).c_str(), target.data(), target.size() - 1);
    if (std::string_view(target.data()).starts_with("pipe:")) continue;
    open.push_back(name + " -> " + (n < 0 ? "?" : target.data()));
  }
  closedir(all);
  return open;
}

}  // namespace hmm::fuzz
