// SPDX-License-Identifier: Apache-2.0
//
// Static address assignment: every interval gets a fixed offset so that no two that live at the
// same time share a byte, and all end at or below the capacity. A pure function of its arguments:
// no I/O, no clock, no threads; may be called from any thread. The bound is a number of steps, so
// the answer is the same on every machine, and the same whatever order the intervals come in.
//
//   offset
//     5 |-----------|        capacity 5
//       | D |   C   |        A [0, 6) 2 bytes     C [2, 6) 2 bytes
//       |---|       |        B [0, 2) 1 byte      D [0, 2) 2 bytes
//       |-B-|-------|        live bytes: 5 up to time 2, then 4; so 5 is the lower bound, and
//       |     A     |        it is reached
//       +-----------+ time
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/units.h"

namespace hmm::plan {

// Half-open: [begin, end).
struct TimeSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct Interval {
  std::int64_t begin = 0;  // half-open lifetime [begin, end), in the caller's unit of time
  std::int64_t end = 0;
  Bytes bytes = 0;
  Bytes alignment = 1;  // of its offset; a power of two
  // Holes in the lifetime, where others may use its bytes (a tensor that is swapped out and comes
  // back to the same offset): ascending, not touching, strictly inside [begin, end).
  std::vector<TimeSpan> gaps = {};
};

struct LayoutProblem {
  std::vector<Interval> intervals = {};  // an interval is known by its place here
  Bytes capacity = 0;
  Bytes alignment = 1;  // of every offset, in addition to the interval's own; a power of two
};

struct LayoutOptions {
  // A step is one node of the search, or 1024 (interval, moment) pairs looked at on the way, about
  // a microsecond or two. The first of the quick heuristics is always run to its end.
  std::uint64_t steps_max = 4'000'000;
};

enum class LayoutVerdict {
  kFits,      // offsets are given and high_water <= capacity
  kTooSmall,  // proved: lower_bound > capacity, no assignment exists
  kGaveUp,    // the steps ran out first; whether it fits is not known
};

struct LayoutResult {
  LayoutVerdict verdict = LayoutVerdict::kGaveUp;
  std::vector<Bytes> offsets = {};  // one an interval; SolveLayout: empty unless it fits
  Bytes high_water = 0;             // of `offsets`: the highest end of an interval
  // No assignment has a lower high water. At first peak_bytes; more where a search proved more.
  Bytes lower_bound = 0;
  // The most that lives at one time (what alignment costs in any case included), and when first.
  Bytes peak_bytes = 0;
  std::int64_t peak_time = 0;
  std::uint64_t steps = 0;  // taken
};

// INVALID_ARGUMENT with the interval's index if a lifetime or a size is empty, gaps are not as said
// above, an alignment is not a power of two or exceeds 2^40, or sizes add up to 2^60 or more.
absl::Status CheckLayoutProblem(const LayoutProblem& problem);

// Finds offsets within problem.capacity. REQUIRES: CheckLayoutProblem(problem).ok().
LayoutResult SolveLayout(const LayoutProblem& problem, const LayoutOptions& options);

// Finds offsets with a high water as low as the steps allow, optimal where high_water ==
// lower_bound. Offsets are always given; the verdict says how they compare with the capacity.
// REQUIRES: CheckLayoutProblem(problem).ok().
LayoutResult MinimizeLayout(const LayoutProblem& problem, const LayoutOptions& options);

// One sentence for people: what came out, and when too small by how much and at what time.
std::string ExplainLayout(const LayoutProblem& problem, const LayoutResult& result);

}  // namespace hmm::plan
