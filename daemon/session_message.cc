// SPDX-License-Identifier: Apache-2.0
#include "daemon/session_message.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "base/check.h"
#include "base/status.h"
#include "daemon/rpc_status.h"
#include "daemon/text.h"
#include "share/layout.h"

namespace hmm::daemon {
namespace {

absl::Status Malformed(std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kProtocol, what);
}

template <std::size_t kSize>
void CopyText(std::string_view text, std::array<char, kSize>& to) {
  const std::size_t length = std::min(text.size(), kSize - 1);
  std::copy_n(text.begin(), length, to.begin());
}

template <typename Struct>
absl::StatusOr<SessionMessage> Parse(std::span<const std::byte> bytes) {
  if (bytes.size() != sizeof(Struct)) {
    return Malformed(
        Cat("a message of ", bytes.size(), " bytes where ", sizeof(Struct), " are due"));
  }
  Struct message;
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

}  // namespace

namespace {

// More than any message brings; the kernel closes those beyond.
constexpr std::size_t kDescriptorsTaken = 4;

// One datagram with what came along. The size is the datagram's, also where it was cut.
// Negative: minus errno. Descriptors are taken only where a message brings one: those left with the
// kernel are closed without us.
ssize_t Receive(int socket, std::span<std::byte> buffer, const StrayFds& strays,
                std::vector<share::UniqueFd>& descriptors) {
  share::WireHeader next;
  const ssize_t peeked = recv(socket, &next, sizeof next, MSG_DONTWAIT | MSG_PEEK);
  const bool brings = peeked == sizeof next && next.magic == share::kWireMagic &&
                      next.type == share::WireType::kAttachRequest && strays.MayTake();
  iovec data{.iov_base = buffer.data(), .iov_len = buffer.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kDescriptorsTaken * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (brings) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  const ssize_t n = recvmsg(socket, &header, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
  if (n < 0) return -errno;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(c) + i * sizeof(int), sizeof descriptor);
      descriptors.emplace_back(descriptor);
    }
  }
  return n;
}

absl::StatusOr<SessionMessage> ParseAttach(std::span<const std::byte> bytes,
                                           std::vector<share::UniqueFd>& descriptors) {
  if (bytes.size() != sizeof(share::AttachRequest)) {
    return Malformed(Cat("an AttachRequest of ", bytes.size(), " bytes"));
  }
  if (descriptors.size() > 1) return Malformed("an AttachRequest with several descriptors");
  Attach attach;
  std::memcpy(static_cast<void*>(&attach.request), bytes.data(), sizeof attach.request);
  // Whatever is no memory file is not even looked at: its file system may be the client's.
  if (!descriptors.empty() && fcntl(descriptors.front().get(), F_GET_SEALS) >= 0) {
    attach.file = std::move(descriptors.front());
  }
  return SessionMessage(std::move(attach));
}

}  // namespace

absl::StatusOr<SessionMessage> ReceiveMessage(int socket, StrayFds& strays) {
  // Larger than any message, so that one that is too long shows.
  alignas(8) std::array<std::byte, 256> buffer;
  std::vector<share::UniqueFd> descriptors;
  const absl::Cleanup cleanup = [&] {
    for (share::UniqueFd& fd : descriptors) strays.Close(std::move(fd));
  };
  const ssize_t n = Receive(socket, buffer, strays, descriptors);
  if (n == -EAGAIN || n == -EINTR) return NothingYet{};
  if (n == -ECONNRESET) return EndOfFile{};
  if (n < 0) return PosixError("session socket", static_cast<int>(-n));
  const auto size = static_cast<std::size_t>(n);
  if (size == 0) return EndOfFile{};  // or an empty datagram, which is none of ours either
  share::WireHeader header;
  if (size < sizeof header) return Malformed(Cat("a message of ", size, " bytes"));
  if (size > buffer.size()) return Malformed(Cat("a message of ", size, " bytes"));
  std::memcpy(&header, buffer.data(), sizeof header);
  if (header.magic != share::kWireMagic) return Malformed("a message without our magic");
  const std::span<const std::byte> bytes(buffer.data(), size);
  switch (header.type) {
    case share::WireType::kHello:
      return Parse<share::Hello>(bytes);
    case share::WireType::kSegmentRequest:
      return Parse<share::SegmentRequest>(bytes);
    case share::WireType::kAttachRequest:
      return ParseAttach(bytes, descriptors);
    case share::WireType::kEventsRequest:
      return Parse<share::EventsRequest>(bytes);
    case share::WireType::kGoodbye:
      return Parse<share::Goodbye>(bytes);
    default:
      return Malformed(Cat("a message of type ", static_cast<std::uint32_t>(header.type)));
  }
}

absl::Status SendMessage(int socket, std::span<const std::byte> message,
                         std::span<const int> descriptors) {
  constexpr std::size_t kDescriptorsMax = 4;
  HMM_CHECK(descriptors.size() <= kDescriptorsMax);
  iovec data{.iov_base = const_cast<std::byte*>(message.data()), .iov_len = message.size()};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kDescriptorsMax * sizeof(int))> control{};
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  const ssize_t n = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n >= 0) return absl::OkStatus();
  if (errno == EAGAIN) {
    return Error(absl::StatusCode::kUnavailable, Reason::kProtocol, "the peer does not read");
  }
  return PosixError("session socket", errno);
}

absl::StatusOr<std::string> CheckHello(const share::Hello& hello) {
  if (hello.abi_version != share::kAbiVersion) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kProtocol,
                 Cat("the client speaks ABI version ", hello.abi_version, ", this daemon ",
                     share::kAbiVersion, "; use libhmm_client of the daemon's version"));
  }
  const auto end = std::find(hello.device.begin(), hello.device.end(), '\0');
  const std::string device(hello.device.begin(), end);
  const bool a_name =
      end != hello.device.end() &&
      device.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
  if (!a_name) return Malformed("the device of a Hello is no tier's name");
  return device;
}

share::AttachReply MakeAttachReply(std::uint64_t region, const absl::Status& status) {
  share::AttachReply reply;
  reply.region = region;
  if (status.ok()) return reply;
  reply.status = static_cast<std::uint32_t>(status.code());
  CopyText(ReasonName(ReasonOf(status).value_or(Reason::kInternal)), reply.reason);
  CopyText(PrintableMessage(MessageOf(status), reply.message.size() - 1), reply.message);
  return reply;
}

share::Refusal MakeRefusal(const absl::Status& status) {
  share::Refusal refusal;
  refusal.code = static_cast<std::uint32_t>(status.code());
  refusal.abi_version = share::kAbiVersion;
  CopyText(ReasonName(ReasonOf(status).value_or(Reason::kInternal)), refusal.reason);
  CopyText(PrintableMessage(MessageOf(status), refusal.message.size() - 1), refusal.message);
  return refusal;
}

share::Welcome MakeWelcome(const core::SessionGrant& grant, std::uint64_t boot_epoch) {
  share::Welcome welcome;
  welcome.abi_version = share::kAbiVersion;
  welcome.max_tensors = grant.max_tensors;
  welcome.boot_epoch = boot_epoch;
  welcome.session = grant.session;
  welcome.tier_count = static_cast<std::uint32_t>(grant.tier_names.size());
  welcome.token = grant.token;
  HMM_CHECK(grant.tier_names.size() <= welcome.tier_names.size());
  for (std::size_t i = 0; i < grant.tier_names.size(); ++i) {
    CopyText(grant.tier_names[i], welcome.tier_names[i]);
  }
  return welcome;
}

}  // namespace hmm::daemon
