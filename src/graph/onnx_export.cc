// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/export.h"
#include "graph/file_error.h"
#include "graph/onnx_facts.h"
#include "graph/onnx_model.h"
#include "graph/onnx_structure.h"

namespace hmm::graph {
namespace {

constexpr int kIrVersion = 8;
constexpr int kOpset = 17;

void SetValue(onnx::ValueInfoProto& info, const std::string& name, Bytes bytes) {
  info.set_name(name);
  onnx::TypeProto::Tensor& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(onnx::TensorProto::UINT8);
  tensor.mutable_shape()->add_dim()->set_dim_value(static_cast<std::int64_t>(bytes));
}

onnx::AttributeProto& AddAttribute(onnx::NodeProto& node, const char* name,
                                   onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

absl::Status CheckSizes(const plan::Graph& graph) {
  for (const plan::Storage& storage : graph.storages) {
    if (storage.bytes <= static_cast<Bytes>(kDimMax)) continue;
    return Error(absl::StatusCode::kResourceExhausted, Reason::kTooLarge,
                 absl::StrCat("storage ", Shown(storage.name), ": ", FormatBytes(storage.bytes),
                              ", at most ", FormatBytes(static_cast<Bytes>(kDimMax)),
                              " can stand in an ONNX file"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<onnx::ModelProto> OnnxOfGraph(const plan::Graph& graph) {
  HMM_RETURN_IF_ERROR(CheckSizes(graph));
  HMM_ASSIGN_OR_RETURN(const Structure structure, StructureOf(graph));
  onnx::ModelProto model;
  model.set_ir_version(kIrVersion);
  model.set_producer_name("hmmd");
  for (const auto& [domain, version] : {std::pair("", kOpset), std::pair(kStructureDomain, 1)}) {
    onnx::OperatorSetIdProto& import = *model.add_opset_import();
    import.set_domain(domain);
    import.set_version(version);
  }
  onnx::StringStringEntryProto& facts = *model.add_metadata_props();
  facts.set_key(kFactsKey);
  facts.set_value(structure.facts);
  onnx::GraphProto& out = *model.mutable_graph();
  out.set_name(structure.name.empty() ? "graph" : structure.name);
  for (const auto* given : {&structure.weights, &structure.inputs}) {
    for (const StructureValue& value : *given) SetValue(*out.add_input(), value.name, value.bytes);
  }
  for (const StructureNode& node : structure.nodes) {
    onnx::NodeProto& made = *out.add_node();
    made.set_name(node.name);
    made.set_domain(kStructureDomain);
    made.set_op_type(node.type);
    for (const std::string& input : node.inputs) made.add_input(input);
    AddAttribute(made, kReadsAttribute, onnx::AttributeProto::INT).set_i(node.reads);
    onnx::AttributeProto& of = AddAttribute(made, kBytesOfAttribute, onnx::AttributeProto::INTS);
    for (std::size_t o = 0; o < node.outputs.size(); ++o) {
      made.add_output(node.outputs[o]);
      of.add_ints(node.bytes_of[o]);
      SetValue(*out.add_value_info(), node.outputs[o], node.output_bytes[o]);
    }
  }
  for (const StructureValue& value : structure.outputs) {
    SetValue(*out.add_output(), value.name, value.bytes);
  }
  return model;
}

bool HasOnnxStructure(const onnx::ModelProto& model) {
  for (const auto& entry : model.metadata_props()) {
    if (entry.key() == kFactsKey) return true;
  }
  return false;
}

absl::StatusOr<plan::Graph> GraphOfOnnxStructure(
    const onnx::ModelProto& model, const std::string& file,
    absl::flat_hash_map<std::string, plan::StorageIndex>* storage_of) {
  Structure structure;
  for (const auto& entry : model.metadata_props()) {
    if (entry.key() == kFactsKey) structure.facts = entry.value();
  }
  const onnx::GraphProto& graph = model.graph();
  absl::flat_hash_map<std::string, Bytes> bytes;
  const auto size = [](const onnx::ValueInfoProto& info) -> Bytes {
    const std::optional<Dims> dims = StaticShape(info.type());
    if (!dims.has_value() || dims->size() != 1 || (*dims)[0] < 0) return 0;
    return static_cast<Bytes>((*dims)[0]);
  };
  for (const auto& info : graph.value_info()) bytes[info.name()] = size(info);
  for (const auto& input : graph.input())
    structure.inputs.push_back({input.name(), size(input), 0});
  for (int n = 0; n < graph.node_size(); ++n) {
    const onnx::NodeProto& node = graph.node(n);
    StructureNode& made = structure.nodes.emplace_back();
    made.name = node.name();
    made.type = node.op_type();
    made.inputs.assign(node.input().begin(), node.input().end());
    made.outputs.assign(node.output().begin(), node.output().end());
    for (const std::string& output : node.output()) made.output_bytes.push_back(bytes[output]);
    std::int64_t reads = -1;
    for (const auto& attribute : node.attribute()) {
      if (attribute.name() == kReadsAttribute) reads = attribute.i();
      if (attribute.name() == kBytesOfAttribute) {
        made.bytes_of.assign(attribute.ints().begin(), attribute.ints().end());
      }
    }
    if (node.domain() != kStructureDomain || reads < 0 || reads > std::numeric_limits<int>::max()) {
      return BadModel(
          file, NodePlace(node, n),
          absl::StrCat("is not of a graph that hmmctl wrote, though the model has ", kFactsKey));
    }
    made.reads = static_cast<std::uint32_t>(reads);
  }
  return GraphOfStructure(structure, file, storage_of);
}

absl::StatusOr<std::string> FormatGraphOnnx(const plan::Graph& graph) {
  HMM_ASSIGN_OR_RETURN(const onnx::ModelProto model, OnnxOfGraph(graph));
  return SerializedOnnx(model);
}

absl::StatusOr<std::string> SerializedOnnx(const onnx::ModelProto& model) {
  std::string bytes;
  if (model.ByteSizeLong() <= std::numeric_limits<std::int32_t>::max() &&
      model.SerializeToString(&bytes)) {
    return bytes;
  }
  return Error(absl::StatusCode::kResourceExhausted, Reason::kTooLarge,
               "the ONNX file would exceed 2 GiB, protobuf's limit");
}

}  // namespace hmm::graph
