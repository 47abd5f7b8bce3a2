// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/stat.h"

#include "client/ctl/printer.h"

namespace hmm::ctl {
namespace {

// Counters only rise; should one not, the interval shows nothing rather than 2^64.
std::uint64_t Rise(std::uint64_t now, std::uint64_t before) {
  return now > before ? now - before : 0;
}

const v1::TierInfo* FindTier(const v1::GetStatusResponse& status, const std::string& name) {
  for (const v1::TierInfo& tier : status.tiers()) {
    if (tier.name() == name) return &tier;
  }
  return nullptr;
}

const v1::LinkInfo* FindLink(const v1::GetStatusResponse& status, const v1::LinkInfo& like) {
  for (const v1::LinkInfo& link : status.links()) {
    if (link.from() == like.from() && link.to() == like.to()) return &link;
  }
  return nullptr;
}

}  // namespace

StatReport MakeStatReport(const std::optional<v1::GetStatusResponse>& before,
                          const v1::GetStatusResponse& now) {
  static const v1::GetStatusResponse kStart;
  const bool same = before && before->epoch() == now.epoch();
  const v1::GetStatusResponse& then = same ? *before : kStart;
  StatReport report;
  report.epoch = now.epoch();
  report.seconds = static_cast<double>(Rise(now.uptime_ms(), then.uptime_ms())) / 1e3;
  for (const v1::TierInfo& tier : now.tiers()) {
    const v1::TierInfo* old = FindTier(then, tier.name());
    StatTier row;
    row.name = tier.name();
    row.kind = KindWord(tier.kind());
    row.emulated = tier.emulated();
    row.capacity_bytes = tier.capacity_bytes();
    row.used_bytes = tier.used_bytes();
    row.pinned_bytes = tier.pinned_bytes();
    row.hits = Rise(tier.hits(), old != nullptr ? old->hits() : 0);
    for (const v1::LinkInfo& link : now.links()) {
      const v1::LinkInfo* was = FindLink(then, link);
      const std::uint64_t moves = Rise(link.moves(), was != nullptr ? was->moves() : 0);
      const std::uint64_t bytes = Rise(link.moved_bytes(), was != nullptr ? was->moved_bytes() : 0);
      if (link.to() == tier.name()) {
        row.moves_in += moves;
        row.bytes_in += bytes;
      }
      if (link.from() == tier.name()) {
        row.moves_out += moves;
        row.bytes_out += bytes;
      }
    }
    report.tiers.push_back(std::move(row));
  }
  report.lookups = Rise(now.counters().lookups(), then.counters().lookups());
  report.misses = Rise(now.counters().misses(), then.counters().misses());
  report.allocations = Rise(now.counters().allocations(), then.counters().allocations());
  report.evictions = Rise(now.counters().evictions(), then.counters().evictions());
  return report;
}

}  // namespace hmm::ctl
