// SPDX-License-Identifier: Apache-2.0
// hmmctl topology: the table as people see it, the keys of the JSON, and the planner's machine.
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "client/ctl/topology_text.h"
#include "graph/machine_file.h"
#include "support/catch.h"

namespace hmm::ctl {
namespace {

using Catch::Contains;
using nlohmann::ordered_json;

void AddTier(v1::GetTopologyResponse& to, const char* name, v1::TierKind kind, unsigned rank,
             const char* below, bool emulated = false) {
  v1::TierPlace& tier = *to.add_tiers();
  tier.set_name(name);
  tier.set_kind(kind);
  tier.set_rank(rank);
  tier.set_numa_node(kind == v1::TIER_KIND_DDR ? 0 : -1);
  tier.set_demote_to(below);
  tier.set_emulated(emulated);
  tier.set_capacity_bytes((rank + 1ULL) << 30);
}

v1::LinkModel& AddLink(v1::GetTopologyResponse& to, const char* from, const char* below,
                       double rate) {
  v1::LinkModel& link = *to.add_links();
  link.set_from(from);
  link.set_to(below);
  link.set_latency_ns(12'500);
  link.set_engines(4);
  link.set_duplex_factor(0.5);
  link.set_contention_group(1);
  for (const std::uint64_t size : {64ULL << 10, 1ULL << 20}) {
    v1::RatePoint& point = *link.add_curve();
    point.set_bytes(size);
    point.set_bytes_per_s(rate);
    rate *= 2;
  }
  return link;
}

// hbm0, hbm1 -> ddr0 -> remote -> flash0
v1::GetTopologyResponse Some() {
  v1::GetTopologyResponse topology;
  topology.set_epoch(7);
  topology.set_measured_unix_ms(1'700'000'000'000);
  topology.set_from_file(true);
  v1::MemoryNode& node = *topology.add_nodes();
  node.set_cpus("0-3");
  node.set_type("DRAM");
  node.set_bandwidth_bytes_per_s(150e9);
  node.set_latency_ns(110);
  v1::MemoryNode& far = *topology.add_nodes();
  far.set_id(2);
  far.set_rank(1);
  far.set_cpuless(true);
  AddTier(topology, "hbm0", v1::TIER_KIND_HBM, 0, "ddr0", true);
  AddTier(topology, "hbm1", v1::TIER_KIND_HBM, 0, "ddr0", true);
  AddTier(topology, "ddr0", v1::TIER_KIND_DDR, 1, "remote");
  AddTier(topology, "remote", v1::TIER_KIND_DDR, 2, "flash0", true);
  topology.mutable_tiers(3)->set_link_bandwidth_bytes_per_s(1ULL << 30);
  AddTier(topology, "flash0", v1::TIER_KIND_FLASH, 3, "");
  const double gib = 1024.0 * 1024 * 1024;
  AddLink(topology, "hbm0", "ddr0", gib);
  AddLink(topology, "ddr0", "hbm0", 2 * gib);
  AddLink(topology, "hbm1", "ddr0", gib);
  AddLink(topology, "ddr0", "hbm1", gib);
  AddLink(topology, "remote", "flash0", gib / 4);
  AddLink(topology, "flash0", "remote", gib / 2);
  v1::LinkModel& none = *topology.add_links();
  none.set_from("ddr0");
  none.set_to("remote");
  none.set_contention_group(2);
  none.set_note("not measured: no room for scratch in remote");
  return topology;
}

TEST_CASE("the table: nodes, tiers, links") {
  v1::GetTopologyResponse topology = Some();
  topology.mutable_tiers()->DeleteSubrange(1, 1);
  topology.mutable_links()->DeleteSubrange(2, 4);
  CHECK(TopologyTable(topology) ==
        "NODE  RANK  TYPE   BANDWIDTH  LATENCY  CPUS  NOTE\n"
        "   0     0  DRAM  139.7GiB/s    110ns  0-3   -\n"
        "   2     1  -              -        -  -     no CPUs of its own\n"
        "\n"
        "TIER    KIND           RANK  NODE  CAPACITY    LINK  DEMOTES-TO\n"
        "hbm0    hbm(emulated)     0     -      1GiB       -  ddr0\n"
        "ddr0    ddr               1     0      2GiB       -  remote\n"
        "remote  ddr(emulated)     2     0      3GiB  1GiB/s  flash0\n"
        "flash0  flash             3     -      4GiB       -  -\n"
        "\n"
        "links, measured 2023-11-14T22:13:20Z at an earlier start\n"
        "LINK          LATENCY  ENGINES   64KiB    1MiB  DUPLEX  GROUP  NOTE\n"
        "hbm0->ddr0     12.5us        4  1GiB/s  2GiB/s     50%      1  -\n"
        "ddr0->hbm0     12.5us        4  2GiB/s  4GiB/s     50%      1  -\n"
        "ddr0->remote        -        -       -       -       -      2  not measured: no room for "
        "scratch in remote\n");
}

TEST_CASE("never measured: it says what to do") {
  v1::GetTopologyResponse topology = Some();
  topology.clear_links();
  topology.set_measured_unix_ms(0);
  topology.clear_nodes();
  CHECK_THAT(TopologyTable(topology), Contains("hmmctl topology --calibrate"));
  CHECK_THAT(TopologyTable(topology), Contains("no memory nodes are known"));
}

TEST_CASE("JSON: exact numbers, all keys") {
  const ordered_json json = ordered_json::parse(TopologyJson(Some()));
  CHECK(json["epoch"] == 7);
  CHECK(json["nodes"][0]["bandwidth_bytes_per_s"] == 150e9);
  CHECK(json["nodes"][1]["cpuless"] == true);
  CHECK(json["tiers"].size() == 5);
  CHECK(json["tiers"][0]["demote_to"] == "ddr0");
  CHECK(json["tiers"][3]["link_bandwidth_bytes_per_s"] == 1ULL << 30);
  CHECK(json["tiers"][4]["kind"] == "flash");
  const ordered_json& link = json["links"][0];
  CHECK(link["from"] == "hbm0");
  CHECK(link["latency_ns"] == 12'500);
  CHECK(link["engines"] == 4);
  CHECK(link["curve"][1]["bytes"] == 1 << 20);
  CHECK(link["curve"][1]["bytes_per_s"] == 2.0 * (1ULL << 30));
  CHECK(link["duplex_factor"] == 0.5);
  CHECK(link["contention_group"] == 1);
  CHECK(json["from_file"] == true);
  CHECK(json["measured_unix_ms"] == 1'700'000'000'000);
}

TEST_CASE("the planner's machine: one device's way down, as a file that is read back") {
  plan::Machine base;
  base.flops_per_us = 1e6;
  base.hbm_bytes_per_us = 2e4;
  base.assumptions = "guessed";
  const absl::StatusOr<plan::Machine> machine = MachineOf(Some(), "hbm1", base);
  INFO(machine.status());
  REQUIRE(machine.ok());
  CHECK(machine->name == "hmmd-hbm1");
  CHECK(machine->hbm_bytes == 1ULL << 30);
  CHECK(machine->ddr_bytes == 2ULL << 30);
  CHECK(machine->flash_bytes == 4ULL << 30);
  REQUIRE(machine->links.size() == 4);
  const plan::Link* read = plan::FindLink(*machine, TierKind::kFlash, TierKind::kDdr);
  REQUIRE(read != nullptr);
  CHECK(read->engines == 4);
  CHECK(read->latency_us == 12.5);
  CHECK(read->curve[1].bytes_per_us == 1024.0 * 1024 * 1024 / 1e6);
  CHECK_THAT(machine->assumptions,
             Contains("links hbm1 -> ddr0, remote -> flash0 as the daemon measured them") &&
                 Contains("emulated") && Contains("; the capacity of remote (3GiB) is left out"));
  const absl::StatusOr<std::string> text = graph::FormatMachine(*machine);
  INFO(text.status());
  REQUIRE(text.ok());
  const absl::StatusOr<plan::Machine> back = graph::ParseMachine(*text, "m.toml");
  REQUIRE(back.ok());
  CHECK(back->links.size() == 4);
  CHECK(back->flash_bytes == machine->flash_bytes);
}

TEST_CASE("no machine without HBM, without the tier, or without a measurement") {
  const plan::Machine base;
  CHECK(MachineOf(Some(), "hbm7", base).status().code() == absl::StatusCode::kNotFound);
  CHECK(MachineOf(Some(), "ddr0", base).status().code() == absl::StatusCode::kFailedPrecondition);
  v1::GetTopologyResponse unmeasured = Some();
  unmeasured.mutable_links(3)->clear_curve();
  const absl::Status status = MachineOf(unmeasured, "hbm1", base).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(status.message()), Contains("hmmctl topology --calibrate"));
  // HBM to flash, past the neighbours that a machine file knows.
  v1::GetTopologyResponse direct;
  AddTier(direct, "hbm0", v1::TIER_KIND_HBM, 0, "flash0");
  AddTier(direct, "flash0", v1::TIER_KIND_FLASH, 1, "");
  AddLink(direct, "hbm0", "flash0", 1e9);
  AddLink(direct, "flash0", "hbm0", 1e9);
  const absl::Status past = MachineOf(direct, "", base).status();
  CHECK(past.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(past.message()), Contains("hbm0 demotes to flash0 directly"));
  v1::GetTopologyResponse alone;
  AddTier(alone, "hbm0", v1::TIER_KIND_HBM, 0, "");
  const absl::StatusOr<plan::Machine> machine = MachineOf(alone, "", base);
  REQUIRE(machine.ok());
  CHECK(machine->links.empty());
  CHECK_THAT(machine->assumptions,
             Contains("nothing lies below hbm0") && !Contains("as the daemon measured"));
  CHECK(MachineOf({}, "", base).status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hmm::ctl
