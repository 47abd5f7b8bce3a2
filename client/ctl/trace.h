// SPDX-License-Identifier: Apache-2.0
//
// A trace of requests, each the prefix blocks its prompt is made of, in order. The same id is the
// same reusable block. Ids come as runs, since a prompt's new blocks are numbered in a row: the
// agentic trace is 94 million accesses in a few hundred thousand runs. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hmm::ctl {

// Blocks first, first + 1, .. first + count - 1.
struct BlockRun {
  std::uint64_t first = 0;
  std::uint32_t count = 0;
};

struct TraceRequest {
  std::uint64_t time_us = 0;  // since the start of the trace
  std::vector<BlockRun> runs;

  std::size_t BlockCount() const {
    std::size_t blocks = 0;
    for (const BlockRun& run : runs) blocks += run.count;
    return blocks;
  }
  std::vector<std::uint64_t> Blocks() const {
    std::vector<std::uint64_t> blocks;
    blocks.reserve(BlockCount());
    for (const BlockRun& run : runs) {
      for (std::uint64_t i = 0; i < run.count; ++i) blocks.push_back(run.first + i);
    }
    return blocks;
  }
};

struct Trace {
  std::string format;                  // "mooncake" or "agentic"
  std::vector<TraceRequest> requests;  // in order of time
};

}  // namespace hmm::ctl
