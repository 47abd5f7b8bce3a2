// SPDX-License-Identifier: Apache-2.0
//
// Internal to the ONNX importer: from inferred graphs to the planner's.
#pragma once

#include <optional>
#include <string>

#include "base/units.h"
#include "graph/onnx_facts.h"
#include "plan/graph.h"

namespace hmm::graph {

// The accounting of onnx_import.h: aliases, in-place results, weights, KV cache, opaque ops.
plan::Graph BuildGraph(const Scope& scope);

// That of OnnxOptions::plain.
plan::Graph BuildPlainGraph(const Scope& scope);

// Bytes of a value; nullopt: not known.
std::optional<Bytes> FactsBytes(const Facts* facts);

// Names for the ops of a graph, unique: the node's, else its first output's, else type and place.
std::vector<std::string> OpNames(const Scope& scope);

// How an op treats memory.
bool IsView(const NodeView& node);  // output 0 is input 0 in another shape
bool ReadsShapeOnly(const NodeView& node);
bool MayRunInPlace(const std::string& op_type);  // output 0 may take the bytes of an input
bool IsCheapAndPure(const std::string& op_type);

}  // namespace hmm::graph
