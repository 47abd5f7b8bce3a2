// SPDX-License-Identifier: Apache-2.0
//
// Requests that are begun and never ended: what the daemon keeps of them is bounded, whoever sends
// them, and others are served meanwhile. In bare HTTP/2, for no client library would do it.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rpc/fixture.h"
#include "support/catch.h"

namespace hmm::testing {
namespace {

constexpr std::size_t kMessage = 1'000'000;  // of which the last bytes never come

std::uint32_t Big32(const std::uint8_t* at) {
  return std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 |
         at[3];
}
std::string Big32(std::uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
  return out;
}
// RFC 9113, 4.1.
enum FrameType : std::uint8_t {
  kData,
  kHeaders,
  kRstStream = 3,
  kSettings,
  kPing = 6,
  kGoAway,
  kWindowUpdate
};
std::string Frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                  const std::string& payload) {
  std::string out = Big32(static_cast<std::uint32_t>(payload.size())).substr(1);
  out.push_back(static_cast<char>(type));
  out.push_back(static_cast<char>(flags));
  return out + Big32(stream) + payload;
}
// RFC 7541, 6.2.2: literals without indexing.
std::string Headers() {
  std::string out;
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{":method", "POST"},
                                          {":scheme", "http"},
                                          {":path", "/hmm.v1.Memory/Lookup"},
                                          {":authority", "x"},
                                          {"content-type", "application/grpc"},
                                          {"te", "trailers"}}) {
    out += std::string(1, '\0') + static_cast<char>(name.size()) + name +
           static_cast<char>(value.size()) + value;
  }
  return out;
}

// A connection with calls that send all of their message but its end, as far as they are let.
class Dawdler {
 public:
  Dawdler(const std::string& socket, int calls) : fd_(ConnectUnix(socket, SOCK_STREAM)) {
    REQUIRE(fd_.valid());
    out_ = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "");
    for (int i = 0; i < calls; ++i) {
      const std::uint32_t stream = 1 + 2 * static_cast<std::uint32_t>(i);
      out_ += Frame(kHeaders, 4, stream, Headers());
      Send(stream, std::string(1, '\0') + Big32(kMessage));
    }
  }

  // Once: takes what came, sends what may be sent. False: there was nothing to do.
  bool Go() {
    const bool took = Take();
    const bool sent = Push();
    return took || sent;
  }
  // Bytes of calls that nobody has ended.
  std::size_t kept() const {
    std::size_t sum = 0;
    for (const auto& [stream, call] : calls_) sum += call.sent;
    return sum;
  }
  std::size_t ended() const { return ended_; }

 private:
  struct Call {
    std::size_t sent = 0;
    std::int64_t window = 0;  // less what all streams have
  };

  void Send(std::uint32_t stream, const std::string& bytes) {
    out_ += Frame(kData, 0, stream, bytes);
    calls_[stream].sent += bytes.size();
    calls_[stream].window -= static_cast<std::int64_t>(bytes.size());
    window_ -= static_cast<std::int64_t>(bytes.size());
  }
  bool Push() {
    for (auto& [stream, call] : calls_) {
      if (out_.size() > 64 * 1024) break;
      const std::int64_t may = std::min(
          {window_, stream_window_ + call.window, std::int64_t{16'384},
           static_cast<std::int64_t>(kMessage) - 100 - static_cast<std::int64_t>(call.sent)});
      if (may > 0) Send(stream, std::string(static_cast<std::size_t>(may), '\x12'));
    }
    if (out_.empty()) return false;
    const ssize_t sent = send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) out_.erase(0, static_cast<std::size_t>(sent));
    return sent > 0;
  }
  bool Take() {
    std::uint8_t bytes[65536];
    const ssize_t got = recv(fd_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == 0) {  // hung up on: all of it is gone
      ended_ += calls_.size();
      calls_.clear();
    }
    if (got <= 0) return false;
    in_.insert(in_.end(), bytes, bytes + got);
    std::size_t at = 0;
    while (in_.size() - at >= 9) {
      const std::size_t length = Big32(&in_[at]) >> 8;
      if (in_.size() - at < 9 + length) break;
      Frame_(in_[at + 3], in_[at + 4], Big32(&in_[at + 5]) & 0x7fffffff, &in_[at + 9], length);
      at += 9 + length;
    }
    in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(at));
    return true;
  }
  void Frame_(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
              const std::uint8_t* payload, std::size_t length) {
    const bool ack = (flags & 1) != 0;
    if (type == kWindowUpdate && length == 4) {
      if (stream == 0) window_ += Big32(payload);
      const auto call = calls_.find(stream);
      if (call != calls_.end()) call->second.window += Big32(payload);
    } else if (type == kSettings && !ack) {
      for (std::size_t i = 0; i + 6 <= length; i += 6) {
        if (payload[i + 1] == 4) stream_window_ = Big32(payload + i + 2);  // INITIAL_WINDOW_SIZE
      }
      out_ += Frame(kSettings, 1, 0, "");
    } else if (type == kPing && !ack) {
      out_ += Frame(kPing, 1, 0, std::string(reinterpret_cast<const char*>(payload), length));
    } else if (type == kRstStream) {
      ended_ += calls_.erase(stream);
    }
  }

  share::UniqueFd fd_;
  std::string out_;
  std::vector<std::uint8_t> in_;
  std::map<std::uint32_t, Call> calls_;
  std::int64_t window_ = 65'535;
  std::int64_t stream_window_ = 65'535;
  std::size_t ended_ = 0;
};

TEST_CASE("requests that never end take bounded memory, and others are served") {
  InProcessDaemon daemon([](daemon::Config& config) { config.message_max = kMiB; });
  std::vector<Dawdler> dawdlers;
  for (int i = 0; i < 8; ++i) dawdlers.emplace_back(daemon.dir() + "/hmm.sock", 25);
  // 200 MB if they are let; until nothing has come or gone for a while.
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  auto quiet = begin;
  while (Clock::now() - quiet < std::chrono::seconds(1) &&
         Clock::now() - begin < std::chrono::seconds(60)) {
    bool busy = false;
    for (Dawdler& dawdler : dawdlers) busy |= dawdler.Go();
    if (busy) {
      quiet = Clock::now();
    } else {
      poll(nullptr, 0, 2);
    }
  }
  std::size_t kept = 0;
  std::size_t ended = 0;
  for (const Dawdler& dawdler : dawdlers) kept += dawdler.kept(), ended += dawdler.ended();
  INFO(kept << " bytes kept, " << ended << " calls ended");
  CHECK(ended > 0);
  CHECK(kept < 100'000'000);
  RawClient other(daemon.dir());
  CHECK(other.Status().epoch() != 0);
}

}  // namespace
}  // namespace hmm::testing
