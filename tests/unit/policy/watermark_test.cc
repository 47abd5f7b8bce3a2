// SPDX-License-Identifier: Apache-2.0
#include "policy/watermark.h"

#include <limits>
#include <string>

#include "base/status.h"
#include "support/catch.h"

namespace hmm::policy {
namespace {

constexpr Watermarks kMarks{.capacity = 1000, .high = 0.9, .low = 0.75, .reserve = 50};

bool Says(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

TEST_CASE("demotion starts above high, not at it") {
  REQUIRE(DecideDrain(kMarks, {.used = 0}, false) == Drain{});
  REQUIRE(DecideDrain(kMarks, {.used = 800}, false) == Drain{});
  REQUIRE(DecideDrain(kMarks, {.used = 900}, false) == Drain{});
  REQUIRE(DecideDrain(kMarks, {.used = 901}, false) == Drain{.draining = true, .to_free = 151});
  REQUIRE(DecideDrain(kMarks, {.used = 1000}, false) == Drain{.draining = true, .to_free = 250});
}

TEST_CASE("once started it goes on below high until low is reached") {
  REQUIRE(DecideDrain(kMarks, {.used = 900}, true) == Drain{.draining = true, .to_free = 150});
  REQUIRE(DecideDrain(kMarks, {.used = 751}, true) == Drain{.draining = true, .to_free = 1});
  REQUIRE(DecideDrain(kMarks, {.used = 750}, true) == Drain{});
  REQUIRE(DecideDrain(kMarks, {.used = 0}, true) == Drain{});
}

TEST_CASE("bytes on their way out count as freed, but end nothing before they have left") {
  const Occupancy leaving{.used = 950, .in_flight_out_bytes = 60};
  REQUIRE(DecideDrain(kMarks, leaving, false) == Drain{});
  REQUIRE(DecideDrain(kMarks, leaving, true) == Drain{.draining = true, .to_free = 140});
  const Occupancy enough{.used = 950, .in_flight_out_bytes = 300};
  REQUIRE(DecideDrain(kMarks, enough, true) == Drain{.draining = true, .to_free = 0});
  // Such a move failed: its bytes are asked for again.
  REQUIRE(DecideDrain(kMarks, {.used = 950}, true) == Drain{.draining = true, .to_free = 200});
  // More in flight than used (a tensor doomed meanwhile) is no underflow.
  REQUIRE(DecideDrain(kMarks, {.used = 800, .in_flight_out_bytes = 900}, true) ==
          Drain{.draining = true, .to_free = 0});
}

TEST_CASE("a whole drain: each answer is carried out, then nothing more until high again") {
  Occupancy now{.used = 930};
  Drain drain;
  int rounds = 0;
  do {
    drain = DecideDrain(kMarks, now, drain.draining);
    now.used -= drain.to_free > 40 ? 40 : drain.to_free;
    ++rounds;
  } while (drain.draining);
  REQUIRE(now.used == 750);
  REQUIRE(rounds == 6);
  now.used = 890;
  REQUIRE(DecideDrain(kMarks, now, drain.draining) == Drain{});
}

TEST_CASE("a large reserve pulls both marks down and keeps them apart") {
  REQUIRE(MarksInBytes(kMarks) == Marks{.start = 900, .stop = 750});
  const Watermarks reserved{.capacity = 1000, .high = 0.8, .low = 0.6, .reserve = 500};
  REQUIRE(MarksInBytes(reserved) == Marks{.start = 500, .stop = 375});
  REQUIRE(DecideDrain(reserved, {.used = 501}, false) == Drain{.draining = true, .to_free = 126});
}

TEST_CASE("high = 1 means only a reserve starts demotion") {
  const Watermarks full{.capacity = 1000, .high = 1.0, .low = 0.5, .reserve = 0};
  REQUIRE(DecideDrain(full, {.used = 1000}, false) == Drain{});
  const Watermarks kept{.capacity = 1000, .high = 1.0, .low = 0.5, .reserve = 100};
  REQUIRE(DecideDrain(kept, {.used = 901}, false) == Drain{.draining = true, .to_free = 451});
}

TEST_CASE("good watermarks are accepted, the widest included") {
  REQUIRE(ValidateWatermarks("hbm0", kMarks).ok());
  REQUIRE(ValidateWatermarks("hbm0", {.capacity = 1, .high = 1.0, .low = 1e-9, .reserve = 0}).ok());
  REQUIRE(ValidateWatermarks("hbm0", Watermarks{.capacity = 64 * kGiB}).ok());
  REQUIRE(ValidateWatermarks("hbm0", Watermarks{.capacity = 1000, .reserve = 500}).ok());
}

TEST_CASE("bad watermarks are refused with the tier, the values and what to write") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Watermarks& bad :
       {Watermarks{.capacity = 1000, .high = 0.75, .low = 0.9},
        Watermarks{.capacity = 1000, .high = 0.8, .low = 0.8},
        Watermarks{.capacity = 1000, .high = 1.1, .low = 0.9},
        Watermarks{.capacity = 1000, .high = 0.9, .low = 0.0},
        Watermarks{.capacity = 1000, .high = 0.9, .low = -0.1},
        Watermarks{.capacity = 1000, .high = 0.0, .low = 0.0},
        Watermarks{.capacity = 1000, .high = nan, .low = 0.5},
        Watermarks{.capacity = 1000, .high = 0.9, .low = nan}, Watermarks{.capacity = 0},
        Watermarks{.capacity = 1000, .reserve = 501}, Watermarks{.capacity = 1000, .reserve = 1000},
        Watermarks{.capacity = 1000, .reserve = 1001}}) {
    const absl::Status status = ValidateWatermarks("ddr0", bad);
    INFO(bad.high << " " << bad.low << " " << bad.reserve << ": " << status);
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    REQUIRE(ReasonOf(status) == Reason::kBadArgument);
    REQUIRE(Says(status, "tier ddr0"));
    REQUIRE(Says(status, "; write "));
  }
  const absl::Status swapped =
      ValidateWatermarks("ddr0", {.capacity = 1000, .high = 0.75, .low = 0.9});
  REQUIRE(Says(swapped, "low = 0.9"));
  REQUIRE(Says(swapped, "high = 0.75"));
  const absl::Status greedy = ValidateWatermarks("ddr0", {.capacity = 1000, .reserve = 2000});
  REQUIRE(Says(greedy, "reserve = 2000"));
  REQUIRE(Says(greedy, "1000"));
}

}  // namespace
}  // namespace hmm::policy
