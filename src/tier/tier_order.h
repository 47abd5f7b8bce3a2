// SPDX-License-Identifier: Apache-2.0
//
// From what the configuration says of its tiers, and the topology: which is faster than which, and
// where each one's tensors go when it fills.
//
//   hbm0 --\                                    rank 0: hbm0, hbm1
//           +--> ddr0 --> ddr_remote --> flash0      1: ddr0   2: ddr_remote   3: flash0
//   hbm1 --/
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "tier/topology.h"

namespace hmm::tier {

struct TierPlace {
  std::string name;
  TierKind kind = TierKind::kDdr;
  int numa_node = -1;        // -1: any
  Bytes link_bandwidth = 0;  // a second, of an emulated tier; 0: as fast as it goes
  std::string demote_to;     // given by name; empty: derived
};

// What is wrong with the paths that are given.
struct PathFault {
  std::size_t tier = 0;
  std::string what;
};
// A name that is unknown or the tier's own, a way up, a way on from flash, a circle.
std::optional<PathFault> CheckPaths(const std::vector<TierPlace>& places);

struct TierOrder {
  // Indices into `places`, so that each tier stands before where it demotes to: by kind, then rank,
  // then as they were given.
  std::vector<std::size_t> order;
  std::vector<unsigned> ranks;                        // by place; 0: fastest; equal: about as fast
  std::vector<std::optional<std::size_t>> demote_to;  // by place
};

// What is not given: from hbm to the nearest of the fastest slower kind; from ddr to a slower ddr
// if there is one, and on to flash. Tiers of equal rank do not demote to each other. REQUIRES:
// CheckPaths(places) has nothing to say; 1 tier or more.
TierOrder OrderTiers(const std::vector<TierPlace>& places, const Topology& topology);

}  // namespace hmm::tier
