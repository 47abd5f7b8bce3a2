// SPDX-License-Identifier: Apache-2.0
#include "tier/topology.h"

#include "base/status.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace hmm::tier {
namespace {

using Kind = TopologySource::Kind;

Topology Read(Kind kind, const std::string& text) {
  const absl::StatusOr<Topology> topology = ReadTopology({kind, text});
  INFO(topology.status());
  REQUIRE(topology.ok());
  return *topology;
}
Topology ReadFile(const std::string& name) {
  return Read(Kind::kXml, HMM_TOPOLOGY_DATA "/" + name);
}

TEST_CASE("a Xeon Max in flat mode: HBM nodes rank before DRAM, each near its package's") {
  const Topology topology = ReadFile("xeon_max.xml");
  REQUIRE(topology.nodes.size() == 4);
  for (const int dram : {0, 1}) {
    CHECK(topology.Find(dram)->type == "DRAM");
    CHECK(topology.Find(dram)->rank == 1);
    CHECK(topology.Find(dram)->bandwidth == 150000.0 * 1024 * 1024);
    CHECK(topology.Find(dram + 2)->type == "HBM");
    CHECK(topology.Find(dram + 2)->rank == 0);
    CHECK(topology.Find(dram + 2)->near == std::vector<int>{dram});
  }
  CHECK(topology.Find(2)->cpus == "0-1");
  CHECK(topology.Find(3)->cpus == "2-3");
  CHECK(topology.Find(0)->latency_ns == 110);
}

TEST_CASE("a node on no package has no CPUs of its own and ranks last", "[case 21]") {
  const Topology topology = ReadFile("cpuless_node.xml");
  REQUIRE(topology.nodes.size() == 3);
  CHECK_FALSE(topology.Find(0)->cpuless);
  CHECK_FALSE(topology.Find(1)->cpuless);
  CHECK(topology.Find(2)->cpuless);
  CHECK(topology.Find(0)->rank == 0);
  CHECK(topology.Find(1)->rank == 0);
  CHECK(topology.Find(2)->rank == 1);
}

TEST_CASE("a node that the cpuset forbids is shown, as forbidden", "[case 21]") {
  const Topology topology = ReadFile("cpuset_one_node.xml");
  REQUIRE(topology.nodes.size() == 2);
  CHECK(topology.Find(0)->allowed);
  CHECK_FALSE(topology.Find(1)->allowed);
  CHECK(topology.Find(2) == nullptr);
}

TEST_CASE("synthetic descriptions") {
  const Topology even = Read(Kind::kSynthetic, "pack:2 [numa] core:2 pu:2");
  REQUIRE(even.nodes.size() == 2);
  CHECK(even.nodes[0].cpus == "0-3");
  CHECK(even.nodes[1].cpus == "4-7");
  CHECK(even.nodes[0].rank == even.nodes[1].rank);
  CHECK(even.nodes[0].near.empty());

  // Two nodes a package and nobody says which is which: none is ranked before the other by its
  // size.
  const Topology two =
      Read(Kind::kSynthetic, "pack:1 [numa(memory=128GiB)] [numa(memory=64GiB)] core:2 pu:1");
  REQUIRE(two.nodes.size() == 2);
  CHECK(two.nodes[0].rank == two.nodes[1].rank);
  CHECK(two.nodes[0].near == std::vector<int>{1});
}

TEST_CASE("what is no topology is refused by name") {
  for (const TopologySource& source : {TopologySource{Kind::kXml, "/nonexistent.xml"},
                                       TopologySource{Kind::kSynthetic, "pack:no"}}) {
    const absl::StatusOr<Topology> topology = ReadTopology(source);
    REQUIRE_FALSE(topology.ok());
    CHECK(topology.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(topology.status().message().find(source.text) != std::string::npos);
  }
}

TEST_CASE("this machine has at least a node, and one that may be used") {
  const Topology topology = Read(Kind::kMachine, "");
  REQUIRE_FALSE(topology.nodes.empty());
  bool allowed = false;
  for (const MemoryNode& node : topology.nodes) allowed = allowed || node.allowed;
  CHECK(allowed);
}

TEST_CASE("the kernel names nodes without CPUs") {
  const testing::TempDir root;
  root.Write("sys/devices/system/node/node0/cpulist", "0-3\n");
  root.Write("sys/devices/system/node/node2/cpulist", "\n");
  root.Write("sys/devices/system/node/has_cpu", "0\n");
  CHECK(CpulessNodes(root.path()) == std::vector<int>{2});
  CHECK(CpulessNodes(root.path() + "/nothing").empty());
}

}  // namespace
}  // namespace hmm::tier
