// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/topology_text.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "client/ctl/printer.h"
#include "client/ctl/table.h"

namespace hmm::ctl {
namespace {

using nlohmann::ordered_json;

std::string KindCell(const v1::TierPlace& tier) {
  return absl::StrCat(KindWord(tier.kind()), tier.emulated() ? "(emulated)" : "");
}

std::string RateCell(double bytes_per_s) {
  return bytes_per_s > 0 ? SizeCell(static_cast<std::uint64_t>(bytes_per_s)) + "/s" : "";
}

std::string MicrosCell(std::uint64_t ns) {
  return ns == 0 ? "" : absl::StrFormat("%.1fus", static_cast<double>(ns) / 1e3);
}

std::string LinkName(const v1::LinkModel& link) {
  return absl::StrCat(link.from(), "->", link.to());
}

std::string NodeTable(const v1::GetTopologyResponse& topology) {
  if (topology.nodes().empty()) return "no memory nodes are known\n";
  Table table({{"NODE", true},
               {"RANK", true},
               {"TYPE"},
               {"BANDWIDTH", true},
               {"LATENCY", true},
               {"CPUS"},
               {"NOTE"}});
  for (const v1::MemoryNode& node : topology.nodes()) {
    std::string note = node.cpuless() ? "no CPUs of its own" : "";
    if (node.forbidden()) note = "forbidden by the cpuset";
    table.AddRow({absl::StrCat(node.id()), absl::StrCat(node.rank()), node.type(),
                  RateCell(node.bandwidth_bytes_per_s()),
                  node.latency_ns() > 0 ? absl::StrFormat("%.0fns", node.latency_ns()) : "",
                  node.cpus(), note});
  }
  return table.ToString();
}

std::string TierTable(const v1::GetTopologyResponse& topology) {
  Table table({{"TIER"},
               {"KIND"},
               {"RANK", true},
               {"NODE", true},
               {"CAPACITY", true},
               {"LINK", true},
               {"DEMOTES-TO"}});
  for (const v1::TierPlace& tier : topology.tiers()) {
    table.AddRow({tier.name(), KindCell(tier), absl::StrCat(tier.rank()),
                  tier.numa_node() < 0 ? "" : absl::StrCat(tier.numa_node()),
                  SizeCell(tier.capacity_bytes()),
                  RateCell(static_cast<double>(tier.link_bandwidth_bytes_per_s())),
                  tier.demote_to()});
  }
  return table.ToString();
}

// A column for each size that any link was measured with.
std::string LinkTable(const v1::GetTopologyResponse& topology) {
  std::vector<std::uint64_t> sizes;
  for (const v1::LinkModel& link : topology.links()) {
    for (const v1::RatePoint& point : link.curve()) sizes.push_back(point.bytes());
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  std::vector<Table::Column> columns = {{"LINK"}, {"LATENCY", true}, {"ENGINES", true}};
  for (const std::uint64_t size : sizes) columns.push_back({SizeCell(size), true});
  columns.push_back({"DUPLEX", true});
  columns.push_back({"GROUP", true});
  columns.push_back({"NOTE"});
  Table table(std::move(columns));
  for (const v1::LinkModel& link : topology.links()) {
    const bool measured = !link.curve().empty();
    std::vector<Cell> row = {LinkName(link), MicrosCell(link.latency_ns()),
                             measured ? absl::StrCat(link.engines()) : ""};
    for (const std::uint64_t size : sizes) {
      const auto at = std::find_if(link.curve().begin(), link.curve().end(),
                                   [size](const auto& point) { return point.bytes() == size; });
      row.push_back(at == link.curve().end() ? "" : RateCell(at->bytes_per_s()));
    }
    row.push_back(measured ? PercentCell(link.duplex_factor()) : "");
    row.push_back(absl::StrCat(link.contention_group()));
    row.push_back(link.note());
    table.AddRow(std::move(row));
  }
  return table.ToString();
}

std::string When(const v1::GetTopologyResponse& topology) {
  if (topology.measured_unix_ms() == 0) {
    return "links: never measured; `hmmctl topology --calibrate` does it\n";
  }
  const auto seconds = static_cast<std::time_t>(topology.measured_unix_ms() / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return absl::StrCat("links, measured ", text, topology.from_file() ? " at an earlier start" : "",
                      "\n");
}

ordered_json LinkToJson(const v1::LinkModel& link) {
  ordered_json out;
  out["from"] = link.from();
  out["to"] = link.to();
  out["latency_ns"] = link.latency_ns();
  out["engines"] = link.engines();
  out["curve"] = ordered_json::array();
  for (const v1::RatePoint& point : link.curve()) {
    out["curve"].push_back({{"bytes", point.bytes()}, {"bytes_per_s", point.bytes_per_s()}});
  }
  out["duplex_factor"] = link.duplex_factor();
  out["contention_group"] = link.contention_group();
  out["note"] = link.note();
  return out;
}

plan::Link PlanLink(const v1::LinkModel& link, TierKind from, TierKind to) {
  plan::Link out;
  out.from = from;
  out.to = to;
  out.engines = std::clamp<std::uint32_t>(link.engines(), 1, 64);
  out.latency_us = static_cast<double>(link.latency_ns()) / 1e3;
  for (const v1::RatePoint& point : link.curve()) {
    out.curve.push_back({point.bytes(), point.bytes_per_s() / 1e6});
  }
  out.duplex_factor = link.duplex_factor();
  out.contention_group = link.contention_group();
  return out;
}

}  // namespace

std::string TopologyTable(const v1::GetTopologyResponse& topology) {
  std::string out =
      absl::StrCat(NodeTable(topology), "\n", TierTable(topology), "\n", When(topology));
  if (!topology.links().empty()) absl::StrAppend(&out, LinkTable(topology));
  return out;
}

std::string TopologyJson(const v1::GetTopologyResponse& topology) {
  ordered_json out;
  out["epoch"] = topology.epoch();
  out["nodes"] = ordered_json::array();
  for (const v1::MemoryNode& node : topology.nodes()) {
    out["nodes"].push_back({{"id", node.id()},
                            {"rank", node.rank()},
                            {"type", node.type()},
                            {"cpus", node.cpus()},
                            {"cpuless", node.cpuless()},
                            {"forbidden", node.forbidden()},
                            {"bandwidth_bytes_per_s", node.bandwidth_bytes_per_s()},
                            {"latency_ns", node.latency_ns()}});
  }
  out["tiers"] = ordered_json::array();
  for (const v1::TierPlace& tier : topology.tiers()) {
    out["tiers"].push_back({{"name", tier.name()},
                            {"kind", KindWord(tier.kind())},
                            {"emulated", tier.emulated()},
                            {"rank", tier.rank()},
                            {"numa_node", tier.numa_node()},
                            {"capacity_bytes", tier.capacity_bytes()},
                            {"link_bandwidth_bytes_per_s", tier.link_bandwidth_bytes_per_s()},
                            {"demote_to", tier.demote_to()}});
  }
  out["links"] = ordered_json::array();
  for (const v1::LinkModel& link : topology.links()) out["links"].push_back(LinkToJson(link));
  out["measured_unix_ms"] = topology.measured_unix_ms();
  out["from_file"] = topology.from_file();
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

absl::StatusOr<plan::Machine> MachineOf(const v1::GetTopologyResponse& topology,
                                        const std::string& device, plan::Machine base) {
  const auto find = [&](const std::string& name) {
    return std::find_if(topology.tiers().begin(), topology.tiers().end(),
                        [&](const v1::TierPlace& tier) { return tier.name() == name; });
  };
  const auto link_of = [&](const std::string& from, const std::string& to) {
    return std::find_if(
        topology.links().begin(), topology.links().end(),
        [&](const v1::LinkModel& link) { return link.from() == from && link.to() == to; });
  };
  auto at = device.empty() ? topology.tiers().begin() : find(device);
  if (at == topology.tiers().end()) {
    return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
                 absl::StrCat("no tier '", device, "'; see hmmctl tier list"));
  }
  if (at->kind() != v1::TIER_KIND_HBM) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kBadArgument,
                 absl::StrCat(at->name(), " is no HBM; a planned machine begins with HBM"));
  }
  plan::Machine machine = base;
  machine.links.clear();
  machine.ddr_bytes = machine.flash_bytes = 0;
  machine.hbm_bytes = at->capacity_bytes();
  machine.name = absl::StrCat("hmmd-", at->name());
  TierKind kind = TierKind::kHbm;
  std::vector<std::string> links;
  std::vector<std::string> left_out;
  std::string emulated = at->emulated() ? at->name() : "";
  for (std::string from = at->name(); !find(from)->demote_to().empty();) {
    const auto below = find(find(from)->demote_to());
    if (below == topology.tiers().end()) break;
    const auto to_kind = static_cast<TierKind>(below->kind());
    // The planner knows one tier of a kind, and links between neighbours.
    if (to_kind == kind) {
      left_out.push_back(absl::StrCat(below->name(), " (", SizeCell(below->capacity_bytes()), ")"));
      from = below->name();
      continue;
    }
    if (static_cast<int>(to_kind) != static_cast<int>(kind) + 1) {
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kBadArgument,
                   absl::StrCat(from, " demotes to ", below->name(),
                                " directly, which a machine file cannot say: its links join HBM "
                                "and DDR, and DDR and flash"));
    }
    const auto down = link_of(from, below->name());
    const auto up = link_of(below->name(), from);
    for (const auto& link : {down, up}) {
      if (link != topology.links().end() && !link->curve().empty()) continue;
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kNotFound,
                   absl::StrCat("the links between ", from, " and ", below->name(),
                                " are not measured; run hmmctl topology --calibrate"));
    }
    machine.links.push_back(PlanLink(*down, kind, to_kind));
    machine.links.push_back(PlanLink(*up, to_kind, kind));
    (to_kind == TierKind::kDdr ? machine.ddr_bytes : machine.flash_bytes) = below->capacity_bytes();
    links.push_back(absl::StrCat(from, " -> ", below->name()));
    if (below->emulated()) absl::StrAppend(&emulated, emulated.empty() ? "" : ", ", below->name());
    kind = to_kind;
    from = below->name();
  }
  machine.assumptions = absl::StrCat(
      links.empty()
          ? absl::StrCat("nothing lies below ", at->name())
          : absl::StrCat("links ", absl::StrJoin(links, ", "), " as the daemon measured them"),
      emulated.empty() ? "" : absl::StrCat(" (", emulated, " emulated by host memory)"),
      left_out.empty() ? ""
                       : absl::StrCat("; the capacity of ", absl::StrJoin(left_out, ", "),
                                      " is left out: one tier of a kind is planned"),
      "; compute and HBM bandwidth by hmmctl on this machine: ", base.assumptions);
  return machine;
}

}  // namespace hmm::ctl
