// SPDX-License-Identifier: Apache-2.0
//
// A model in ONNX to the planner's Graph. Real files: sizes come from shapes, shapes from the ONNX
// library's inference, from what the file declares and from rules of our own (custom domains,
// values of shape tensors). What it makes of a model:
//
//   node                       op, in the file's order where that is a valid one, else sorted
//   initializer, constant      weight: persistent, never written
//   past*, present*            kv_cache; one persistent storage where past and present have one
//                              shape and the past is not read after the present is written,
//                              else an input and an output
//   X with an output X_grad    weight (training graphs)
//   Reshape, Squeeze, ...      an alias of what it views; an op that touches nothing
//   Relu, Add, ...             in place where its input has no later reader
//   If, Loop, BeamSearch, ...  one op whose workspace is the peak inside; weights inside are read
//   a size that is not known   named in Graph::unknown, counted nowhere
//   a tensor of 0 bytes        nothing
//
// Thread-safe; holds the parsed model while it runs (about twice the file in memory), nothing
// after.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.h"
#include "plan/graph.h"

namespace hmm::graph {

inline constexpr std::size_t kOnnxNotesMax = 16;

struct OnnxOptions {
  // Values of symbolic dimensions, >= 0. A dimension of a graph input that has neither value nor
  // name is bound as "INPUT:AXIS".
  std::map<std::string, std::int64_t> dims;
  // Activations only: each op output a storage of its own from its op to its last use. Shapes by
  // the library's inference on symbols alone, whose expressions are evaluated afterwards; no
  // aliases, no rules of our own, inputs and weights not counted. For comparison with published
  // numbers.
  bool plain = false;
  // Refuse a model whose external data file is missing. Without, sizes are taken from the shapes.
  bool external_data_required = true;
  // Filled, if given, with up to kOnnxNotesMax places where shapes do not fit together (a wrong
  // --dim, mostly) or the library does not know: why there are unknown tensors.
  std::vector<std::string>* notes = nullptr;
  std::size_t nodes_max = 4'000'000;            // with those of subgraphs
  Bytes file_bytes_max = (Bytes{2} << 30) - 1;  // protobuf's own limit: the most that can be inline
};

// Errors carry BAD_GRAPH, or IO for a file that cannot be read, and name file, node and field:
// INVALID_ARGUMENT: not ONNX, truncated, malformed, cyclic, an unbound symbol, an unknown --dim;
// RESOURCE_EXHAUSTED: past a bound above. The result passes plan::CheckGraph.
absl::StatusOr<plan::Graph> ImportOnnx(const std::string& path, const OnnxOptions& options);

// The same of a model in memory. `name` stands for the file in messages; external data is looked
// for below `directory`.
absl::StatusOr<plan::Graph> ImportOnnxBytes(std::string_view bytes, const std::string& name,
                                            const std::string& directory,
                                            const OnnxOptions& options);

}  // namespace hmm::graph
