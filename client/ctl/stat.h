// SPDX-License-Identifier: Apache-2.0
//
// The numbers of `hmmctl stat`: two looks at the daemon's counters, and what happened in between.
// The first report covers the time since the daemon started, as zpool iostat does. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hmm/v1/inspection.pb.h"

namespace hmm::ctl {

struct StatTier {
  std::string name;
  std::string kind;
  bool emulated = false;
  std::uint64_t capacity_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t pinned_bytes = 0;
  std::uint64_t hits = 0;  // in the interval, as all below
  std::uint64_t moves_in = 0;
  std::uint64_t moves_out = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
};

struct StatReport {
  std::uint64_t epoch = 0;
  double seconds = 0;  // length of the interval
  std::vector<StatTier> tiers;
  std::uint64_t lookups = 0;
  std::uint64_t misses = 0;
  std::uint64_t allocations = 0;
  std::uint64_t evictions = 0;

  double PerSecond(std::uint64_t count) const {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
  }
};

// `before` unset, or of another epoch (the daemon was restarted): since the start.
StatReport MakeStatReport(const std::optional<v1::GetStatusResponse>& before,
                          const v1::GetStatusResponse& now);

}  // namespace hmm::ctl
