// SPDX-License-Identifier: Apache-2.0
//
// The lines of a text file, plain or gzipped (told by its content), one at a time and bounded: a
// line and the whole have a largest size, so that a decompression bomb ends in an error. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hmm::ctl {

class LineSource {
 public:
  virtual ~LineSource() = default;
  // The next line without its end; false at the end of the text. BAD_TRACE for a file that is cut
  // short, corrupt or beyond a limit.
  virtual absl::StatusOr<bool> Next(std::string* line) = 0;
};

// Opens `path`. The errno of the system call as a status when that fails.
absl::StatusOr<std::unique_ptr<LineSource>> OpenLines(const std::string& path,
                                                      std::uint64_t text_bytes_max,
                                                      std::size_t line_bytes_max);

// Lines of text in memory, which outlives the source.
std::unique_ptr<LineSource> LinesOf(std::string_view text);

}  // namespace hmm::ctl
