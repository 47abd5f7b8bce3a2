// SPDX-License-Identifier: Apache-2.0
//
// Imports costed training graphs (JSON; tests/data/graphs/costed/README.md says what is in them):
// each node is an op and the storage of its one output, each edge a read. Nodes that are not in
// order are sorted. Forward results may be recomputed. Pure but for reading the file.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "plan/graph.h"

namespace hmm::graph {

struct CostedOptions {
  // The files tell the parameters' bytes but not who reads them. False: they are no storage, and
  // are named among the graph's unknown tensors. True: one pinned storage throughout the step.
  bool pin_parameters = false;
};

// INVALID_ARGUMENT/BAD_GRAPH: no JSON (with its line), no costed graph, a field missing or out of
// range, ids or names that are not unique, an edge to a node that is not there or to itself, a
// circle (naming a node on it). RESOURCE_EXHAUSTED/TOO_LARGE: beyond 64 MiB. `file` stands for the
// file in messages.
absl::StatusOr<plan::Graph> ParseCostedGraph(std::string_view json, const std::string& file,
                                             const CostedOptions& options = {});
absl::StatusOr<plan::Graph> ReadCostedGraph(const std::string& path,
                                            const CostedOptions& options = {});

}  // namespace hmm::graph
