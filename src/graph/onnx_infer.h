// SPDX-License-Identifier: Apache-2.0
//
// Internal to the ONNX importer: types and shapes of every value of a model, subgraphs included.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "graph/onnx_facts.h"
#include "graph/onnx_import.h"
#include "graph/onnx_model.h"

namespace hmm::graph {

// Binds the symbols of graph inputs by options.dims, then goes through the nodes in order: the ONNX
// library first, rules of our own for what it leaves open, then what the file declares. What stays
// open is no error here. `options.plain`: the library alone, on symbols, which are evaluated after.
//
// INVALID_ARGUMENT: a symbol of an input that is not bound; a bound name that the model has not; a
// dimension that comes out negative or too large; a declared dimension that, evaluated, is another
// one than inferred. REQUIRES: CheckOnnxModel(model) is OK. The model outlives the result.
absl::StatusOr<std::unique_ptr<Scope>> InferOnnx(const OnnxModel& model,
                                                 const OnnxOptions& options);

}  // namespace hmm::graph
