// SPDX-License-Identifier: Apache-2.0
//
// The one source of time for the core. Tests inject tests/support/manual_clock.h, so that a whole
// run is a function of its seed.
#pragma once

#include "base/units.h"

namespace hmm {

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic. May be called from any thread.
  virtual TimePoint Now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override {
    return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
  }
};

}  // namespace hmm
