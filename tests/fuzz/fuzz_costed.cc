// SPDX-License-Identifier: Apache-2.0
//
// Costed training graphs (JSON).
#include <string_view>

#include "fuzz/graph_laws.h"
#include "graph/costed_graph.h"

using namespace hmm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const bool pin : {false, true}) {
    const auto graph = graph::ParseCostedGraph(bytes, "fuzz.json", {.pin_parameters = pin});
    if (!graph.ok()) continue;
    fuzz::HoldGraph(*graph, /*writable=*/false);
    fuzz::HoldPlans(*graph);
  }
  return 0;
}
