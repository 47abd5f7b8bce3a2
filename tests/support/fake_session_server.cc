// SPDX-License-Identifier: Apache-2.0
#include "support/fake_session_server.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <new>
#include <vector>

#include "base/check.h"
#include "base/status.h"

namespace hmm::testing {
namespace {

void Send(int fd, const void* data, std::size_t size, const std::vector<int>& fds) {
  iovec io{const_cast<void*>(data), size};
  msghdr header{};
  header.msg_iov = &io;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  }
  // The client may have hung up meanwhile: then nobody waits for this.
  (void)::sendmsg(fd, &header, MSG_NOSIGNAL);
}

std::string TempDir() {
  std::string dir = (std::filesystem::temp_directory_path() / "hmm-test-XXXXXX").string();
  HMM_CHECK(::mkdtemp(dir.data()) != nullptr);
  return dir;
}

share::Mapping MapWhole(int fd, Bytes bytes) {
  auto mapping = share::Mapping::Map(fd, bytes, share::Mapping::Access::kReadWrite, false);
  HMM_CHECK(mapping.ok());
  return *std::move(mapping);
}

share::UniqueFd File(Bytes bytes) {
  auto fd = share::CreateMemoryFile("fake", bytes);
  HMM_CHECK(fd.ok());
  return *std::move(fd);
}

}  // namespace

FakeSessionServer::FakeSessionServer(Greeting greeting, std::uint64_t epoch)
    : greeting_(greeting), epoch_(epoch), dir_(TempDir()) {
  table_fd_ = File(share::TableBytes(kTensors));
  page_fd_ = File(share::PageBytes(kTensors));
  table_ = MapWhole(table_fd_.get(), share::TableBytes(kTensors));
  page_ = MapWhole(page_fd_.get(), share::PageBytes(kTensors));
  new (table_.data()) share::TableHeader{share::kTableMagic, share::kAbiVersion, kTensors, epoch_};
  new (page_.data()) share::PageHeader{share::kPageMagic, share::kAbiVersion, kTensors, epoch_, 1};

  stop_ = share::UniqueFd(::eventfd(0, EFD_CLOEXEC));
  listener_ = share::UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = dir_ + "/session.sock";
  HMM_CHECK(path.size() < sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.data(), path.size());
  HMM_CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  HMM_CHECK(::listen(listener_.get(), 8) == 0);
  thread_ = std::thread([this] { Serve(); });
}

FakeSessionServer::~FakeSessionServer() {
  HangUp();
  std::filesystem::remove_all(dir_);
}

void FakeSessionServer::HangUp() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  HMM_CHECK(::write(stop_.get(), &one, sizeof(one)) == sizeof(one));
  thread_.join();
}

void FakeSessionServer::AddSegment(SegmentId segment, Bytes claimed_bytes) {
  Segment made;
  made.fd = File(kSegmentBytes);
  made.mapping = MapWhole(made.fd.get(), kSegmentBytes);
  made.claimed_bytes = claimed_bytes;
  segments_.emplace(segment, std::move(made));
}

void FakeSessionServer::Publish(std::uint32_t slot, std::uint32_t generation, TensorState state,
                                SegmentId segment, Bytes offset, Bytes bytes) {
  share::TableSlot& line = share::TableSlots(static_cast<void*>(table_.data()))[slot];
  line.segment.store(segment, std::memory_order_relaxed);
  line.offset.store(offset, std::memory_order_relaxed);
  line.bytes.store(bytes, std::memory_order_relaxed);
  share::PublishState(line, {state, TierOfSegment(segment), generation});
}

std::uint32_t FakeSessionServer::pins(std::uint32_t slot) const {
  return share::PinsOf(share::PinWords(page_.data())[slot].load());
}

void FakeSessionServer::PinForClient(std::uint32_t slot) {
  HMM_CHECK(share::PinFor(share::PinWords(page_.data())[slot]));
}

void FakeSessionServer::Serve() {
  share::UniqueFd client;
  for (;;) {
    pollfd entries[2] = {{stop_.get(), POLLIN, 0},
                         {client.valid() ? client.get() : listener_.get(), POLLIN, 0}};
    if (::poll(entries, 2, -1) < 0) continue;
    if (entries[0].revents != 0) return;
    if (!client.valid()) {
      client = share::UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.valid() && !Greet(client.get())) client.Reset();
      continue;
    }
    share::SegmentRequest request;
    if (::recv(client.get(), &request, sizeof(request), 0) != sizeof(request)) {
      client.Reset();
      continue;
    }
    Answer(client.get(), request);
  }
}

bool FakeSessionServer::Greet(int client) {
  share::Hello hello;
  if (::recv(client, &hello, sizeof(hello), 0) != sizeof(hello)) return false;
  share::Welcome welcome;
  welcome.abi_version = greeting_ == Greeting::kOtherAbi ? 99 : share::kAbiVersion;
  welcome.max_tensors = kTensors;
  welcome.boot_epoch = epoch_;
  welcome.session = 1;
  welcome.tier_count = 2;
  std::strcpy(welcome.tier_names[0].data(), "hbm0");
  std::strcpy(welcome.tier_names[1].data(), "ddr0");
  switch (greeting_) {
    case Greeting::kWelcome:
    case Greeting::kOtherAbi:
      Send(client, &welcome, sizeof(welcome), {table_fd_.get(), page_fd_.get()});
      return true;
    case Greeting::kNoDescriptors:
      Send(client, &welcome, sizeof(welcome), {});
      return true;
    case Greeting::kRefuse: {
      share::Refusal refusal;
      refusal.code = static_cast<std::uint32_t>(absl::StatusCode::kResourceExhausted);
      refusal.abi_version = share::kAbiVersion;
      std::strcpy(refusal.reason.data(), "REFUSED");
      std::strcpy(refusal.message.data(), "too many sessions");
      Send(client, &refusal, sizeof(refusal), {});
      return false;
    }
    case Greeting::kGarbage:
      Send(client, "what", 4, {table_fd_.get()});
      return true;
    case Greeting::kSilence:
      return true;
    case Greeting::kHangUp:
      return false;
  }
  return false;
}

void FakeSessionServer::Answer(int client, const share::SegmentRequest& request) {
  requests_.fetch_add(1);
  share::SegmentReply reply;
  // What an earlier request, given up by the client, would find in the socket.
  reply.segment = request.segment + 1;
  reply.status = static_cast<std::uint32_t>(absl::StatusCode::kInternal);
  Send(client, &reply, sizeof(reply), {});
  reply.segment = request.segment;
  const auto found = segments_.find(request.segment);
  if (found == segments_.end()) {
    reply.status = static_cast<std::uint32_t>(absl::StatusCode::kNotFound);
    Send(client, &reply, sizeof(reply), {});
    return;
  }
  reply.status = 0;
  reply.bytes = found->second.claimed_bytes;
  Send(client, &reply, sizeof(reply), {found->second.fd.get()});
}

}  // namespace hmm::testing
