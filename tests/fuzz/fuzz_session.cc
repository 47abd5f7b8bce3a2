// SPDX-License-Identifier: Apache-2.0
//
// The daemon's end of the session socket: real connections, datagrams of every kind in any order,
// with descriptors and without, processed by the daemon's own session code over the core. Whatever
// comes: an honest session beside goes on, no descriptor is kept, and nothing is left at the end.
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/sessions.h"
#include "fuzz/core_world.h"
#include "fuzz/datagrams.h"
#include "fuzz/require.h"
#include "fuzz/script.h"
#include "share/layout.h"

namespace {

using namespace hmm;
using fuzz::Require;
using std::chrono::milliseconds;

constexpr std::size_t kStepsMax = 100;

template <typename Struct>
std::string BytesOf(const Struct& message) {
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

class SessionWorld {
 public:
  SessionWorld(fuzz::Script script, const fuzz::Descriptors& descriptors, const std::string& path)
      : script_(script), descriptors_(descriptors), path_(path) {
    daemon::SessionsOptions options;
    options.connections_max = 6;
    options.handshakes_max = 4;
    sessions_ =
        std::make_unique<daemon::Sessions>(io_, world_.executor(), world_.manager(), options);
    world_.manager().OnExpel(
        [this](SessionId session, std::string_view why) { sessions_->Expel(session, why); });
    sessions_->Start(fuzz::ListenAt(path_), "");
    honest_ = fuzz::ConnectTo(path_);
    Require(Hello(honest_.get(), ""), "an honest Hello is sent");
    Pump();
    std::string reply;
    Require(fuzz::TakeDatagrams(honest_.get(), &reply) && reply.size() == sizeof(share::Welcome),
            "an honest Hello is answered");
  }
  ~SessionWorld() {
    sessions_->Stop();
    io_.poll();
  }

  void Play() {
    for (std::size_t step = 0; step < kStepsMax && !script_.done(); ++step) Step();
    Pump();
    const share::SegmentRequest request{.segment = 1};
    Require(fuzz::SendDatagram(honest_.get(), BytesOf(request), {}), "the honest session lives");
    Pump();
    std::string reply;
    Require(
        fuzz::TakeDatagrams(honest_.get(), &reply) && reply.size() == sizeof(share::SegmentReply),
        "the honest session is answered");
    world_.Validate();
    honest_.Reset();
    clients_.clear();
    Pump();
    world_.Empty();
  }

 private:
  // The io thread's work and the executor's, until both rest.
  void Pump() {
    constexpr int kRoundsMax = 1000;
    for (int round = 0; round < kRoundsMax; ++round) {
      io_.restart();
      const std::size_t did = io_.poll();
      const std::size_t ran = world_.executor().RunReady(1000);
      if (did + ran == 0) return;
    }
    Require(false, "sessions come to rest");
  }

  static bool Hello(int socket, const std::string& device) {
    share::Hello hello;
    hello.abi_version = share::kAbiVersion;
    std::memcpy(hello.device.data(), device.data(), std::min<std::size_t>(device.size(), 15));
    return fuzz::SendDatagram(socket, BytesOf(hello), {});
  }

  void Step() {
    const std::size_t op = script_.Pick(16);
    if (clients_.empty() || (op == 0 && clients_.size() < 8)) {
      clients_.push_back(fuzz::ConnectTo(path_));
      if (script_.Chance(200)) {
        (void)Hello(clients_.back().get(), script_.Chance(128) ? "" : "hbm1");
      }
      Pump();
      return;
    }
    const std::size_t at = script_.Pick(clients_.size());
    const int client = clients_[at].get();
    switch (op) {
      case 1:
        clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(at));
        return;
      case 2:
        shutdown(client, script_.Chance(128) ? SHUT_WR : SHUT_RD);
        return;
      case 3:
        (void)fuzz::TakeDatagrams(client);
        return;
      case 4:
        return Pump();
      case 5:
        return Job();
      case 6:
        sessions_->Expel(1 + static_cast<SessionId>(1 + script_.Pick(6)), "fuzz");
        return;
      case 7:
        world_.EndCopies(2);
        return world_.Run(milliseconds(script_.Pick(40)));
      default:
        (void)fuzz::SendDatagram(client, fuzz::Spoil(Message(), script_),
                                 descriptors_.Some(script_));
        if (script_.Chance(160)) Pump();
    }
  }

  std::string Message() {
    switch (script_.Pick(7)) {
      case 0: {
        share::Hello hello;
        hello.abi_version = share::kAbiVersion + (script_.Pick(16) == 0 ? 1 : 0);
        const std::string_view device = script_.Bytes(script_.Pick(17));
        std::copy(device.begin(), device.end(), hello.device.begin());
        return BytesOf(hello);
      }
      case 1:
        return BytesOf(share::SegmentRequest{
            .segment = (static_cast<SegmentId>(script_.Pick(5)) << 16) | (script_.Byte() & 3u)});
      case 2:
      case 3: {
        share::AttachRequest request;
        request.region = script_.Pick(6);
        request.bytes =
            script_.Chance(160) ? 4096 * script_.Pick(6) : script_.Number<std::uint64_t>();
        return BytesOf(request);
      }
      case 4:
        return BytesOf(share::EventsRequest{});
      case 5:
        return BytesOf(share::Goodbye{});
      default: {  // ours to send, not theirs
        share::WireHeader header;
        header.type = static_cast<share::WireType>(script_.Pick(16));
        return BytesOf(header) + std::string(script_.Bytes(script_.Byte()));
      }
    }
  }

  // Uses what was attached.
  void Job() {
    core::JobArgs args;
    args.kind = script_.Chance(128) ? core::JobKind::kStore : core::JobKind::kLoad;
    args.job = 1 + script_.Pick(4);
    args.deadline = world_.clock().Now() + milliseconds(20);
    core::JobKeySpec key;
    key.tensor.key = absl::StrCat("k", script_.Pick(4));
    key.fragments.push_back({.region = script_.Pick(6),
                             .offset = Bytes{script_.Byte()} * 64,
                             .bytes = 1 + Bytes{script_.Byte()} * 8});
    key.tensor.bytes = key.fragments[0].bytes;
    args.keys.push_back(std::move(key));
    (void)world_.manager().StartJob(1 + static_cast<SessionId>(script_.Pick(8)), std::move(args));
  }

  fuzz::Script script_;
  const fuzz::Descriptors& descriptors_;
  const std::string& path_;
  fuzz::CoreWorld world_;
  boost::asio::io_context io_{1};
  std::unique_ptr<daemon::Sessions> sessions_;
  share::UniqueFd honest_;
  std::vector<share::UniqueFd> clients_;
};

// Made once, for they are dear and no input changes them.
struct Shared {
  std::string path = fuzz::AbstractName("session") + "/session.sock";
  fuzz::Descriptors descriptors;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Shared* const shared = [] {
    spdlog::set_level(spdlog::level::off);
    return new Shared;
  }();
  static std::size_t before = 0;
  SessionWorld(fuzz::Script(data, size), shared->descriptors, shared->path).Play();
  // The first input also opens what stays open. Strays are closed by threads of their own.
  std::vector<std::string> open = fuzz::OpenDescriptors();
  if (before == 0) before = open.size();
  for (int i = 0; open.size() > before; ++i) {
    Require(i < 5000, absl::StrCat("no descriptor is kept; there are ", absl::StrJoin(open, ", ")));
    ::poll(nullptr, 0, 1);
    open = fuzz::OpenDescriptors();
  }
  return 0;
}
