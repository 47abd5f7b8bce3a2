// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/replay_traffic.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace hmm::ctl {
namespace {

constexpr Bytes kWindowMax = 16 * kMiB;
constexpr Bytes kPinnedShare = 4;  // all threads together: a quarter of the tier

std::map<std::string, v1::TierKind> Kinds(const v1::GetStatusResponse& status) {
  std::map<std::string, v1::TierKind> kinds;
  for (const v1::TierInfo& tier : status.tiers()) kinds[tier.name()] = tier.kind();
  return kinds;
}

// Bytes moved so far, by kind of source and target.
using KindPair = std::pair<v1::TierKind, v1::TierKind>;
std::map<KindPair, std::uint64_t> MovedByKind(const v1::GetStatusResponse& status) {
  std::map<std::string, v1::TierKind> kinds = Kinds(status);
  std::map<KindPair, std::uint64_t> moved;
  for (const v1::LinkInfo& link : status.links()) {
    moved[{kinds[link.from()], kinds[link.to()]}] += link.moved_bytes();
  }
  return moved;
}

}  // namespace

ReplayTraffic TrafficBetween(const v1::GetStatusResponse& before,
                             const v1::GetStatusResponse& after) {
  const bool same = before.epoch() == after.epoch();
  std::map<KindPair, std::uint64_t> then;
  if (same) then = MovedByKind(before);
  std::map<KindPair, std::uint64_t> now = MovedByKind(after);
  const auto moved = [&](v1::TierKind from, v1::TierKind to) {
    const KindPair way(from, to);
    return now[way] > then[way] ? now[way] - then[way] : 0;
  };
  ReplayTraffic traffic;
  traffic.hbm_to_ddr = moved(v1::TIER_KIND_HBM, v1::TIER_KIND_DDR);
  traffic.ddr_to_hbm = moved(v1::TIER_KIND_DDR, v1::TIER_KIND_HBM);
  traffic.ddr_to_flash = moved(v1::TIER_KIND_DDR, v1::TIER_KIND_FLASH);
  traffic.flash_to_ddr = moved(v1::TIER_KIND_FLASH, v1::TIER_KIND_DDR);
  const std::uint64_t evictions_then = same ? before.counters().evictions() : 0;
  traffic.evictions = after.counters().evictions() - evictions_then;
  return traffic;
}

bool HasEmulatedHbm(const v1::GetStatusResponse& status) {
  return std::any_of(status.tiers().begin(), status.tiers().end(), [](const v1::TierInfo& tier) {
    return tier.kind() == v1::TIER_KIND_HBM && tier.emulated();
  });
}

WorkerSetup MakeSetup(const ReplayArgs& args, const std::optional<v1::GetStatusResponse>& status) {
  WorkerSetup setup;
  setup.tier = args.tier;
  Bytes capacity = 0;
  if (status) {
    for (const v1::TierInfo& tier : status->tiers()) {
      const auto kind = static_cast<int>(tier.kind());
      if (kind >= 1 && kind <= 3) setup.tier_kinds[tier.name()] = static_cast<TierKind>(kind);
      if (setup.tier.empty() && tier.kind() == v1::TIER_KIND_HBM) setup.tier = tier.name();
      if (setup.tier == tier.name()) capacity = tier.capacity_bytes();
    }
  }
  setup.window_bytes = args.window_bytes;
  if (setup.window_bytes == 0) {
    setup.window_bytes = kWindowMax;
    if (capacity != 0) {
      const Bytes share = capacity / (kPinnedShare * args.threads * args.processes);
      setup.window_bytes = std::min(setup.window_bytes, share);
    }
  }
  setup.window_bytes = std::max(setup.window_bytes, args.block_bytes);
  return setup;
}

}  // namespace hmm::ctl
