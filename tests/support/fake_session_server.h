// SPDX-License-Identifier: Apache-2.0
//
// The daemon's end of the session socket, for tests of the client: it greets as told, owns a table,
// a page and segments that the test writes, and serves no RPC. One client at a time; its own thread
// accepts and answers. The test's thread may touch table, page and segments at any time (atomics).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "share/layout.h"
#include "share/memory_file.h"
#include "share/pin.h"
#include "share/session_wire.h"

namespace hmm::testing {

class FakeSessionServer {
 public:
  static constexpr std::uint32_t kTensors = 64;
  static constexpr Bytes kSegmentBytes = 64 * kKiB;

  enum class Greeting { kWelcome, kRefuse, kGarbage, kSilence, kNoDescriptors, kOtherAbi, kHangUp };

  explicit FakeSessionServer(Greeting greeting = Greeting::kWelcome, std::uint64_t epoch = 7);
  ~FakeSessionServer();

  const std::string& dir() const { return dir_; }
  // Hangs up on the client and answers no more.
  void HangUp();
  // Makes a segment to be pulled. `claimed_bytes`: what the reply says.
  void AddSegment(SegmentId segment, Bytes claimed_bytes = kSegmentBytes);
  int requests() const { return requests_.load(); }

  // Publishes a tensor as the daemon would.
  void Publish(std::uint32_t slot, std::uint32_t generation, TensorState state, SegmentId segment,
               Bytes offset, Bytes bytes);
  std::uint32_t pins(std::uint32_t slot) const;
  void PinForClient(std::uint32_t slot);
  std::byte* segment_data(SegmentId segment) { return segments_.at(segment).mapping.data(); }

 private:
  struct Segment {
    share::UniqueFd fd;
    share::Mapping mapping;
    Bytes claimed_bytes = 0;
  };

  void Serve();
  bool Greet(int client);
  void Answer(int client, const share::SegmentRequest& request);

  const Greeting greeting_;
  const std::uint64_t epoch_;
  std::string dir_;
  share::UniqueFd listener_;
  share::UniqueFd stop_;
  share::UniqueFd table_fd_;
  share::UniqueFd page_fd_;
  share::Mapping table_;
  share::Mapping page_;
  std::map<SegmentId, Segment> segments_;  // filled before the client asks
  std::atomic<int> requests_{0};
  std::thread thread_;
};

}  // namespace hmm::testing
