// SPDX-License-Identifier: Apache-2.0
//
// The client's end of the session socket, before a daemon that answers anything: welcomes,
// refusals, segments, replies, in any order, spoilt, with any descriptors; and tables and pages
// that say anything. A call ends with what it says or with an error, and what is given to the user
// can be read to its last byte.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "client/lib/attachment.h"
#include "client/lib/session_socket.h"
#include "fuzz/datagrams.h"
#include "fuzz/require.h"
#include "fuzz/script.h"
#include "share/layout.h"

namespace {

using namespace hmm;
using client_internal::Attachment;
using client_internal::SessionSocket;
using fuzz::Require;

constexpr std::uint32_t kTensors = 16;
constexpr std::size_t kRepliesMax = 12;

template <typename Struct>
std::string BytesOf(const Struct& message) {
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

struct Reply {
  std::string bytes;
  std::vector<int> descriptors;
};

class Daemon {
 public:
  Daemon(fuzz::Script& script, const fuzz::Descriptors& descriptors, std::string dir)
      : script_(script),
        descriptors_(descriptors),
        dir_(std::move(dir)),
        listener_(fuzz::ListenAt(dir_ + "/session.sock")) {}

  const std::string& dir() const { return dir_; }

  // What it will send, whatever is asked. `good`: the first is a welcome with sound files.
  void Plan(bool good) {
    table_ = File(share::TableBytes(kTensors), good);
    page_ = File(share::PageBytes(kTensors), good);
    if (good) replies_.push_back({BytesOf(Welcome()), {table_.get(), page_.get()}});
    for (std::size_t n = script_.Pick(kRepliesMax); n > 0; --n) {
      if (script_.Chance(96)) {  // as a daemon does, so that there is something behind
        share::SegmentReply reply;
        reply.segment = Segment();
        reply.bytes = 16384;
        replies_.push_back({BytesOf(reply), {descriptors_.Number(0)}});
        continue;
      }
      replies_.push_back({fuzz::Spoil(Message(), script_), descriptors_.Some(script_)});
      if (script_.Chance(64)) replies_.back().descriptors = {table_.get(), page_.get()};
    }
  }

  // Takes the connection that waits and says it all at once, then nothing more.
  share::UniqueFd Answer() {
    share::UniqueFd client = Accept();
    for (const Reply& reply : replies_) {
      (void)fuzz::SendDatagram(client.get(), reply.bytes, reply.descriptors);
    }
    shutdown(client.get(), SHUT_WR);
    return client;
  }
  // Takes the connection that comes and says one thing after the other, each when it is asked or
  // when nobody asks; then hangs up, and waits for the client to do so.
  void Converse() {
    const share::UniqueFd client = Accept();
    constexpr int kRoundsMax = 2000;
    constexpr int kPauseMs = 5;
    for (int round = 0; round < kRoundsMax; ++round) {
      const auto next = static_cast<std::size_t>(round);
      if (next < replies_.size()) {
        (void)fuzz::SendDatagram(client.get(), replies_[next].bytes, replies_[next].descriptors);
      } else if (next == replies_.size()) {
        shutdown(client.get(), SHUT_WR);
      }
      pollfd asked{client.get(), POLLIN, 0};
      std::array<char, 256> request;
      if (::poll(&asked, 1, kPauseMs) == 1 &&
          recv(client.get(), request.data(), request.size(), MSG_DONTWAIT) <= 0) {
        return;
      }
    }
  }

 private:
  share::UniqueFd Accept() {
    pollfd waits{listener_.get(), POLLIN, 0};
    Require(::poll(&waits, 1, 10'000) == 1, "the client connects");
    share::UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Require(client.valid(), "the client's connection is taken");
    return client;
  }
  share::UniqueFd File(Bytes bytes, bool good) {
    share::UniqueFd fd(memfd_create("fuzz", MFD_CLOEXEC));
    const Bytes size = good || script_.Chance(200) ? bytes : Bytes{script_.Byte()} * 256;
    Require(fd.valid() && ftruncate(fd.get(), static_cast<off_t>(size)) == 0, "a memory file");
    share::PageHeader header{share::kPageMagic, share::kAbiVersion, kTensors, 7, 3};
    if (bytes == share::TableBytes(kTensors)) header.magic = share::kTableMagic;
    std::string head = BytesOf(header);
    if (!good) head = fuzz::Spoil(std::move(head), script_);
    Require(pwrite(fd.get(), head.data(), head.size(), 0) == static_cast<ssize_t>(head.size()),
            "a memory file can be written");
    if (bytes == share::TableBytes(kTensors) && size == bytes) Publish(fd.get());
    return fd;
  }
  // Tensors that are said to be resident anywhere.
  void Publish(int table) {
    auto mapping = share::Mapping::Map(table, share::TableBytes(kTensors),
                                       share::Mapping::Access::kReadWrite, false);
    fuzz::RequireOk(mapping.status(), "the table can be mapped");
    share::TableSlot* const slots = share::TableSlots(mapping->data());
    for (std::uint32_t slot = 0; slot < 4; ++slot) {
      slots[slot].segment = Segment();
      slots[slot].offset = Place();
      slots[slot].bytes = Place();
      share::PublishState(slots[slot], {TensorState::kResident, 0, 1});
    }
  }
  SegmentId Segment() { return 1 + static_cast<SegmentId>(script_.Pick(3)); }
  std::uint64_t Place() {
    const std::uint8_t small = script_.Byte();
    return small < 200 ? Bytes{small} * 128 : script_.Number<std::uint64_t>();
  }

  share::Welcome Welcome() {
    share::Welcome welcome;
    welcome.abi_version = share::kAbiVersion;
    welcome.max_tensors = kTensors;
    welcome.boot_epoch = 7;
    welcome.session = 3;
    welcome.tier_count = script_.Byte();
    for (auto& name : welcome.tier_names) name.fill(static_cast<char>(script_.Byte()));
    return welcome;
  }
  template <typename Text>
  void Fill(Text& text) {
    const std::string_view bytes = script_.Bytes(script_.Pick(text.size() + 1));
    std::copy(bytes.begin(), bytes.end(), text.begin());
  }
  std::string Message() {
    switch (script_.Pick(8)) {
      case 0: {
        share::Welcome welcome = Welcome();
        if (script_.Chance(64)) welcome.max_tensors = script_.Number<std::uint32_t>();
        return BytesOf(welcome);
      }
      case 1: {
        share::Refusal refusal;
        refusal.code = script_.Byte();
        refusal.abi_version = script_.Byte();
        Fill(refusal.reason);
        Fill(refusal.message);
        return BytesOf(refusal);
      }
      case 2:
      case 3:
      case 4: {
        share::SegmentReply reply;
        reply.segment = Segment();
        reply.status = script_.Chance(200) ? 0 : script_.Byte();
        reply.bytes = script_.Chance(160) ? 16384 : Place();
        return BytesOf(reply);
      }
      case 5: {
        share::AttachReply reply;
        reply.region = 1 + script_.Pick(3);
        reply.status = script_.Byte();
        Fill(reply.reason);
        Fill(reply.message);
        return BytesOf(reply);
      }
      case 6: {
        share::EventsReply reply;
        reply.status = script_.Pick(3) == 0 ? script_.Byte() : 0;
        return BytesOf(reply);
      }
      default:
        return std::string(script_.Bytes(script_.Byte()));
    }
  }

  fuzz::Script& script_;
  const fuzz::Descriptors& descriptors_;
  const std::string dir_;
  share::UniqueFd listener_;
  share::UniqueFd table_;
  share::UniqueFd page_;
  std::vector<Reply> replies_;
};

TimePoint Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(2); }

// The socket alone.
void Talk(Daemon& daemon, fuzz::Script& script, const fuzz::Descriptors& descriptors) {
  auto socket = SessionSocket::Connect(daemon.dir() + "/session.sock");
  fuzz::RequireOk(socket.status(), "connecting to a socket that listens");
  const share::UniqueFd peer = daemon.Answer();
  (void)socket->Greet(script.Chance(128) ? "" : "hbm0", Soon());
  for (std::size_t n = script.Pick(6); n > 0; --n) {
    switch (script.Pick(3)) {
      case 0: {
        const auto grant = socket->PullSegment(1, Soon());
        if (grant.ok()) Require(grant->fd.valid(), "a segment comes with its descriptor");
        break;
      }
      case 1:
        (void)socket->AttachRegion(1, descriptors.Number(script.Byte()), 4096, Soon());
        break;
      default: {
        const auto events = socket->OpenEvents(Soon());
        if (events.ok()) Require(events->valid(), "events come with their descriptor");
      }
    }
  }
  (void)socket->HungUp(Duration{});
  if (script.Chance(128)) socket->Leave();
}

// Everything that the library builds on it. What it maps is read, so that a lie is found here.
void Use(Daemon& daemon, fuzz::Script& script) {
  std::thread answers([&] { daemon.Converse(); });
  const absl::Cleanup join = [&] { answers.join(); };
  auto attachment = Attachment::Attach({.dir = daemon.dir(), .device = ""}, Soon());
  if (!attachment.ok()) return;
  std::uint64_t sum = 0;
  const auto read = [&](const std::byte* data, std::size_t bytes) {
    if (bytes > 0) sum += static_cast<unsigned>(data[0]) + static_cast<unsigned>(data[bytes - 1]);
  };
  for (std::uint32_t tier = 0; tier < 20; ++tier) (void)(*attachment)->TierName(tier);
  for (std::size_t n = script.Pick(8); n > 0; --n) {
    const Handle handle{static_cast<std::uint32_t>(script.Pick(5)) * 5, 1};
    const Handle near{static_cast<std::uint32_t>(script.Pick(4)), 1};
    if (const auto pin = (*attachment)->TryPin(near.Pack())) read(pin->data(), pin->size());
    const Attachment::Place place{.segment = 1 + static_cast<SegmentId>(script.Pick(3)),
                                  .offset = Bytes{script.Byte()} * 128,
                                  .bytes = Bytes{script.Byte()} * 128};
    const auto pin = (*attachment)->Adopt(handle.Pack(), place, Soon());
    if (pin.ok()) read(pin->data(), pin->size());
  }
  (*attachment)->SweepFences();
  Require(sum <= 16 * 2 * 0xff, "what was read is used");
  attachment->reset();  // hangs up, for which the other end waits
}

struct Shared {
  std::string dir = fuzz::AbstractName("greeting");
  fuzz::Descriptors descriptors;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Shared* const shared = new Shared;
  fuzz::Script script(data, size);
  const std::size_t mode = script.Pick(8);
  Daemon daemon(script, shared->descriptors, shared->dir);
  daemon.Plan(/*good=*/mode % 2 == 1);
  if (mode < 2) {
    Use(daemon, script);
  } else {
    Talk(daemon, script, shared->descriptors);
  }
  return 0;
}
