// SPDX-License-Identifier: Apache-2.0
//
// How ops treat memory, by type.
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/onnx_build.h"
#include "graph/onnx_model.h"

namespace hmm::graph {
namespace {

using Types = absl::flat_hash_set<std::string>;

// Dropout is one where it does not train: in version 12 and later training is an input.
bool IsIdleDropout(const NodeView& node) {
  if (node.node().op_type() != "Dropout" || node.HasOutput(1)) return false;
  if (node.Attribute("is_test") != nullptr) return node.Int("is_test", 0) != 0;
  if (!node.HasInput(2)) return true;
  const IntTensor* training = node.Ints(2);
  return training != nullptr && training->values.size() == 1 && training->values[0] == 0;
}

}  // namespace

std::optional<Bytes> FactsBytes(const Facts* facts) {
  if (facts == nullptr) return std::nullopt;
  const std::optional<Dims> dims = StaticShape(facts->type);
  return dims.has_value() ? TensorBytes(ElementType(facts->type), *dims) : std::nullopt;
}

std::vector<std::string> OpNames(const Scope& scope) {
  Types used;
  std::vector<std::string> names;
  for (const int index : scope.order) {
    const onnx::NodeProto& node = scope.graph->node(index);
    std::string name = node.name();
    if (name.empty() || used.contains(name)) {
      for (const std::string& output : node.output()) {
        if (!output.empty()) {
          name = output;
          break;
        }
      }
    }
    if (name.empty()) name = absl::StrCat(node.op_type(), "_", index);
    while (used.contains(name)) absl::StrAppend(&name, "#", index);
    used.insert(name);
    names.push_back(name);
  }
  return names;
}

bool IsView(const NodeView& node) {
  static const auto* views = new Types{"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"};
  return node.HasInput(0) && node.HasOutput(0) &&
         (views->contains(node.node().op_type()) || IsIdleDropout(node));
}

bool ReadsShapeOnly(const NodeView& node) {
  return node.node().op_type() == "Shape" || node.node().op_type() == "Size";
}

// What ONNX Runtime lets share its input's buffer, and its fused kin.
bool MayRunInPlace(const std::string& op_type) {
  static const auto* types = new Types{"Abs",          "Add",       "And",
                                       "BiasFastGelu", "BiasGelu",  "Ceil",
                                       "Clip",         "Cos",       "Div",
                                       "Elu",          "Erf",       "Exp",
                                       "FastGelu",     "Floor",     "Gelu",
                                       "HardSigmoid",  "HardSwish", "LeakyRelu",
                                       "Log",          "Max",       "Mean",
                                       "Min",          "Mul",       "Neg",
                                       "Not",          "Or",        "PRelu",
                                       "Pow",          "QuickGelu", "Reciprocal",
                                       "Relu",         "Round",     "ScatterElements",
                                       "ScatterND",    "Selu",      "Sigmoid",
                                       "Sign",         "Sin",       "Softplus",
                                       "Softsign",     "Sqrt",      "Sub",
                                       "Sum",          "Tanh",      "ThresholdedRelu",
                                       "Xor"};
  return types->contains(op_type);
}

bool IsCheapAndPure(const std::string& op_type) {
  static const auto* types = new Types{"BatchNormalization",
                                       "Cast",
                                       "Concat",
                                       "ConstantOfShape",
                                       "CumSum",
                                       "EmbedLayerNormalization",
                                       "Equal",
                                       "Expand",
                                       "Gather",
                                       "GatherElements",
                                       "GatherND",
                                       "Greater",
                                       "GreaterOrEqual",
                                       "InstanceNormalization",
                                       "LayerNormalization",
                                       "Less",
                                       "LessOrEqual",
                                       "LogSoftmax",
                                       "Pad",
                                       "Range",
                                       "RMSNormalization",
                                       "RotaryEmbedding",
                                       "SimplifiedLayerNormalization",
                                       "Slice",
                                       "Softmax",
                                       "Split",
                                       "Swish",
                                       "Tile",
                                       "Transpose",
                                       "Trilu",
                                       "Where"};
  return types->contains(op_type) || MayRunInPlace(op_type) || absl::StartsWith(op_type, "Reduce");
}

}  // namespace hmm::graph
