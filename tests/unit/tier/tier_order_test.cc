// SPDX-License-Identifier: Apache-2.0
#include "tier/tier_order.h"

#include "support/catch.h"

namespace hmm::tier {
namespace {

Topology ReadFile(const std::string& name) {
  const auto topology =
      ReadTopology({TopologySource::Kind::kXml, std::string(HMM_TOPOLOGY_DATA "/") + name});
  REQUIRE(topology.ok());
  return *topology;
}

TierPlace Hbm(const std::string& name, int node = -1) {
  return {name, TierKind::kHbm, node, 0, ""};
}
TierPlace Ddr(const std::string& name, int node = -1) {
  return {name, TierKind::kDdr, node, 0, ""};
}
TierPlace Flash(const std::string& name) { return {name, TierKind::kFlash, -1, 0, ""}; }
TierPlace Remote(const std::string& name, Bytes bandwidth) {
  return {name, TierKind::kDdr, -1, bandwidth, ""};
}
TierPlace To(TierPlace place, const std::string& target) {
  place.demote_to = target;
  return place;
}

// "hbm0>ddr0 ddr0>- ...", in the order of the result.
std::string Shown(const std::vector<TierPlace>& places, const Topology& topology) {
  const auto fault = CheckPaths(places);
  INFO((fault.has_value() ? fault->what : ""));
  REQUIRE_FALSE(fault.has_value());
  const TierOrder order = OrderTiers(places, topology);
  std::string out;
  for (const std::size_t i : order.order) {
    const auto to = order.demote_to[i];
    out += (out.empty() ? "" : " ") + places[i].name + std::to_string(order.ranks[i]) + ">" +
           (to.has_value() ? places[*to].name : "-");
  }
  return out;
}

std::string Fault(const std::vector<TierPlace>& places) {
  const auto fault = CheckPaths(places);
  return fault.has_value() ? places[fault->tier].name + ": " + fault->what : "none";
}

TEST_CASE("one of each: down by kind") {
  CHECK(Shown({Hbm("hbm0"), Ddr("ddr0"), Flash("flash0")}, {}) ==
        "hbm00>ddr0 ddr01>flash0 flash02>-");
  CHECK(Shown({Ddr("ddr0")}, {}) == "ddr00>-");
  CHECK(Shown({Hbm("hbm0"), Flash("flash0")}, {}) == "hbm00>flash0 flash01>-");
}

TEST_CASE("devices side by side share the way down, and none is another's store") {
  CHECK(Shown({Hbm("hbm0"), Hbm("hbm1"), Ddr("ddr0"), Flash("flash0"), Flash("flash1")}, {}) ==
        "hbm00>ddr0 hbm10>ddr0 ddr01>flash0 flash02>- flash12>-");
}

TEST_CASE("a slower pool of the same kind comes between, wherever the file names it") {
  const std::string expected = "hbm00>ddr0 ddr01>remote remote2>flash0 flash03>-";
  CHECK(Shown({Hbm("hbm0"), Ddr("ddr0"), Remote("remote", 4 * kGiB), Flash("flash0")}, {}) ==
        expected);
  CHECK(Shown({Hbm("hbm0"), Remote("remote", 4 * kGiB), Ddr("ddr0"), Flash("flash0")}, {}) ==
        expected);
  CHECK(Shown({Remote("slow", kGiB), Remote("fast", 4 * kGiB)}, {}) == "fast0>slow slow1>-");
}

TEST_CASE("Xeon Max: each package's HBM goes to its own DRAM") {
  const Topology topology = ReadFile("xeon_max.xml");
  CHECK(Shown({Hbm("hbm0", 2), Hbm("hbm1", 3), Ddr("ddr0", 0), Ddr("ddr1", 1), Flash("flash0")},
              topology) == "hbm00>ddr0 hbm10>ddr1 ddr01>flash0 ddr11>flash0 flash02>-");
  // Unbound DDR is the DRAM next to the CPUs, not HBM.
  CHECK(Shown({Ddr("any"), Ddr("bound", 1)}, topology) == "any0>- bound0>-");
}

TEST_CASE("a node without CPUs is a slower pool") {
  const Topology topology = ReadFile("cpuless_node.xml");
  CHECK(Shown({Ddr("far", 2), Ddr("ddr0", 0), Ddr("ddr1", 1), Flash("flash0")}, topology) ==
        "ddr00>far ddr10>far far1>flash0 flash02>-");
}

TEST_CASE("what the configuration says comes first") {
  CHECK(Shown({To(Hbm("hbm0"), "flash0"), Hbm("hbm1"), Ddr("ddr0"), Flash("flash0")}, {}) ==
        "hbm00>flash0 hbm10>ddr0 ddr01>flash0 flash02>-");
  CHECK(Shown({To(Hbm("hbm0"), "hbm1"), Hbm("hbm1"), Ddr("ddr0")}, {}) ==
        "hbm00>hbm1 hbm10>ddr0 ddr01>-");
  // Against the ranks: then nothing that is derived goes back.
  CHECK(Shown({Ddr("ddr0"), To(Remote("remote", kGiB), "ddr0"), Flash("flash0")}, {}) ==
        "remote1>ddr0 ddr00>flash0 flash02>-");
}

TEST_CASE("ways that lead nowhere are refused by name") {
  CHECK(Fault({To(Ddr("ddr0"), "flsh0"), Flash("flash0")}) ==
        "ddr0: there is no tier 'flsh0'; there are ddr0, flash0");
  CHECK(Fault({To(Ddr("ddr0"), "ddr0")}) == "ddr0: a tier cannot demote to itself");
  CHECK(Fault({Hbm("hbm0"), To(Ddr("ddr0"), "hbm0")}) ==
        "ddr0: hbm0 is hbm, faster than ddr; name a slower tier");
  CHECK(Fault({To(Flash("flash0"), "flash1"), Flash("flash1")}) ==
        "flash0: flash is the last; what leaves it is dropped. Remove the key");
  CHECK(Fault({To(Ddr("a"), "b"), To(Ddr("b"), "c"), To(Ddr("c"), "a")}) ==
        "a: the way down is a circle: a -> b -> c -> a");
  // One that is not on the circle but leads into it.
  CHECK(Fault({To(Ddr("x"), "b"), To(Ddr("b"), "c"), To(Ddr("c"), "b")}) ==
        "b: the way down is a circle: b -> c -> b");
}

}  // namespace
}  // namespace hmm::tier
