// SPDX-License-Identifier: Apache-2.0
//
// Internal to the ONNX importer: the one place where the ONNX library infers. It throws, and in
// version 1.12 it trusts nodes to be as its schemas say, so they are compared before.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "graph/onnx_facts.h"

namespace hmm::graph {

// Infers a subgraph for the types of its inputs (nullptr: not known). Returns the types of its
// outputs, valid until the node is done; empty: it cannot.
using InferSubgraph = absl::FunctionRef<std::vector<const onnx::TypeProto*>(
    const std::string& attribute, const std::vector<const onnx::TypeProto*>& inputs)>;

// Fills `outputs` (one an output of the node) as far as the library can; all empty when it knows no
// such op in that version of its domain, the node is not as its schema says, or the shapes do not
// fit together, of which it then returns the library's account ("" otherwise).
std::string InferByLibrary(const NodeView& node, int opset_version, InferSubgraph infer_subgraph,
                           std::vector<onnx::TypeProto>& outputs);

}  // namespace hmm::graph
