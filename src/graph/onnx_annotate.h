// SPDX-License-Identifier: Apache-2.0
//
// Internal: the moves of a plan in an ONNX model, and out of it again (export.h).
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/onnx_model.h"
#include "onnx/onnx_pb.h"
#include "plan/graph.h"
#include "plan/plan.h"

namespace hmm::graph {

// Domain of the functions.
inline constexpr char kMoveDomain[] = "hmm";

// REQUIRES: `graph` was imported from `model`, or the model made of it by OnnxOfGraph.
absl::Status AnnotateOnnx(const plan::Graph& graph, const plan::Plan& plan, OnnxModel& model);

bool IsAnnotatedOnnx(const onnx::ModelProto& model);

// The model as it was. INVALID_ARGUMENT/BAD_GRAPH if the metadata does not fit the nodes.
absl::Status UnannotateOnnx(OnnxModel& model);

}  // namespace hmm::graph
