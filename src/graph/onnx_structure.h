// SPDX-License-Identifier: Apache-2.0
//
// Internal: graphs without a model behind them, as ONNX models (export.h, structure.h).
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "graph/structure.h"
#include "onnx/onnx_pb.h"
#include "plan/graph.h"

namespace hmm::graph {

absl::StatusOr<onnx::ModelProto> OnnxOfGraph(const plan::Graph& graph);

// Whether the model was written by OnnxOfGraph.
bool HasOnnxStructure(const onnx::ModelProto& model);

// The graph again; `storage_of` as in GraphOfStructure. REQUIRES: CheckOnnxModel took the model.
absl::StatusOr<plan::Graph> GraphOfOnnxStructure(
    const onnx::ModelProto& model, const std::string& file,
    absl::flat_hash_map<std::string, plan::StorageIndex>* storage_of);

absl::StatusOr<std::string> SerializedOnnx(const onnx::ModelProto& model);

}  // namespace hmm::graph
