// SPDX-License-Identifier: Apache-2.0
//
// How MindSpore's ops treat memory, by type, and what results are, by their stated form.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "graph/mindir_flat.h"

namespace hmm::graph {
namespace {

using mind_ir::AttributeProto;
using mind_ir::NodeProto;
using Types = absl::flat_hash_set<std::string>;
using Kind = MindIrAbstract::Kind;

constexpr char kShapeForm[] = "shape:";  // files of 1.x: "shape:shape1," "shape:Tuple[shape1,..]"

MindIrAbstract OfTensor(const mind_ir::TensorProto& tensor) {
  return {Kind::kTensor, MindIrTensorBytes(tensor), &tensor, {}};
}

MindIrAbstract OfTensors(const google::protobuf::RepeatedPtrField<mind_ir::TensorProto>& tensors,
                         bool tuple) {
  if (tensors.size() == 1 && !tuple) return OfTensor(tensors[0]);
  MindIrAbstract all{Kind::kTuple, {}, nullptr, {}};
  for (const mind_ir::TensorProto& tensor : tensors) all.elements.push_back(OfTensor(tensor));
  return all;
}

}  // namespace

MindIrAbstract AbstractOfValue(const AttributeProto& attribute) {
  const int type = attribute.type();
  const bool tuple = type == kMindIrTuple || type == kMindIrList;
  if (type == kMindIrTensor && attribute.has_t()) return OfTensor(attribute.t());
  if (type == kMindIrTensor || type == kMindIrTensors || tuple) {
    if (!attribute.tensors().empty()) return OfTensors(attribute.tensors(), tuple);
  }
  if (tuple) {
    MindIrAbstract all{Kind::kTuple, {}, nullptr, {}};
    for (const AttributeProto& value : attribute.values()) {
      all.elements.push_back(AbstractOfValue(value));
    }
    return all;
  }
  if (type == kMindIrTensor || type == kMindIrTensors) return {};
  // Files of 1.x say it otherwise.
  if (attribute.has_t() && type == 0) return OfTensor(attribute.t());
  if (!attribute.tensors().empty() && type == 0) return OfTensors(attribute.tensors(), false);
  return {Kind::kHost, {}, nullptr, {}};
}

MindIrAbstract AbstractOf(const NodeProto& node) {
  for (const AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == "shape" && !attribute.has_ref_attr_name()) {
      return AbstractOfValue(attribute);
    }
    const std::string& form = attribute.ref_attr_name();
    if (form.find(kShapeForm) == std::string::npos) continue;
    if (attribute.tensors().empty()) return {Kind::kHost, {}, nullptr, {}};
    return OfTensors(attribute.tensors(), absl::StrContains(form, "Tuple["));
  }
  return {};
}

MindIrAbstract AbstractOfInput(const mind_ir::ValueInfoProto& info) {
  if (!info.tensor().empty()) return OfTensors(info.tensor(), info.tensor_size() > 1);
  return info.has_attr_info() ? AbstractOfValue(info.attr_info()) : MindIrAbstract{};
}

bool PassesOn(const std::string& type) {
  static const auto* types = new Types{"Depend", "Load", "Return", "StopGradient"};
  return types->contains(type);
}

bool IsMindIrView(const std::string& type) {
  static const auto* types = new Types{"ExpandDims", "Flatten", "Identity",  "Reshape",
                                       "Squeeze",    "View",    "Unsqueeze", "ReshapeView"};
  return types->contains(type);
}

bool ReadsNoData(const std::string& type) {
  static const auto* types =
      new Types{"DType", "DynamicShape", "Rank", "Shape", "Size", "TensorShape"};
  return types->contains(type);
}

bool IsCheapAndPureMindIr(const std::string& type) {
  static const auto* types = new Types{
      "Abs",     "Add",     "BiasAdd",   "BroadcastTo", "Cast",         "Concat",     "Cos",
      "Div",     "Equal",   "Erf",       "Exp",         "FastGeLU",     "Gather",     "GeLU",
      "GeLUV2",  "Greater", "LayerNorm", "Less",        "Log",          "LogSoftmax", "Maximum",
      "Minimum", "Mul",     "Neg",       "Pow",         "RealDiv",      "ReLU",       "ReLU6",
      "RmsNorm", "Rsqrt",   "Select",    "Sigmoid",     "SiLU",         "Sin",        "Slice",
      "Softmax", "Split",   "Sqrt",      "Square",      "StridedSlice", "Sub",        "Swiglu",
      "Tanh",    "Tile",    "Transpose"};
  return types->contains(type) || absl::StartsWith(type, "Reduce");
}

const std::vector<std::size_t>& WrittenInputs(const std::string& type) {
  static const auto* none = new std::vector<std::size_t>();
  static const auto* first = new std::vector<std::size_t>{0};
  static const auto* two = new std::vector<std::size_t>{0, 1};
  static const auto* three = new std::vector<std::size_t>{0, 1, 2};
  static const auto* of = new absl::flat_hash_map<std::string, std::vector<std::size_t>>{
      {"Adam", *three},
      {"AdamWeightDecay", *three},
      {"ApplyAdagrad", *two},
      {"ApplyAdam", *three},
      {"ApplyFtrl", *three},
      {"ApplyMomentum", *two},
      {"ApplyRMSProp", *three},
      {"Assign", *first},
      {"AssignAdd", *first},
      {"AssignSub", *first},
      {"AdamW", *three},
      {"FusedAdamWeightDecay", *three},
      {"KVCacheMgr", *first},
      {"Lamb", *three},
      {"Momentum", *two},
      {"PromptKVCache", *first},
      {"DecoderKVCache", *first},
      {"ReshapeAndCache", {2, 3}},
      {"SGD", {0, 3}},
  };
  const auto found = of->find(type);
  if (found != of->end()) return found->second;
  const bool in_place = absl::StartsWith(type, "Inplace") ||
                        absl::StartsWith(type, "ScatterUpdate") ||
                        absl::StartsWith(type, "ScatterNdUpdate") || type == "ScatterAdd" ||
                        type == "ScatterNdAdd" || type == "ScatterSub";
  return in_place ? *first : *none;
}

TensorKind ParameterKind(const std::string& name) {
  // What MindSpore's optimizers put before the name of the parameter a state is of.
  for (const char* prefix : {"moments.", "moment1.", "moment2.", "adam_m.", "adam_v.", "accum.",
                             "stat.", "linear.", "mean_square.", "mean_gradient."}) {
    if (absl::StartsWith(name, prefix)) return TensorKind::kOptimizerState;
  }
  for (const char* word : {"key_cache", "value_cache", "kv_cache", "past_key", "past_value"}) {
    if (absl::StrContains(name, word)) return TensorKind::kKvCache;
  }
  return TensorKind::kWeight;
}

}  // namespace hmm::graph
