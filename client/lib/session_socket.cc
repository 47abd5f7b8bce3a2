// SPDX-License-Identifier: Apache-2.0
#include "client/lib/session_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "share/layout.h"

namespace hmm::client_internal {
namespace {

using absl::StatusCode;

constexpr std::size_t kDescriptorsMax = 4;
constexpr std::size_t kMessageMax =
    std::max({sizeof(share::Welcome), sizeof(share::Refusal), sizeof(share::AttachReply)});

absl::Status ProtocolError(std::string_view what) {
  return Error(StatusCode::kFailedPrecondition, Reason::kProtocol,
               absl::StrCat("the daemon does not speak as this client does: ",
                            absl::string_view(what.data(), what.size())));
}

std::string Words(int error) { return std::generic_category().message(error); }

// Milliseconds until the deadline as poll wants them, rounded up so that we never spin.
int PollTimeout(TimePoint deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<std::int64_t>(ms, 0, 60'000));
}

absl::StatusCode CodeOfWire(std::uint32_t code, StatusCode otherwise) {
  return code >= 1 && code <= 16 ? static_cast<StatusCode>(code) : otherwise;
}

template <std::size_t kSize>
std::string TextOf(const std::array<char, kSize>& text) {
  return std::string(text.data(), strnlen(text.data(), kSize));
}

constexpr std::chrono::milliseconds kRefusedRetry{100};  // the wire carries none

absl::Status StatusOfRefusal(const share::Refusal& refusal) {
  const Reason reason = ReasonFromName(TextOf(refusal.reason)).value_or(Reason::kRefused);
  std::string message = TextOf(refusal.message);
  if (refusal.abi_version != share::kAbiVersion) {
    absl::StrAppend(&message, " (its ABI is ", refusal.abi_version, ", ours ", share::kAbiVersion,
                    ")");
  }
  absl::Status status =
      Error(CodeOfWire(refusal.code, StatusCode::kPermissionDenied), reason, message);
  const bool passes =
      reason == Reason::kDraining || status.code() == StatusCode::kResourceExhausted;
  return passes ? WithRetry(std::move(status), kRefusedRetry) : status;
}

}  // namespace

absl::StatusOr<SessionSocket> SessionSocket::Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error(StatusCode::kInvalidArgument, Reason::kBadArgument,
                 absl::StrCat(path, ": longer than a socket's path can be"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  share::UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return PosixError("socket", errno);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    if (error == EACCES || error == EPERM) return PosixError(path, error);
    return Error(StatusCode::kUnavailable, Reason::kNoDaemon,
                 absl::StrCat("connect ", path, ": ", Words(error)));
  }
  return SessionSocket(std::move(fd), path);
}

absl::Status SessionSocket::Gone(std::string_view what) const {
  return Error(
      StatusCode::kUnavailable, Reason::kNoDaemon,
      absl::StrCat("the daemon on ", path_, " ", absl::string_view(what.data(), what.size())));
}

absl::Status SessionSocket::Wait(short events, TimePoint deadline) const {
  for (;;) {
    pollfd entry{fd_.get(), events, 0};
    const int ready = ::poll(&entry, 1, PollTimeout(deadline));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return PosixError("poll", errno);
    if (std::chrono::steady_clock::now() >= deadline) {
      return Error(StatusCode::kDeadlineExceeded, Reason::kDeadline,
                   absl::StrCat("no answer on ", path_));
    }
  }
}

absl::Status SessionSocket::Send(const void* data, std::size_t size, TimePoint deadline, int fd) {
  iovec io{const_cast<void*>(data), size};
  msghdr header{};
  header.msg_iov = &io;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (fd >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(int));
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(fd_.get(), &header, MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(size)) return absl::OkStatus();
    if (sent >= 0) return Error(StatusCode::kInternal, Reason::kInternal, "datagram cut by send");
    if (errno == EAGAIN) {
      HMM_RETURN_IF_ERROR(Wait(POLLOUT, deadline));
    } else if (errno == EBADF && fd >= 0) {
      return PosixError("sending the region's descriptor", errno);
    } else if (errno != EINTR) {
      return Gone(absl::StrCat("is gone: ", Words(errno)));
    }
  }
}

absl::StatusOr<SessionSocket::Message> SessionSocket::Receive(TimePoint deadline) {
  // One byte more than the largest message, so that a larger one shows as such.
  Message message;
  message.bytes.resize(kMessageMax + 1);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> control;
  for (;;) {
    HMM_RETURN_IF_ERROR(Wait(POLLIN, deadline));
    iovec io{message.bytes.data(), message.bytes.size()};
    msghdr header{};
    header.msg_iov = &io;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return Gone(absl::StrCat("is gone: ", Words(errno)));
    if (got == 0) return Gone("hung up");
    // Descriptors first: whatever is wrong with the message, they are ours to close.
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
        message.fds.emplace_back(fd);
      }
    }
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
      return ProtocolError("a message that is too large (or too few descriptors are free)");
    }
    message.bytes.resize(static_cast<std::size_t>(got));
    return message;
  }
}

namespace {

// The message as a `T`, when size, magic and type are right.
template <typename T>
bool Decode(const std::vector<std::byte>& bytes, share::WireType type, T& out) {
  if (bytes.size() != sizeof(T)) return false;
  std::memcpy(static_cast<void*>(&out), bytes.data(), sizeof(T));
  return out.header.magic == share::kWireMagic && out.header.type == type;
}

// Whether it answers a request, of whatever kind: one that its asker no longer waited for.
bool IsReply(const std::vector<std::byte>& bytes) {
  share::SegmentReply segment;
  share::AttachReply attach;
  share::EventsReply events;
  return Decode(bytes, share::WireType::kSegmentReply, segment) ||
         Decode(bytes, share::WireType::kAttachReply, attach) ||
         Decode(bytes, share::WireType::kEventsReply, events);
}

}  // namespace

absl::StatusOr<SessionSocket::Greeting> SessionSocket::Greet(std::string_view device,
                                                             TimePoint deadline) {
  share::Hello hello;
  hello.abi_version = share::kAbiVersion;
  if (device.size() > share::kTierNameMax) {
    return Error(
        StatusCode::kInvalidArgument, Reason::kBadArgument,
        absl::StrCat("no tier has a name of more than ", share::kTierNameMax, " characters"));
  }
  std::memcpy(hello.device.data(), device.data(), device.size());
  HMM_RETURN_IF_ERROR(Send(&hello, sizeof(hello), deadline));

  absl::StatusOr<Message> message = Receive(deadline);
  if (absl::IsDeadlineExceeded(message.status()))
    return Gone("accepts but does not answer: it is stopped or overloaded");
  if (!message.ok()) return message.status();
  share::Refusal refusal;
  if (Decode(message->bytes, share::WireType::kRefusal, refusal)) return StatusOfRefusal(refusal);
  Greeting greeting;
  if (!Decode(message->bytes, share::WireType::kWelcome, greeting.welcome)) {
    return ProtocolError("neither a welcome nor a refusal");
  }
  if (greeting.welcome.abi_version != share::kAbiVersion) return ProtocolError("another ABI");
  if (message->fds.size() != 2) return ProtocolError("a welcome without its two descriptors");
  greeting.table = std::move(message->fds[0]);
  greeting.page = std::move(message->fds[1]);
  return greeting;
}

absl::StatusOr<SessionSocket::Grant> SessionSocket::PullSegment(SegmentId segment,
                                                                TimePoint deadline) {
  share::SegmentRequest request;
  request.segment = segment;
  HMM_RETURN_IF_ERROR(Send(&request, sizeof(request), deadline));
  for (;;) {
    HMM_ASSIGN_OR_RETURN(Message message, Receive(deadline));
    share::SegmentReply reply;
    const bool mine = Decode(message.bytes, share::WireType::kSegmentReply, reply);
    if (!mine && !IsReply(message.bytes)) {
      return ProtocolError("not a reply to a segment request");
    }
    // A reply that an earlier request no longer waited for.
    if (!mine || reply.segment != segment) continue;
    if (reply.status != 0) {
      return Error(CodeOfWire(reply.status, StatusCode::kInternal), Reason::kNotFound,
                   absl::StrCat("segment ", segment, " is not to be had"));
    }
    if (message.fds.size() != 1) return ProtocolError("a segment without its descriptor");
    return Grant{std::move(message.fds[0]), reply.bytes};
  }
}

absl::Status SessionSocket::AttachRegion(std::uint64_t region, int fd, Bytes bytes,
                                         TimePoint deadline) {
  share::AttachRequest request;
  request.region = region;
  request.bytes = bytes;
  HMM_RETURN_IF_ERROR(Send(&request, sizeof(request), deadline, fd));
  for (;;) {
    HMM_ASSIGN_OR_RETURN(const Message message, Receive(deadline));
    share::AttachReply reply;
    const bool mine = Decode(message.bytes, share::WireType::kAttachReply, reply);
    if (!mine && !IsReply(message.bytes)) return ProtocolError("not a reply to an attach request");
    if (!mine || reply.region != region) continue;
    if (reply.status == 0) return absl::OkStatus();
    return Error(CodeOfWire(reply.status, StatusCode::kInternal),
                 ReasonFromName(TextOf(reply.reason)).value_or(Reason::kInternal),
                 TextOf(reply.message));
  }
}

absl::StatusOr<share::UniqueFd> SessionSocket::OpenEvents(TimePoint deadline) {
  const share::EventsRequest request;
  HMM_RETURN_IF_ERROR(Send(&request, sizeof(request), deadline));
  for (;;) {
    HMM_ASSIGN_OR_RETURN(Message message, Receive(deadline));
    share::EventsReply reply;
    if (!Decode(message.bytes, share::WireType::kEventsReply, reply)) {
      if (IsReply(message.bytes)) continue;
      return ProtocolError("not a reply to an events request");
    }
    if (reply.status == 0 && message.fds.size() == 1) return std::move(message.fds[0]);
    if (reply.status == 0) return ProtocolError("events without their descriptor");
    return Error(CodeOfWire(reply.status, StatusCode::kInternal), Reason::kIo,
                 "the daemon has no descriptor for events");
  }
}

void SessionSocket::Leave() {
  const share::Goodbye goodbye;
  ::send(fd_.get(), &goodbye, sizeof(goodbye), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(fd_.get(), SHUT_RDWR);
}

bool SessionSocket::HungUp(Duration wait) const {
  const TimePoint deadline = std::chrono::steady_clock::now() + wait;
  for (;;) {
    pollfd entry{fd_.get(), POLLRDHUP, 0};
    const int ready = ::poll(&entry, 1, PollTimeout(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
  }
}

}  // namespace hmm::client_internal
