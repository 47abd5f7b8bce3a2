// SPDX-License-Identifier: Apache-2.0
//
// Machine files (TOML), and plans for the machines that are read.
#include <algorithm>
#include <string_view>
#include <vector>

#include "fuzz/cases.h"
#include "fuzz/graph_laws.h"
#include "fuzz/require.h"
#include "graph/machine_file.h"

namespace {

using namespace hmm;

bool Same(const plan::Link& a, const plan::Link& b) {
  return a.from == b.from && a.to == b.to && a.engines == b.engines &&
         a.latency_us == b.latency_us && a.duplex_factor == b.duplex_factor &&
         a.contention_group == b.contention_group &&
         std::equal(a.curve.begin(), a.curve.end(), b.curve.begin(), b.curve.end(),
                    [](const plan::BandwidthPoint& p, const plan::BandwidthPoint& q) {
                      return p.bytes == q.bytes && p.bytes_per_us == q.bytes_per_us;
                    });
}

bool Same(const plan::Machine& a, const plan::Machine& b) {
  return a.name == b.name && a.assumptions == b.assumptions && a.flops_per_us == b.flops_per_us &&
         a.hbm_bytes_per_us == b.hbm_bytes_per_us && a.launch_us == b.launch_us &&
         a.hbm_bytes == b.hbm_bytes && a.ddr_bytes == b.ddr_bytes &&
         a.flash_bytes == b.flash_bytes &&
         std::equal(a.links.begin(), a.links.end(), b.links.begin(), b.links.end(),
                    [](const plan::Link& x, const plan::Link& y) { return Same(x, y); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<hmm::testing::GenCase>& cases = *new auto(fuzz::SmallCases());
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto machine = graph::ParseMachine(text, "fuzz.toml");
  if (!machine.ok()) return 0;
  const auto written = graph::FormatMachine(*machine);
  fuzz::RequireOk(written.status(), "a machine that was read can be written");
  const auto back = graph::ParseMachine(*written, "own.toml");
  fuzz::RequireOk(back.status(), "a machine is read back");
  fuzz::Require(Same(*machine, *back), "a machine comes back the same");
  for (std::size_t i = 0; i < 2; ++i) {
    fuzz::HoldPlans(cases[(size + i) % cases.size()].graph, *machine);
  }
  return 0;
}
