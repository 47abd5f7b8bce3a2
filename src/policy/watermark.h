// SPDX-License-Identifier: Apache-2.0
//
// When background demotion of a tier starts, when it stops, and how many bytes it must still free.
// Pure: the caller keeps the one bit of history (draining) and asks again after every change.
//
//   0            low          high        capacity
//   |-------------|------------|-----|--------|
//                 stop         start  `- reserve: kept free for demand SwapIns
//
// Demotion starts when used rises above the start mark and goes on until used is at or below the
// stop mark. The reserve bounds the start mark: start = min(high x capacity, capacity - reserve).
// Where it lowers it, the stop mark is lowered in proportion, so that the two stay apart.
//
// Any thread.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "base/units.h"

namespace hmm::policy {

struct Watermarks {
  Bytes capacity = 0;
  double high = 0.90;  // used/capacity
  double low = 0.80;   // used/capacity
  Bytes reserve = 0;
};

// INVALID_ARGUMENT/BAD_ARGUMENT unless 0 < low < high <= 1 and the reserve is at most half of the
// capacity (more would empty the tier: it bounds the marks); the message names the tier, the
// values, and what to write instead.
absl::Status ValidateWatermarks(std::string_view tier, const Watermarks& marks);

struct Marks {
  Bytes start = 0;
  Bytes stop = 0;  // < start, but for capacities of a few bytes
  friend bool operator==(const Marks&, const Marks&) = default;
};
// REQUIRES: ValidateWatermarks(marks) is OK.
Marks MarksInBytes(const Watermarks& marks);

struct Occupancy {
  Bytes used = 0;                 // bytes in extents, those on their way out included
  Bytes in_flight_out_bytes = 0;  // of them, being moved out already
};

struct Drain {
  bool draining = false;  // give it back at the next call
  Bytes to_free = 0;      // beyond what is in flight; 0 when not draining
  friend bool operator==(const Drain&, const Drain&) = default;
};

// What background demotion has to do now. `draining` is what the last call said (false at first).
// While bytes in flight are enough, to_free is 0 but draining stays true: should such a move fail,
// the next call asks for its bytes again. REQUIRES: ValidateWatermarks(marks) is OK.
Drain DecideDrain(const Watermarks& marks, const Occupancy& now, bool draining);

}  // namespace hmm::policy
