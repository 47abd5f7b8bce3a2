// SPDX-License-Identifier: Apache-2.0
//
// Internal: graphs without a model behind them, as MindIR (export.h, structure.h).
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "graph/structure.h"
#include "mindir.pb.h"
#include "plan/graph.h"

namespace hmm::graph {

absl::StatusOr<mind_ir::ModelProto> MindIrOfGraph(const plan::Graph& graph);

// Whether the model was written by MindIrOfGraph.
bool HasMindIrStructure(const mind_ir::ModelProto& model);

// The graph again; `storage_of` as in GraphOfStructure.
absl::StatusOr<plan::Graph> GraphOfMindIrStructure(
    const mind_ir::ModelProto& model, const std::string& file,
    absl::flat_hash_map<std::string, plan::StorageIndex>* storage_of);

absl::StatusOr<std::string> SerializedMindIr(const mind_ir::ModelProto& model);

}  // namespace hmm::graph
