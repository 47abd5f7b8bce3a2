// SPDX-License-Identifier: Apache-2.0
//
// What an exact LRU over a chain of tiers would do with a trace: the yardstick `hmmctl replay` is
// measured against, and `hmmctl replay --forecast` without a daemon.
//
// A request may use only its leading run of blocks that are there; each counts as a hit of the tier
// it lies in, the rest are misses. Then all its blocks are touched from the last to the first, so
// that a prefix never leaves before what hangs on it. A block touched goes to the front of the
// first tier; what a tier cannot hold moves to the front of the next, from the last it is dropped.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "client/ctl/trace.h"

namespace hmm::ctl {

struct LruForecast {
  std::uint64_t requests = 0;
  std::uint64_t accesses = 0;
  std::uint64_t unique_blocks = 0;
  std::vector<std::uint64_t> hits;  // one for each tier
  std::uint64_t misses = 0;
  std::uint64_t dropped = 0;  // blocks that left the last tier
};

// `capacities` in blocks, fastest tier first.
LruForecast ForecastLru(absl::Span<const TraceRequest> requests,
                        absl::Span<const std::size_t> capacities);

}  // namespace hmm::ctl
