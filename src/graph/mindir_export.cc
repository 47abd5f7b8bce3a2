// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <limits>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/export.h"
#include "graph/file_error.h"
#include "graph/mindir_model.h"
#include "graph/mindir_structure.h"

namespace hmm::graph {
namespace {

using mind_ir::AttributeProto;
using mind_ir::NodeProto;

void SetTensor(mind_ir::TensorProto& tensor, Bytes bytes) {
  tensor.add_dims(static_cast<std::int64_t>(bytes));
  tensor.set_data_type(kMindIrUint8);
}

// What a node yields: a tensor of bytes, or for 0 bytes a monad.
void SetAbstract(AttributeProto& attribute, Bytes bytes) {
  attribute.set_type(bytes == 0 ? kMindIrUMonad : kMindIrTensors);
  if (bytes > 0) SetTensor(*attribute.add_tensors(), bytes);
}

class Writer {
 public:
  explicit Writer(const Structure& structure) : structure_(structure) {
    for (const StructureNode& node : structure.nodes) {
      taken_.insert(node.outputs.begin(), node.outputs.end());
    }
    for (const auto* given : {&structure.weights, &structure.inputs}) {
      for (const StructureValue& value : *given) taken_.insert(value.name);
    }
  }

  mind_ir::ModelProto Run() && {
    model_.set_ir_version("0.1.1");
    model_.set_producer_name("hmmd");
    model_.set_little_endian(true);
    (*model_.mutable_user_info())[kFactsKey] = structure_.facts;
    mind_ir::GraphProto& graph = *model_.mutable_graph();
    graph.set_name(structure_.name.empty() ? "graph" : structure_.name);
    for (const StructureValue& value : structure_.weights) {
      mind_ir::TensorProto& parameter = *graph.add_parameter();
      parameter.set_name(value.name);
      parameter.set_ref_key(value.name);
      SetTensor(parameter, value.bytes);
    }
    for (const StructureValue& value : structure_.inputs) {
      mind_ir::ValueInfoProto& input = *graph.add_input();
      input.set_name(value.name);
      SetTensor(*input.add_tensor(), value.bytes);
    }
    for (const StructureNode& node : structure_.nodes) AddNode(graph, node);
    AddResult(graph);
    return std::move(model_);
  }

 private:
  std::string NewName(const std::string& wanted) {
    std::string name = wanted;
    for (std::size_t k = 2; !taken_.insert(name).second; ++k) name = absl::StrCat(wanted, "~", k);
    return name;
  }

  const std::string& Primitive(const std::string& type) {
    std::string& name = primitives_[type];
    if (name.empty()) {
      name = absl::StrCat(type, ":", primitives_.size());
      mind_ir::PrimitiveProto& primitive = *model_.add_primitives();
      primitive.set_name(name);
      primitive.set_op_type(type);
      primitive.set_prim_type(1);
    }
    return name;
  }

  NodeProto& NewNode(mind_ir::GraphProto& graph, const std::string& type,
                     const std::string& output) {
    NodeProto& node = *graph.add_node();
    node.add_output(output);
    node.set_name(output);
    node.set_op_type(absl::StrCat("REF::", Primitive(type)));
    AttributeProto& shape = *node.add_attribute();
    shape.set_name("shape");
    return node;
  }

  const std::string& Index(mind_ir::GraphProto& graph, std::size_t index) {
    std::string& name = indices_[index];
    if (name.empty()) {
      name = NewName(absl::StrCat("index~", index));
      NodeProto& node = *graph.add_node();
      node.add_output(name);
      node.set_name(name);
      node.set_op_type("Constant");
      AttributeProto& value = *node.add_attribute();
      value.set_name("value");
      value.set_type(kMindIrInt64);
      value.set_i(static_cast<std::int64_t>(index));
    }
    return name;
  }

  void AddNode(mind_ir::GraphProto& graph, const StructureNode& node) {
    const bool several = node.outputs.size() > 1;
    for (std::size_t o = 0; several && o < node.outputs.size(); ++o) Index(graph, o);
    const std::string yields = several ? NewName(absl::StrCat(node.name, "~all")) : node.outputs[0];
    NodeProto& made = NewNode(graph, node.type, yields);
    made.set_domain(node.name);
    for (const std::string& input : node.inputs) made.add_input(input);
    AttributeProto& reads = *made.add_node_attr();
    reads.set_name(kReadsAttribute);
    reads.set_type(kMindIrInt64);
    reads.set_i(node.reads);
    AttributeProto& of = *made.add_node_attr();
    of.set_name(kBytesOfAttribute);
    of.set_type(kMindIrTuple);
    for (const std::int64_t value : node.bytes_of) {
      AttributeProto& entry = *of.add_values();
      entry.set_type(kMindIrInt64);
      entry.set_i(value);
    }
    AttributeProto& shape = *made.mutable_attribute(0);
    if (!several) return SetAbstract(shape, node.output_bytes[0]);
    shape.set_type(kMindIrTuple);
    for (const Bytes bytes : node.output_bytes) SetAbstract(*shape.add_values(), bytes);
    for (std::size_t o = 0; o < node.outputs.size(); ++o) {
      NodeProto& element = NewNode(graph, "TupleGetItem", node.outputs[o]);
      element.add_input(yields);
      element.add_input(Index(graph, o));
      SetAbstract(*element.mutable_attribute(0), node.output_bytes[o]);
    }
  }

  void AddResult(mind_ir::GraphProto& graph) {
    mind_ir::ValueInfoProto& output = *graph.add_output();
    if (structure_.outputs.size() == 1) {
      output.set_name(structure_.outputs[0].name);
      SetTensor(*output.add_tensor(), structure_.outputs[0].bytes);
      return;
    }
    NodeProto& tuple = NewNode(graph, "MakeTuple", NewName("result~all"));
    AttributeProto& shape = *tuple.mutable_attribute(0);
    shape.set_type(kMindIrTuple);
    output.set_name(tuple.output(0));
    for (const StructureValue& value : structure_.outputs) {
      tuple.add_input(value.name);
      SetAbstract(*shape.add_values(), value.bytes);
      SetTensor(*output.add_tensor(), value.bytes);
    }
  }

  const Structure& structure_;
  mind_ir::ModelProto model_;
  absl::flat_hash_set<std::string> taken_;
  absl::flat_hash_map<std::string, std::string> primitives_;
  absl::flat_hash_map<std::size_t, std::string> indices_;
};

Bytes BytesOf(const AttributeProto& abstract) {
  return abstract.tensors_size() == 1 ? MindIrTensorBytes(abstract.tensors(0)).value_or(0) : 0;
}

// One node that stands for an op; those that take its result apart are looked for by name.
absl::Status ReadNode(const NodeProto& node, const std::string& type,
                      const absl::flat_hash_map<std::string, std::string>& elements,
                      StructureNode& made) {
  made.name = node.domain();
  made.type = type;
  made.inputs.assign(node.input().begin(), node.input().end());
  std::int64_t reads = -1;
  for (const AttributeProto& attribute : node.node_attr()) {
    if (attribute.name() == kReadsAttribute) reads = attribute.i();
    if (attribute.name() != kBytesOfAttribute) continue;
    for (const AttributeProto& value : attribute.values()) made.bytes_of.push_back(value.i());
  }
  const std::string where = absl::StrCat("node ", Shown(node.domain()));
  if (reads < 0 || reads > std::numeric_limits<int>::max() || node.attribute_size() < 1 ||
      node.output_size() != 1) {
    return BadGraph(where, "is not as hmmctl writes it");
  }
  made.reads = static_cast<std::uint32_t>(reads);
  const AttributeProto& shape = node.attribute(0);
  if (made.bytes_of.size() == 1) {
    made.outputs.push_back(node.output(0));
    made.output_bytes.push_back(BytesOf(shape));
    return absl::OkStatus();
  }
  for (int o = 0; o < shape.values_size(); ++o) {
    const auto element = elements.find(absl::StrCat(node.output(0), "[", o, "]"));
    if (element == elements.end()) return BadGraph(where, absl::StrCat("has no part ", o));
    made.outputs.push_back(element->second);
    made.output_bytes.push_back(BytesOf(shape.values(o)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<mind_ir::ModelProto> MindIrOfGraph(const plan::Graph& graph) {
  HMM_ASSIGN_OR_RETURN(const Structure structure, StructureOf(graph));
  for (const plan::Storage& storage : graph.storages) {
    if (storage.bytes <= kMindIrBytesMax) continue;
    return Error(
        absl::StatusCode::kResourceExhausted, Reason::kTooLarge,
        absl::StrCat("storage ", Shown(storage.name), ": ", FormatBytes(storage.bytes),
                     ", at most ", FormatBytes(kMindIrBytesMax), " can stand in a MindIR file"));
  }
  return Writer(structure).Run();
}

bool HasMindIrStructure(const mind_ir::ModelProto& model) {
  return model.user_info().contains(kFactsKey);
}

absl::StatusOr<plan::Graph> GraphOfMindIrStructure(
    const mind_ir::ModelProto& model, const std::string& file,
    absl::flat_hash_map<std::string, plan::StorageIndex>* storage_of) {
  Structure structure;
  structure.facts = model.user_info().at(kFactsKey);
  const mind_ir::GraphProto& graph = model.graph();
  for (const auto& parameter : graph.parameter()) {
    structure.weights.push_back({parameter.name(), MindIrTensorBytes(parameter).value_or(0), 0});
  }
  for (const auto& input : graph.input()) {
    const bool tensor = input.tensor_size() == 1;
    structure.inputs.push_back(
        {input.name(), tensor ? MindIrTensorBytes(input.tensor(0)).value_or(0) : 0, 0});
  }
  absl::flat_hash_map<std::string, std::string> types, elements;
  absl::flat_hash_map<std::string, std::int64_t> indices;
  for (const auto& primitive : model.primitives()) {
    types[absl::StrCat("REF::", primitive.name())] = primitive.op_type();
  }
  for (const NodeProto& node : graph.node()) {
    if (node.output_size() != 1) {
      return BadGraph(absl::StrCat(file, ": node ", Shown(node.name())),
                      "is not as hmmctl writes it");
    }
    if (node.node_attr_size() > 0) continue;
    if (node.op_type() == "Constant" && node.attribute_size() == 1) {
      indices[node.output(0)] = node.attribute(0).i();
    } else if (node.input_size() == 2 && types[node.op_type()] == "TupleGetItem") {
      elements[absl::StrCat(node.input(0), "[", indices[node.input(1)], "]")] = node.output(0);
    }
  }
  for (const NodeProto& node : graph.node()) {
    if (node.node_attr_size() == 0) continue;
    const absl::Status read =
        ReadNode(node, types[node.op_type()], elements, structure.nodes.emplace_back());
    if (!read.ok()) return Annotate(read, file);
  }
  return GraphOfStructure(structure, file, storage_of);
}

absl::StatusOr<std::string> FormatGraphMindIr(const plan::Graph& graph) {
  HMM_ASSIGN_OR_RETURN(const mind_ir::ModelProto model, MindIrOfGraph(graph));
  return SerializedMindIr(model);
}

absl::StatusOr<std::string> SerializedMindIr(const mind_ir::ModelProto& model) {
  if (model.ByteSizeLong() > std::numeric_limits<std::int32_t>::max()) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kTooLarge,
                 "the MindIR file would exceed 2 GiB, protobuf's limit");
  }
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream out(&bytes);
    google::protobuf::io::CodedOutputStream coded(&out);
    coded.SetSerializationDeterministic(true);
    model.SerializeToCodedStream(&coded);
  }
  return bytes;
}

}  // namespace hmm::graph
