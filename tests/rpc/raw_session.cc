// SPDX-License-Identifier: Apache-2.0
#include "rpc/raw_session.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "share/layout.h"

namespace hmm::testing {

int ConnectUnix(const std::string& path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  HMM_CHECK(path.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

RawSession::RawSession(const std::string& dir)
    : socket_(ConnectUnix(dir + "/session.sock", SOCK_SEQPACKET)) {
  HMM_CHECK(socket_.valid());
}

void RawSession::Send(std::span<const std::byte> bytes) {
  const ssize_t n = send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  HMM_CHECK(n == static_cast<ssize_t>(bytes.size()) || (n < 0 && errno == EPIPE));
}

RawSession::Received RawSession::Receive() {
  std::array<std::byte, 4096> buffer;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(8 * sizeof(int))> control{};
  iovec data{.iov_base = buffer.data(), .iov_len = buffer.size()};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t n = recvmsg(fd(), &header, MSG_CMSG_CLOEXEC);
  Received received;
  if (n <= 0) return received;
  received.bytes.assign(buffer.begin(), buffer.begin() + n);
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(c) + i * sizeof(int), sizeof descriptor);
      received.descriptors.emplace_back(descriptor);
    }
  }
  return received;
}

share::Hello RawSession::GoodHello() {
  share::Hello hello;
  hello.abi_version = share::kAbiVersion;
  return hello;
}

share::Welcome RawSession::Attach(const std::string& device) {
  share::Hello hello = GoodHello();
  HMM_CHECK(device.size() < hello.device.size());
  std::copy(device.begin(), device.end(), hello.device.begin());
  SendStruct(hello);
  Received received = Receive();
  const auto welcome = received.As<share::Welcome>();
  HMM_CHECK(welcome.has_value() && welcome->header.type == share::WireType::kWelcome);
  HMM_CHECK(received.descriptors.size() == 2);
  mapped_ = std::move(received.descriptors);
  return *welcome;
}

}  // namespace hmm::testing
