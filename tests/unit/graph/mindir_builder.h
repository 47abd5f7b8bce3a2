// SPDX-License-Identifier: Apache-2.0
// Small MindIR models of the dialect of MindSpore 2.x for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/mindir_import.h"
#include "mindir.pb.h"
#include "support/catch.h"

namespace hmm::testing {

struct MindIrBuilder {
  mind_ir::ModelProto model;

  MindIrBuilder() {
    model.set_ir_version("0.1.1");
    model.mutable_graph()->set_name("top");
  }
  // y = relu(x), with x [4] of 16 bytes.
  static MindIrBuilder Simple() {
    MindIrBuilder b;
    Input(b.top(), "top:x", {4});
    Is(b.Node(b.top(), "ReLU", {"top:x"}, "y"), {4});
    Output(b.top(), "y");
    return b;
  }
  mind_ir::GraphProto& top() { return *model.mutable_graph(); }
  mind_ir::GraphProto& Function(const std::string& name) {
    mind_ir::GraphProto* graph = model.add_functions();
    graph->set_name(name);
    return *graph;
  }

  static void Tensor(mind_ir::TensorProto& tensor, const std::vector<std::int64_t>& dims) {
    for (const std::int64_t dim : dims) tensor.add_dims(dim);
    tensor.set_data_type(1);  // float
  }
  static void Input(mind_ir::GraphProto& graph, const std::string& name,
                    const std::vector<std::int64_t>& dims) {
    mind_ir::ValueInfoProto& input = *graph.add_input();
    input.set_name(name);
    Tensor(*input.add_tensor(), dims);
  }
  mind_ir::TensorProto& Parameter(const std::string& name, const std::vector<std::int64_t>& dims) {
    mind_ir::TensorProto& parameter = *top().add_parameter();
    parameter.set_name("top:" + name);
    parameter.set_ref_key(name);
    Tensor(parameter, dims);
    return parameter;
  }
  static void Output(mind_ir::GraphProto& graph, const std::string& name) {
    graph.add_output()->set_name(name);
  }
  // `op`: a primitive, made where there is none, or the name of a graph or node.
  mind_ir::NodeProto& Node(mind_ir::GraphProto& graph, const std::string& op,
                           const std::vector<std::string>& inputs, const std::string& output,
                           bool is_name = false) {
    mind_ir::NodeProto& node = *graph.add_node();
    node.set_name(output);
    node.add_output(output);
    for (const std::string& input : inputs) node.add_input(input);
    node.set_op_type("REF::" + op + (is_name ? "" : ":p"));
    if (is_name) return node;
    for (const auto& primitive : model.primitives()) {
      if (primitive.name() == op + ":p") return node;
    }
    mind_ir::PrimitiveProto& primitive = *model.add_primitives();
    primitive.set_name(op + ":p");
    primitive.set_op_type(op);
    return node;
  }
  static mind_ir::NodeProto& Is(mind_ir::NodeProto& node, const std::vector<std::int64_t>& dims) {
    mind_ir::AttributeProto& shape = *node.add_attribute();
    shape.set_name("shape");
    shape.set_type(19);  // tensors
    Tensor(*shape.add_tensors(), dims);
    return node;
  }
  static mind_ir::NodeProto& IsTuple(mind_ir::NodeProto& node,
                                     const std::vector<std::vector<std::int64_t>>& parts) {
    mind_ir::AttributeProto& shape = *node.add_attribute();
    shape.set_name("shape");
    shape.set_type(20);  // tuple
    for (const auto& dims : parts) {
      mind_ir::AttributeProto& part = *shape.add_values();
      part.set_type(19);
      Tensor(*part.add_tensors(), dims);
    }
    return node;
  }
  mind_ir::NodeProto& Number(mind_ir::GraphProto& graph, const std::string& name,
                             std::int64_t value) {
    mind_ir::NodeProto& node = Constant(graph, name, 7);
    node.mutable_attribute(0)->set_i(value);
    return node;
  }
  static mind_ir::NodeProto& Monad(mind_ir::GraphProto& graph, const std::string& name) {
    return Constant(graph, name, 23);
  }
  static mind_ir::NodeProto& Constant(mind_ir::GraphProto& graph, const std::string& name,
                                      int type) {
    mind_ir::NodeProto& node = *graph.add_node();
    node.set_name(name);
    node.add_output(name);
    node.set_op_type("Constant");
    mind_ir::AttributeProto& value = *node.add_attribute();
    value.set_name("value");
    value.set_type(type);
    return node;
  }

  absl::StatusOr<plan::Graph> Import(const graph::MindIrOptions& options = {}) const {
    return graph::ImportMindIrBytes(model.SerializeAsString(), "test.mindir", "", options);
  }
  plan::Graph Graph() const {
    absl::StatusOr<plan::Graph> graph = Import();
    INFO(graph.status().ToString());
    REQUIRE(graph.ok());
    return *std::move(graph);
  }
};

}  // namespace hmm::testing
