// SPDX-License-Identifier: Apache-2.0
//
// What the planner knows of a machine: compute, HBM, and the links between tiers as design section
// 6 describes them. A value; pure functions, callable from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/units.h"

namespace hmm::plan {

struct BandwidthPoint {
  Bytes bytes = 0;          // size of one transfer
  double bytes_per_us = 0;  // what that size reaches, latency not counted; > 0
};

// One direction between two neighbouring tiers.
struct Link {
  TierKind from = TierKind::kHbm;
  TierKind to = TierKind::kDdr;
  // Copy engines of this direction. Transfers go one after another; with several engines the fixed
  // cost of one hides behind the body of the one before, so each pays latency / engines.
  std::uint32_t engines = 1;
  double latency_us = 0;
  std::vector<BandwidthPoint> curve;  // ascending sizes, not empty; flat beyond both ends
  // What is left of the rate while another link of the same contention group is busy; 0 < f <= 1.
  double duplex_factor = 1;
  std::uint32_t contention_group = 0;
};

struct Machine {
  std::string name;
  std::string assumptions;  // which of the numbers are not measured; printed with every report
  double flops_per_us = 0;  // sustained
  double hbm_bytes_per_us = 0;
  double launch_us = 0;  // fixed cost of an op
  Bytes hbm_bytes = 0;
  Bytes ddr_bytes = 0;    // for planned tensors; 0: no such tier
  Bytes flash_bytes = 0;  // 0: no such tier
  std::vector<Link> links;
};

// nullptr: no such link.
const Link* FindLink(const Machine& machine, TierKind from, TierKind to);

// Bytes per microsecond that a transfer of this size reaches: log-linear between the points.
double BandwidthAt(const Link& link, Bytes bytes);

// Time a transfer occupies the link when nothing contends. REQUIRES: link.curve is not empty.
double TransferUs(const Link& link, Bytes bytes);

// "h100", "gh200", "ascend-supernode"; nullopt for another name.
std::optional<Machine> MachinePreset(std::string_view name);
const std::vector<std::string_view>& MachinePresetNames();

}  // namespace hmm::plan
