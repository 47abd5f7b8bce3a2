// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of watermarks. Pure, any thread.
#include "policy/watermark.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace hmm::policy {
namespace {

// To the nearest byte: 0.6 / 0.8 of 400 is 300, whatever the last bit of the quotient says.
Bytes Share(double fraction, Bytes whole) {
  return std::min(whole, static_cast<Bytes>(fraction * static_cast<double>(whole) + 0.5));
}

absl::Status Bad(std::string_view tier, const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
               absl::StrCat("tier ", std::string(tier), ": ", what));
}

}  // namespace

absl::Status ValidateWatermarks(std::string_view tier, const Watermarks& marks) {
  // Written so that NaN fails too.
  if (!(marks.high > 0.0 && marks.high <= 1.0)) {
    return Bad(tier, absl::StrCat("high = ", marks.high,
                                  " is not a part of the capacity; write a number above low (",
                                  marks.low, ") and at most 1, such as 0.90"));
  }
  if (!(marks.low > 0.0 && marks.low < marks.high)) {
    return Bad(tier, absl::StrCat("low = ", marks.low, " is not between 0 and high = ", marks.high,
                                  "; write a number above 0 and below ", marks.high, ", such as ",
                                  marks.high * 0.9));
  }
  if (marks.capacity == 0) {
    return Bad(tier, "capacity = 0; write the bytes it may hold, such as 64GiB");
  }
  if (marks.reserve > marks.capacity / 2) {
    return Bad(tier, absl::StrCat("reserve = ", marks.reserve,
                                  " bytes is more than half of capacity = ", marks.capacity,
                                  " bytes: the tier would empty itself down to the rest; write at "
                                  "most ",
                                  marks.capacity / 2, ", such as ", marks.capacity / 20,
                                  " (the largest tensor is enough)"));
  }
  return absl::OkStatus();
}

Marks MarksInBytes(const Watermarks& marks) {
  const Bytes high = Share(marks.high, marks.capacity);
  const Bytes unreserved = marks.capacity - marks.reserve;
  if (high <= unreserved) return {.start = high, .stop = Share(marks.low, marks.capacity)};
  return {.start = unreserved, .stop = Share(marks.low / marks.high, unreserved)};
}

Drain DecideDrain(const Watermarks& marks, const Occupancy& now, bool draining) {
  HMM_DCHECK(ValidateWatermarks("?", marks).ok());
  const Marks at = MarksInBytes(marks);
  const Bytes staying = now.used - std::min(now.used, now.in_flight_out_bytes);
  // What leaves anyway is no reason to start, but is no reason to stop either before it has left.
  const bool drain = draining ? now.used > at.stop : staying > at.start;
  if (!drain) return {};
  return {.draining = true, .to_free = staying > at.stop ? staying - at.stop : 0};
}

}  // namespace hmm::policy
