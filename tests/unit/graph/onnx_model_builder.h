// SPDX-License-Identifier: Apache-2.0
// Small ONNX models for tests, and the importer on them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <variant>
#include <vector>

#include "graph/onnx_import.h"
#include "onnx/onnx_pb.h"
#include "support/catch.h"

namespace hmm::testing {

using DimText = std::variant<std::int64_t, std::string>;  // a number, or a name or expression

struct ModelBuilder {
  onnx::ModelProto model;

  explicit ModelBuilder(int opset = 17) {
    model.set_ir_version(8);
    model.mutable_graph()->set_name("test");
    onnx::OperatorSetIdProto* import = model.add_opset_import();
    import->set_domain("");
    import->set_version(opset);
  }
  onnx::GraphProto& graph() { return *model.mutable_graph(); }

  static void SetType(onnx::ValueInfoProto* info, const std::string& name,
                      const std::vector<DimText>& dims, int type) {
    info->set_name(name);
    onnx::TypeProto::Tensor* tensor = info->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    tensor->mutable_shape();
    for (const DimText& dim : dims) {
      onnx::TensorShapeProto::Dimension* out = tensor->mutable_shape()->add_dim();
      if (const auto* value = std::get_if<std::int64_t>(&dim)) out->set_dim_value(*value);
      if (const auto* text = std::get_if<std::string>(&dim)) out->set_dim_param(*text);
    }
  }
  static void AddInput(onnx::GraphProto& graph, const std::string& name,
                       const std::vector<DimText>& dims, int type = onnx::TensorProto::FLOAT) {
    SetType(graph.add_input(), name, dims, type);
  }
  static onnx::NodeProto* AddNode(onnx::GraphProto& graph, const std::string& type,
                                  const std::vector<std::string>& inputs,
                                  const std::vector<std::string>& outputs) {
    onnx::NodeProto* node = graph.add_node();
    node->set_op_type(type);
    node->set_name(outputs.empty() ? type : "make_" + outputs[0]);
    for (const std::string& input : inputs) node->add_input(input);
    for (const std::string& output : outputs) node->add_output(output);
    return node;
  }
  void Input(const std::string& name, const std::vector<DimText>& dims,
             int type = onnx::TensorProto::FLOAT) {
    AddInput(graph(), name, dims, type);
  }
  void Output(const std::string& name) { graph().add_output()->set_name(name); }
  onnx::NodeProto* Node(const std::string& type, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs) {
    return AddNode(graph(), type, inputs, outputs);
  }
  static void SetInt(onnx::NodeProto* node, const std::string& name, std::int64_t value) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::INT);
    attribute->set_i(value);
  }
  static onnx::GraphProto* SetGraph(onnx::NodeProto* node, const std::string& name) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::GRAPH);
    return attribute->mutable_g();
  }
  onnx::TensorProto* Ints(const std::string& name, const std::vector<std::int64_t>& values) {
    onnx::TensorProto* tensor = graph().add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::INT64);
    tensor->add_dims(static_cast<std::int64_t>(values.size()));
    for (const std::int64_t value : values) tensor->add_int64_data(value);
    return tensor;
  }
  // Zeros.
  onnx::TensorProto* Floats(const std::string& name, const std::vector<std::int64_t>& dims) {
    onnx::TensorProto* tensor = graph().add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    std::size_t bytes = 4;
    for (const std::int64_t dim : dims) {
      tensor->add_dims(dim);
      bytes *= static_cast<std::size_t>(dim);
    }
    tensor->set_raw_data(std::string(bytes, '\0'));
    return tensor;
  }
  onnx::TensorProto* External(const std::string& name, const std::vector<std::int64_t>& dims,
                              const std::string& location, const std::string& offset,
                              const std::string& length) {
    onnx::TensorProto* tensor = Floats(name, {});
    tensor->clear_raw_data();
    tensor->set_data_location(onnx::TensorProto::EXTERNAL);
    for (const std::int64_t dim : dims) tensor->add_dims(dim);
    for (const auto& [key, value] : {std::pair("location", location), std::pair("offset", offset),
                                     std::pair("length", length)}) {
      onnx::StringStringEntryProto* entry = tensor->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    return tensor;
  }

  std::string Bytes() const { return model.SerializeAsString(); }
  absl::StatusOr<plan::Graph> Try(const graph::OnnxOptions& options = {},
                                  const std::string& directory = "/nonexistent") const {
    return graph::ImportOnnxBytes(Bytes(), "m.onnx", directory, options);
  }
  plan::Graph Import(const graph::OnnxOptions& options = {}) const {
    absl::StatusOr<plan::Graph> imported = Try(options);
    INFO(imported.status().ToString());
    REQUIRE(imported.ok());
    return *std::move(imported);
  }
};

// The storage of a value, by its own name or as an alias; nullptr: none.
inline const plan::Storage* FindStorage(const plan::Graph& graph, const std::string& name) {
  for (const plan::Storage& storage : graph.storages) {
    if (storage.name == name) return &storage;
    for (const std::string& alias : storage.aliases) {
      if (alias == name) return &storage;
    }
  }
  return nullptr;
}
inline const plan::Op& FindOp(const plan::Graph& graph, const std::string& name) {
  for (const plan::Op& op : graph.ops) {
    if (op.name == name) return op;
  }
  FAIL("no op " << name);
  return graph.ops.front();
}
inline plan::StorageIndex IndexOfStorage(const plan::Graph& graph, const std::string& name) {
  const plan::Storage* storage = FindStorage(graph, name);
  REQUIRE(storage != nullptr);
  return static_cast<plan::StorageIndex>(storage - graph.storages.data());
}

}  // namespace hmm::testing
