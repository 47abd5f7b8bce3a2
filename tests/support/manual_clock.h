// SPDX-License-Identifier: Apache-2.0
// Time that passes only when a test says so.
#pragma once

#include "base/clock.h"

namespace hmm::testing {

class ManualClock final : public Clock {
 public:
  TimePoint Now() const override { return now_; }
  void Advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{std::chrono::seconds(1)};
};

}  // namespace hmm::testing
