// SPDX-License-Identifier: Apache-2.0
//
// Intervals of a static address assignment as CSV, in the form of minimalloc's benchmarks:
//
//   id,lower,upper,size              the header; columns in any order, further ones:
//   b1,0,3,4                           alignment   of the offset, a power of two
//   b2,3,9,4                           gaps        "4-6 7-8": holes in the lifetime
//
// lower and upper are half-open times. Thread-compatible.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/layout.h"

namespace hmm::ctl {

struct LayoutCsv {
  std::vector<std::string> ids;
  std::vector<plan::Interval> intervals;  // one an id
};

// Errors are INVALID_ARGUMENT/BAD_GRAPH "<file>:<line>: ..."; RESOURCE_EXHAUSTED/TOO_LARGE past 64
// MiB or a million lines; what errno says of the file.
absl::StatusOr<LayoutCsv> ReadLayoutCsv(const std::string& path);
absl::StatusOr<LayoutCsv> ParseLayoutCsv(std::string_view text, const std::string& file);

// The same with a column "offset". REQUIRES: one offset an interval.
std::string FormatLayoutCsv(const LayoutCsv& csv, const std::vector<Bytes>& offsets);

}  // namespace hmm::ctl
