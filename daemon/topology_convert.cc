// SPDX-License-Identifier: Apache-2.0
#include "daemon/topology_convert.h"

#include <algorithm>

namespace hmm::daemon {
namespace {

std::optional<TierId> IdOf(const std::string& name, const std::vector<std::string>& names) {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return static_cast<TierId>(at - names.begin());
}

void Encode(const tier::MemoryNode& node, v1::MemoryNode& out) {
  out.set_id(static_cast<std::uint32_t>(node.id));
  out.set_cpus(node.cpus);
  out.set_type(node.type);
  out.set_cpuless(node.cpuless);
  out.set_forbidden(!node.allowed);
  out.set_bandwidth_bytes_per_s(node.bandwidth);
  out.set_latency_ns(node.latency_ns);
  out.set_rank(node.rank);
}

}  // namespace

void Encode(const copy::LinkModel& link, const std::vector<std::string>& names,
            v1::LinkModel& out) {
  out.set_from(names.at(link.from));
  out.set_to(names.at(link.to));
  out.set_latency_ns(static_cast<std::uint64_t>(link.latency.count()));
  out.set_engines(link.engines);
  for (const copy::RatePoint& point : link.curve) {
    v1::RatePoint& to = *out.add_curve();
    to.set_bytes(point.bytes);
    to.set_bytes_per_s(point.bytes_per_second);
  }
  out.set_duplex_factor(link.duplex_factor);
  out.set_contention_group(link.contention_group);
  out.set_note(link.note);
}

std::optional<copy::LinkModel> Decode(const v1::LinkModel& link,
                                      const std::vector<std::string>& names) {
  const auto from = IdOf(link.from(), names);
  const auto to = IdOf(link.to(), names);
  if (!from.has_value() || !to.has_value()) return std::nullopt;
  constexpr std::uint64_t kLatencyMax = std::uint64_t{1} << 62;
  copy::LinkModel model;
  model.from = *from;
  model.to = *to;
  model.latency = Duration(static_cast<std::int64_t>(std::min(link.latency_ns(), kLatencyMax)));
  model.engines = link.engines();
  for (const v1::RatePoint& point : link.curve()) {
    model.curve.push_back({point.bytes(), point.bytes_per_s()});
  }
  model.duplex_factor = link.duplex_factor();
  model.contention_group = link.contention_group();
  model.note = link.note();
  if (!copy::Plausible(model)) return std::nullopt;
  return model;
}

std::vector<std::string> TierNames(const core::Manager& manager) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < manager.tier_count(); ++i) {
    names.push_back(manager.tier(static_cast<TierId>(i)).name());
  }
  return names;
}

void Encode(const core::TopologyInfo& info, const core::Manager& manager,
            v1::GetTopologyResponse& out) {
  const std::vector<std::string> names = TierNames(manager);
  for (const tier::MemoryNode& node : info.facts.nodes) Encode(node, *out.add_nodes());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const tier::Tier& tier = manager.tier(static_cast<TierId>(i));
    v1::TierPlace& place = *out.add_tiers();
    place.set_name(names[i]);
    place.set_kind(static_cast<v1::TierKind>(tier.kind()));
    place.set_emulated(tier.options().emulated);
    place.set_numa_node(-1);
    if (i < info.facts.tiers.size()) {
      place.set_rank(info.facts.tiers[i].rank);
      place.set_numa_node(info.facts.tiers[i].numa_node);
    }
    place.set_link_bandwidth_bytes_per_s(tier.options().link_bandwidth);
    if (info.demote_to[i].has_value()) place.set_demote_to(names[*info.demote_to[i]]);
    place.set_capacity_bytes(tier.capacity());
  }
  for (const copy::LinkModel& link : info.measured.links) Encode(link, names, *out.add_links());
  out.set_measured_unix_ms(static_cast<std::uint64_t>(info.measured.unix_ms));
  out.set_from_file(info.measured.from_file);
}

}  // namespace hmm::daemon
