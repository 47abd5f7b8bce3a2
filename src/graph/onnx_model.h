// SPDX-License-Identifier: Apache-2.0
//
// Internal to the ONNX importer: a parsed model whose structure is sound, and how errors name
// places in it. Nothing here infers shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.h"
#include "graph/onnx_import.h"
#include "onnx/onnx_pb.h"

namespace hmm::graph {

// Sizes and dims beyond this are refused, so that sums of them cannot overflow.
inline constexpr std::int64_t kDimMax = std::int64_t{1} << 48;
inline constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 56;
inline constexpr int kRankMax = 64;
inline constexpr int kSubgraphDepthMax = 16;

struct OnnxModel {
  std::unique_ptr<onnx::ModelProto> proto;
  std::string name;       // of the file, in messages
  std::string directory;  // of external data
};

// "model.onnx: WHERE: WHAT", BAD_GRAPH, INVALID_ARGUMENT.
absl::Status BadModel(std::string_view file, std::string_view where, std::string_view what);

// `node "name" (Conv, #12)`, for messages. `index` is the node's place in its graph's list.
std::string NodePlace(const onnx::NodeProto& node, int index);

// Reads and parses; the protobuf is whole and has a graph, no more is known.
absl::StatusOr<OnnxModel> LoadOnnxFile(const std::string& path, const OnnxOptions& options);
absl::StatusOr<OnnxModel> LoadOnnxBytes(std::string_view bytes, const std::string& name,
                                        const std::string& directory, const OnnxOptions& options);

// Everything below relies on this, the calls into the ONNX library too: bounds hold; names are
// unique and every name read is defined; data types are known; dims are no negative numbers and
// their products fit; inline data has the length its shape needs; external data lies inside its
// file inside the directory. Subgraphs included.
absl::Status CheckOnnxModel(const OnnxModel& model, const OnnxOptions& options);

// Positions of graph.node() in execution order: the given one where it is valid, else each node at
// its place with what it needs before it. Fails on a cycle, naming a node in it.
absl::StatusOr<std::vector<int>> SortNodes(const onnx::GraphProto& graph, const std::string& file);

// Names that a node's subgraphs read from outside themselves, each once.
std::vector<std::string> CapturedNames(const onnx::NodeProto& node);

// Calls `visit` with each subgraph of the node and the name of the attribute it stands in.
void ForEachSubgraph(
    const onnx::NodeProto& node,
    absl::FunctionRef<void(const std::string& attribute, const onnx::GraphProto& graph)> visit);

// Bits an element takes in memory; 0: none can be told (strings), nullopt: no such type.
std::optional<int> ElementBits(int data_type);

// Bytes of a dense tensor. nullopt: the type has no size. REQUIRES: dims >= 0, their product at
// most kElementsMax.
std::optional<Bytes> TensorBytes(int data_type, const std::vector<std::int64_t>& dims);

// Product; nullopt when a dim is negative or past kDimMax, or the product is past kElementsMax.
std::optional<std::uint64_t> ElementCount(const std::vector<std::int64_t>& dims);

std::vector<std::int64_t> DimsOf(const onnx::TensorProto& tensor);

}  // namespace hmm::graph
