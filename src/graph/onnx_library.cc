// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx_library.h"

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "graph/onnx_model.h"
#include "onnx/defs/schema.h"
#include "onnx/defs/shape_inference.h"

namespace hmm::graph {
namespace {

using onnx::AttributeProto;
using onnx::OpSchema;
using onnx::TypeProto;

class SubgraphInferencer final : public onnx::GraphInferencer {
 public:
  SubgraphInferencer(std::string attribute, InferSubgraph infer)
      : attribute_(std::move(attribute)), infer_(infer) {}

  std::vector<const TypeProto*> doInferencing(
      const std::vector<const TypeProto*>& input_types,
      const std::vector<const onnx::TensorProto*>& /*input_data*/) override {
    return infer_(attribute_, input_types);
  }

 private:
  std::string attribute_;
  InferSubgraph infer_;
};

// What the library asks of a node. It asks by index without looking how many there are, and expects
// an exception then.
class Context final : public onnx::InferenceContext {
 public:
  Context(const NodeView& node, InferSubgraph infer_subgraph, std::vector<TypeProto>& outputs)
      : node_(node), infer_subgraph_(infer_subgraph), outputs_(outputs) {}

  const AttributeProto* getAttribute(const std::string& name) const override {
    return node_.Attribute(name);
  }
  size_t getNumInputs() const override { return node_.inputs(); }
  const TypeProto* getInputType(size_t index) const override {
    CheckIndex(index, node_.inputs());
    const Facts* facts = node_.Input(index);
    const bool known = facts != nullptr && facts->type.value_case() != TypeProto::VALUE_NOT_SET;
    return known ? &facts->type : nullptr;
  }
  const onnx::TensorProto* getInputData(size_t index) const override {
    CheckIndex(index, node_.inputs());
    const Facts* facts = node_.Input(index);
    return facts != nullptr ? facts->data : nullptr;
  }
  size_t getNumOutputs() const override { return outputs_.size(); }
  TypeProto* getOutputType(size_t index) override {
    CheckIndex(index, outputs_.size());
    return &outputs_[index];
  }
  onnx::GraphInferencer* getGraphAttributeInferencer(const std::string& name) override {
    const AttributeProto* attribute = node_.Attribute(name);
    if (attribute == nullptr || !attribute->has_g()) {
      fail_type_inference("attribute ", name, " holds no graph");
    }
    auto& made = inferencers_[name];
    if (made == nullptr) made = std::make_unique<SubgraphInferencer>(name, infer_subgraph_);
    return made.get();
  }
  const onnx::SparseTensorProto* getInputSparseData(size_t index) const override {
    CheckIndex(index, node_.inputs());
    return nullptr;
  }
  const onnx::TensorShapeProto* getSymbolicInput(size_t index) const override {
    CheckIndex(index, node_.inputs());
    return nullptr;
  }

 private:
  static void CheckIndex(size_t index, size_t count) {
    if (index >= count) fail_type_inference("index ", index, " is past the last");
  }

  const NodeView& node_;
  InferSubgraph infer_subgraph_;
  std::vector<TypeProto>& outputs_;
  absl::flat_hash_map<std::string, std::unique_ptr<SubgraphInferencer>> inferencers_;
};

// The kind of attribute is what its fields hold; old files leave `type` out.
bool Holds(const AttributeProto& attribute, AttributeProto::AttributeType type) {
  if (attribute.has_type() && attribute.type() != AttributeProto::UNDEFINED) {
    if (attribute.type() != type) return false;
  }
  switch (type) {
    case AttributeProto::FLOAT:
      return attribute.has_f();
    case AttributeProto::INT:
      return attribute.has_i();
    case AttributeProto::STRING:
      return attribute.has_s();
    case AttributeProto::TENSOR:
      return attribute.has_t();
    case AttributeProto::GRAPH:
      return attribute.has_g();
    case AttributeProto::SPARSE_TENSOR:
      return attribute.has_sparse_tensor();
    default:
      return true;  // lists may be empty
  }
}

bool Conforms(const NodeView& node, const OpSchema& schema) {
  const int inputs = node.node().input_size(), outputs = node.node().output_size();
  if (inputs < schema.min_input() || inputs > schema.max_input()) return false;
  if (outputs < schema.min_output() || outputs > schema.max_output()) return false;
  for (const auto& [name, expected] : schema.attributes()) {
    const AttributeProto* attribute = node.Attribute(name);
    if (attribute == nullptr ? expected.required : !Holds(*attribute, expected.type)) return false;
  }
  return true;
}

// The library divides by strides and by the square of a block size without a look at them; a
// division by 0 raises a signal, not an exception.
std::string BadDivisor(const NodeView& node) {
  for (const std::int64_t stride : node.IntList("strides").value_or(std::vector<std::int64_t>())) {
    if (stride < 1) return absl::StrCat("attribute strides: ", stride, ", not above 0");
  }
  constexpr std::int64_t kBlockMax = std::int64_t{1} << 24;
  const std::int64_t block = node.Int("blocksize", 1);
  if (block >= 1 && block <= kBlockMax) return "";
  return absl::StrCat("attribute blocksize: ", block, " is not from 1 to ", kBlockMax);
}

// A fused op with the shapes of a standard one.
std::string StandardName(const std::string& type) {
  if (type == "FusedConv") return "Conv";
  if (type == "FusedGemm") return "Gemm";
  return type;
}

}  // namespace

std::string InferByLibrary(const NodeView& node, int opset_version, InferSubgraph infer_subgraph,
                           std::vector<onnx::TypeProto>& outputs) {
  const std::string& type = node.node().op_type();
  const std::string standard = StandardName(type);
  const bool fused = standard != type;
  const std::string domain = fused || node.node().domain() == "ai.onnx" ? "" : node.node().domain();
  try {
    const OpSchema* schema = onnx::OpSchemaRegistry::Schema(standard, opset_version, domain);
    if (schema == nullptr || !schema->has_type_and_shape_inference_function()) return "";
    if (!Conforms(node, *schema)) return "";
    if (std::string bad = BadDivisor(node); !bad.empty()) return bad;
    Context context(node, infer_subgraph, outputs);
    schema->GetTypeAndShapeInferenceFunction()(context);
    return "";
  } catch (const std::exception& error) {
    outputs.assign(outputs.size(), TypeProto());
    return error.what();
  }
}

}  // namespace hmm::graph
