// SPDX-License-Identifier: Apache-2.0
//
// Acts as an inference server that a trace's requests arrive at. Each request looks up its prefix
// blocks; every byte of each hit is compared with what must be there; the blocks that are missing
// are allocated, filled, sealed and given back. At the end nothing is pinned.
//
// Blocks are handled in windows, so that a request longer than what a session may pin works too.
// The windows of a request's missing blocks are allocated from the last to the first, and within
// one batch the daemon counts the first block as used last: a prefix never leaves before what hangs
// on it.
//
// Replayer::Run starts its own threads and returns when they have ended.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/units.h"
#include "client/ctl/block_store.h"
#include "client/ctl/replay_report.h"
#include "client/ctl/trace.h"

namespace hmm::ctl {

struct ReplayOptions {
  Bytes block_bytes = 64 * kKiB;
  std::size_t requests_max = 0;  // the first n of the trace; 0: all
  double speed = 0;              // times as fast as the requests arrived; 0: as fast as it goes
  std::size_t threads = 1;
  std::uint64_t seed = 1;
  std::string key_prefix;
  Bytes window_bytes = 16 * kMiB;  // pinned at once by one thread; at least one block
  // This process serves requests part, part + parts, part + 2 * parts, ...
  std::size_t part = 0;
  std::size_t parts = 1;
  std::chrono::milliseconds call_timeout{30000};
  std::chrono::milliseconds retry_max{10000};  // a window that finds no room is given up after this
  std::size_t errors_in_a_row_max = 16;  // then the daemon is taken for gone, and the run ends
  std::map<std::string, TierKind> tier_kinds;  // by name; others by the beginning of their name
};

// Key of a block: what differs between runs that must not share is in it.
std::string BlockKey(const ReplayOptions& options, std::uint64_t block);

// hbm*, ddr*, flash* where the map has no such name; anything else counts as ddr.
TierKind KindOfTier(const ReplayOptions& options, std::string_view name);

class Replayer {
 public:
  // All outlive the run. REQUIRES: block_bytes, threads, parts > 0.
  Replayer(const Trace& trace, ReplayOptions options, BlockStore& store);

  // Requests begun until now, of total(); any thread.
  std::size_t done() const { return done_.load(std::memory_order_relaxed); }
  std::size_t total() const { return total_; }

  // Serves all requests, or stops after the ones in hand when `stop` is asked for.
  ReplayTally Run(const std::stop_token& stop);

 private:
  class Server;

  const Trace& trace_;
  const ReplayOptions options_;
  BlockStore& store_;
  std::size_t total_ = 0;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> done_{0};
  std::atomic<std::size_t> errors_in_a_row_{0};
};

}  // namespace hmm::ctl
