// SPDX-License-Identifier: Apache-2.0
//
// Profiles (CSV), applied to a small graph.
#include <string_view>
#include <vector>

#include "fuzz/cases.h"
#include "fuzz/require.h"
#include "graph/profile.h"
#include "plan/lifetimes.h"

using namespace hmm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<hmm::testing::GenCase>& cases = *new auto(fuzz::SmallCases());
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto profile = graph::ParseProfile(text, "fuzz.csv");
  if (!profile.ok()) return 0;
  for (const hmm::testing::GenCase& known : cases) {
    for (const bool missing_ok : {false, true}) {
      plan::Graph graph = known.graph;
      if (!graph::ApplyProfile(*profile, graph, {.missing_ok = missing_ok}).ok()) continue;
      fuzz::RequireOk(plan::CheckGraph(graph), "a graph with a profile's durations is sound");
      const auto again = graph::ParseProfile(graph::FormatProfile(graph), "own.csv");
      fuzz::RequireOk(again.status(), "a profile of ours is read back");
      plan::Graph same = known.graph;
      fuzz::RequireOk(graph::ApplyProfile(*again, same).status(), "and names every op");
      for (std::size_t i = 0; i < graph.ops.size(); ++i) {
        fuzz::Require(graph.ops[i].microseconds == same.ops[i].microseconds,
                      "durations come back the same");
      }
    }
  }
  return 0;
}
