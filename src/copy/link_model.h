// SPDX-License-Identifier: Apache-2.0
//
// What was measured of one direction between two tiers (copy/calibration.h), and the time that a
// move takes by it. Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/units.h"

namespace hmm::copy {

struct RatePoint {
  Bytes bytes = 0;              // size of one move
  double bytes_per_second = 0;  // over many, with `engines` under way
  friend bool operator==(const RatePoint&, const RatePoint&) = default;
};

struct LinkModel {
  TierId from = 0;
  TierId to = 0;
  Duration latency{};            // of one move of 4 KiB, from Submit to its completion
  std::uint32_t engines = 1;     // moves under way at once that reach 0.9 of the best rate
  std::vector<RatePoint> curve;  // ascending sizes; empty: not measured, and `note` says why
  double duplex_factor = 1;      // share of the rate that is left while the other direction runs
  std::uint32_t contention_group = 0;  // links of one group share a medium; from 1
  std::string note;
  bool measured() const { return !curve.empty(); }
  friend bool operator==(const LinkModel&, const LinkModel&) = default;
};

// Log-linear between the points, flat beyond them. REQUIRES: measured.
double RateAt(const LinkModel& link, Bytes bytes);

// Of one move while nothing contends. REQUIRES: measured.
Duration TimeOf(const LinkModel& link, Bytes bytes);

// Whether a model can have been measured: what a file says is not believed.
bool Plausible(const LinkModel& link);

}  // namespace hmm::copy
