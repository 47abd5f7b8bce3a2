// SPDX-License-Identifier: Apache-2.0
//
// Internal to the ONNX importer: what is known of the values of a graph, and a node with what is
// known of its inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "onnx/onnx_pb.h"

namespace hmm::graph {

using Dims = std::vector<std::int64_t>;

// A small tensor of whole numbers whose elements are known: the shapes that Reshape, Slice and
// their like take. Row-major.
struct IntTensor {
  Dims dims;
  std::vector<std::int64_t> values;
};
inline constexpr std::uint64_t kIntValuesMax = 4096;

struct Facts {
  onnx::TypeProto type;
  // Its elements, in the form the ONNX library takes; owned by the model or by `made`.
  const onnx::TensorProto* data = nullptr;
  std::shared_ptr<const onnx::TensorProto> made;
  std::shared_ptr<const IntTensor> ints;
};

// One graph and what is known of its values after inference. The graph outlives it.
struct Scope {
  const onnx::GraphProto* graph = nullptr;
  const Scope* outer = nullptr;  // nullptr: the model's main graph
  std::vector<int> order;        // of its nodes
  absl::flat_hash_map<std::string, Facts> facts;
  // By node position: its subgraphs, in the order of its attributes.
  absl::flat_hash_map<int, std::vector<std::unique_ptr<Scope>>> inner;

  // Here or in a graph around; nullptr: never defined (or not yet).
  const Facts* Find(const std::string& name) const;
};

// All dims when every one is a number; nullopt: not a dense tensor, or its shape is not known.
std::optional<Dims> StaticShape(const onnx::TypeProto& type);
int ElementType(const onnx::TypeProto& type);  // 0: not known
void SetTensorType(onnx::TypeProto& type, int element_type, const Dims& dims);

// Elements of an inline int64, int32 or bool tensor of at most kIntValuesMax; else nullptr.
std::shared_ptr<const IntTensor> IntsOf(const onnx::TensorProto& tensor);

// A node and its inputs, for rules. Inputs and attributes may be absent everywhere.
class NodeView {
 public:
  NodeView(const onnx::NodeProto& node, const Scope& scope) : node_(node), scope_(scope) {}

  const onnx::NodeProto& node() const { return node_; }
  std::size_t inputs() const { return static_cast<std::size_t>(node_.input_size()); }
  std::size_t outputs() const { return static_cast<std::size_t>(node_.output_size()); }
  bool HasInput(std::size_t i) const;
  bool HasOutput(std::size_t i) const;
  const Facts* Input(std::size_t i) const;  // nullptr: absent or not known
  std::optional<Dims> Shape(std::size_t i) const;
  int Type(std::size_t i) const;
  const IntTensor* Ints(std::size_t i) const;

  const onnx::AttributeProto* Attribute(std::string_view name) const;
  std::int64_t Int(std::string_view name, std::int64_t fallback) const;
  std::optional<std::vector<std::int64_t>> IntList(std::string_view name) const;
  std::string Text(std::string_view name) const;

 private:
  const onnx::NodeProto& node_;
  const Scope& scope_;
};

// Axis counted from the front; nullopt: out of range.
std::optional<std::size_t> Axis(std::int64_t axis, std::size_t rank);

// Numpy broadcasting; nullopt: the shapes do not fit.
std::optional<Dims> Broadcast(const Dims& a, const Dims& b);

// Rules of our own for shapes of outputs, where the library has none: custom domains, training
// ops, ops of later versions. Sets the types it can tell in `outputs` (one entry an output) that
// are not whole there.
void InferByRule(const NodeView& node, std::vector<onnx::TypeProto>& outputs);

// Elements of output `index`, of type `output`, where they follow from those of the inputs and from
// shapes; else nullptr.
std::shared_ptr<const IntTensor> FoldInts(const NodeView& node, std::size_t index,
                                          const onnx::TypeProto& output);

// Floating point operations of a node (a multiply-add is two); 0: not known, or of no weight
// beside the bytes it moves.
double NodeFlops(const NodeView& node, const std::optional<Dims>& output0);

}  // namespace hmm::graph
