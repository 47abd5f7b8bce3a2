// SPDX-License-Identifier: Apache-2.0
//
// hmm.v1.Graph, text and binary, and what is planned for the graphs that are read.
#include <hmm/v1/graph.pb.h>

#include <string_view>

#include "fuzz/graph_laws.h"
#include "fuzz/message_mutator.h"
#include "graph/graph_proto.h"

using namespace hmm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const auto& graph :
       {graph::ParseGraphBinary(bytes, "fuzz.pb"), graph::ParseGraphText(bytes, "fuzz.pbtxt")}) {
    if (!graph.ok()) continue;
    fuzz::HoldGraph(*graph, /*writable=*/true);
    fuzz::HoldPlans(*graph);
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed) {
  v1::Graph message;
  return fuzz::MutateAsMessage(message, /*text_too=*/true, data, size, size_max, seed);
}
