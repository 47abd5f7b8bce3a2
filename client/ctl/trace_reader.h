// SPDX-License-Identifier: Apache-2.0
//
// Reads traces of inference servers, plain or gzipped; the format is told by the content, not by
// the name.
//
//   mooncake  JSON lines: {"timestamp": ms, "hash_ids": [block ids of the prompt, in order], ...}
//   agentic   JSON lines, one session each: {"requests": [[start s, input tokens, output tokens,
//             [[first block, n], ...], thread, duration s], ...], ...}; ids are local to the
//             session and made unique here; sessions are interleaved by the start times of their
//             requests
//   azure     CSV of arrivals without block ids: recognised, and refused by name
//
// Requests that are not in order of time are sorted; equal times keep the order of the file. Pure
// but for reading the file; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/ctl/trace.h"

namespace hmm::ctl {

// Past these a file is refused, so that a broken one cannot eat the machine.
struct TraceLimits {
  std::uint64_t text_bytes = std::uint64_t{4} << 30;  // unpacked
  std::size_t line_bytes = std::size_t{64} << 20;
  std::size_t requests = 10'000'000;
  std::size_t blocks_per_request = 1'000'000;
};

// INVALID_ARGUMENT/BAD_TRACE names file, line and what is wrong (empty file, unknown format, cut
// short, a field missing or out of range); a file that cannot be read is what errno says.
absl::StatusOr<Trace> ReadTrace(const std::string& path, const TraceLimits& limits = {});

// The same for text in memory; `name` stands for the file in messages.
absl::StatusOr<Trace> ParseTrace(std::string_view text, const std::string& name,
                                 const TraceLimits& limits = {});

}  // namespace hmm::ctl
