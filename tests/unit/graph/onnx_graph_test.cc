// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>

#include "onnx_model_builder.h"
#include "plan/lifetimes.h"
#include "support/temp_dir.h"

namespace hmm {
namespace {

using graph::OnnxOptions;
using testing::FindOp;
using testing::FindStorage;
using testing::IndexOfStorage;
using testing::ModelBuilder;

using Names = std::vector<std::string>;

Names TypesOf(const plan::Graph& graph) {
  Names types;
  for (const plan::Op& op : graph.ops) types.push_back(op.type);
  return types;
}

bool Reads(const plan::Graph& graph, const std::string& op, const std::string& value) {
  const auto& reads = FindOp(graph, op).reads;
  return std::binary_search(reads.begin(), reads.end(), IndexOfStorage(graph, value));
}
bool Writes(const plan::Graph& graph, const std::string& op, const std::string& value) {
  const auto& writes = FindOp(graph, op).writes;
  return std::binary_search(writes.begin(), writes.end(), IndexOfStorage(graph, value));
}

}  // namespace

TEST_CASE("an empty graph imports") {
  const plan::Graph graph = ModelBuilder().Import();
  CHECK(graph.ops.empty());
  CHECK(graph.storages.empty());
  CHECK(graph.unknown.empty());
}

TEST_CASE("a product: shapes, kinds, work") {
  ModelBuilder m;
  m.Input("x", {"batch", std::int64_t{8}});
  m.Floats("w", {8, 16});
  m.Node("MatMul", {"x", "w"}, {"y"});
  m.Output("y");
  OnnxOptions options;
  options.dims = {{"batch", 4}};
  const plan::Graph graph = m.Import(options);
  CHECK(FindStorage(graph, "x")->bytes == 4 * 8 * 4);
  CHECK(FindStorage(graph, "x")->input);
  CHECK(FindStorage(graph, "w")->bytes == 8 * 16 * 4);
  CHECK(FindStorage(graph, "w")->kind == TensorKind::kWeight);
  CHECK(FindStorage(graph, "w")->persistent);
  CHECK(FindStorage(graph, "y")->bytes == 4 * 16 * 4);
  CHECK(FindStorage(graph, "y")->output);
  CHECK_FALSE(FindStorage(graph, "y")->recomputable);
  CHECK(graph.ops[0].flops == 2.0 * 4 * 16 * 8);
  CHECK(graph.ops[0].microseconds == 0);
}

TEST_CASE("views are aliases and touch nothing") {
  ModelBuilder m;
  m.Input("x", {std::int64_t{4}, std::int64_t{6}});
  m.Ints("shape", {2, 12});
  m.Node("Exp", {"x"}, {"a"});
  m.Node("Reshape", {"a", "shape"}, {"b"});
  m.Node("Transpose", {"b"}, {"c"});
  m.Output("c");
  const plan::Graph graph = m.Import();
  CHECK(IndexOfStorage(graph, "a") == IndexOfStorage(graph, "b"));
  CHECK(IndexOfStorage(graph, "b") != IndexOfStorage(graph, "c"));
  const plan::Op& view = FindOp(graph, "make_b");
  CHECK(view.reads.empty());
  CHECK(view.writes.empty());
  CHECK(view.after == std::vector<plan::OpIndex>{0});
  CHECK(view.microseconds > 0);  // no estimate is made for it
  CHECK(view.microseconds < 1e-6);
  CHECK(Reads(graph, "make_c", "b"));
}

TEST_CASE("an op runs in place when nothing reads its input later") {
  ModelBuilder m;
  m.Input("x", {std::int64_t{64}});
  m.Node("Exp", {"x"}, {"a"});       // not in place: x belongs to the caller
  m.Node("Relu", {"a"}, {"b"});      // in place
  m.Node("Tanh", {"b"}, {"c"});      // not: b is read below
  m.Node("Add", {"b", "c"}, {"d"});  // in place of b
  m.Node("Cast", {"d"}, {"e"})->add_attribute();
  onnx::AttributeProto* to = m.graph().mutable_node(4)->mutable_attribute(0);
  to->set_name("to");
  to->set_type(onnx::AttributeProto::INT);
  to->set_i(onnx::TensorProto::FLOAT16);
  m.Node("Mul", {"d", "d"}, {"f"});  // not: d is an output
  m.Output("d");
  m.Output("e");
  m.Output("f");
  const plan::Graph graph = m.Import();
  CHECK(IndexOfStorage(graph, "x") != IndexOfStorage(graph, "a"));
  CHECK(IndexOfStorage(graph, "a") == IndexOfStorage(graph, "b"));
  CHECK(IndexOfStorage(graph, "b") != IndexOfStorage(graph, "c"));
  CHECK(IndexOfStorage(graph, "b") == IndexOfStorage(graph, "d"));
  CHECK(IndexOfStorage(graph, "d") != IndexOfStorage(graph, "e"));
  CHECK(IndexOfStorage(graph, "d") != IndexOfStorage(graph, "f"));
  CHECK(FindStorage(graph, "e")->bytes == 128);
  CHECK(Reads(graph, "make_b", "a"));
  CHECK(Writes(graph, "make_b", "a"));
  CHECK_FALSE(FindStorage(graph, "a")->recomputable);  // several ops write it
  CHECK(FindStorage(graph, "c")->recomputable);
}

TEST_CASE("an unsorted file is sorted, a sorted one keeps its order") {
  ModelBuilder m;
  m.Input("x", {std::int64_t{4}});
  m.Node("Abs", {"b"}, {"c"});
  m.Node("Neg", {"x"}, {"a"});
  m.Node("Relu", {"a"}, {"b"});
  m.Node("Exp", {"x"}, {"d"});
  m.Output("c");
  CHECK(TypesOf(m.Import()) == Names{"Neg", "Relu", "Abs", "Exp"});

  ModelBuilder sorted;
  sorted.Input("x", {std::int64_t{4}});
  sorted.Node("Exp", {"x"}, {"d"});
  sorted.Node("Neg", {"x"}, {"a"});
  sorted.Node("Relu", {"a"}, {"b"});
  sorted.Node("Abs", {"d"}, {"c"});
  CHECK(TypesOf(sorted.Import()) == Names{"Exp", "Neg", "Relu", "Abs"});
}

TEST_CASE("a long chain, given backwards, does not exhaust the stack") {
  ModelBuilder m;
  const int count = 100'000;
  m.Input("v0", {std::int64_t{4}});
  for (int i = count; i > 0; --i) {
    m.Node("Relu", {"v" + std::to_string(i - 1)}, {"v" + std::to_string(i)});
  }
  m.Output("v" + std::to_string(count));
  const plan::Graph graph = m.Import();
  CHECK(graph.ops.size() == count);
  CHECK(graph.ops[0].name == "make_v1");
  CHECK(graph.storages.size() == 2);  // all in place of the first
}

TEST_CASE("past and present: one storage when the shape stays, two when it grows") {
  const bool grows = GENERATE(false, true);
  ModelBuilder m;
  m.Input("past_key_values.0.key", {std::int64_t{2}, std::int64_t{3}, std::int64_t{4}});
  m.Input("new", {std::int64_t{2}, std::int64_t{grows ? 1 : 3}, std::int64_t{4}});
  if (grows) {
    ModelBuilder::SetInt(m.Node("Concat", {"past_key_values.0.key", "new"}, {"present.0.key"}),
                         "axis", 1);
  } else {
    m.Node("Add", {"past_key_values.0.key", "new"}, {"present.0.key"});
  }
  m.Output("present.0.key");
  const plan::Graph graph = m.Import();
  const plan::Storage* past = FindStorage(graph, "past_key_values.0.key");
  const plan::Storage* present = FindStorage(graph, "present.0.key");
  CHECK(past->kind == TensorKind::kKvCache);
  CHECK(present->kind == TensorKind::kKvCache);
  CHECK((past == present) == !grows);
  CHECK(past->persistent == !grows);
  CHECK(present->bytes == (grows ? 2 * 4 * 4 * 4 : 2 * 3 * 4 * 4));
}

TEST_CASE("a past that is read after the present is written is not overwritten") {
  ModelBuilder m;
  m.Input("past_0", {std::int64_t{2}, std::int64_t{3}, std::int64_t{4}});
  m.Input("past_lengths", {std::int64_t{2}}, onnx::TensorProto::INT32);  // no cache
  m.Node("Exp", {"past_0"}, {"present_0"});
  m.Node("Neg", {"past_0"}, {"y"});
  m.Output("present_0");
  m.Output("y");
  const plan::Graph graph = m.Import();
  CHECK(FindStorage(graph, "past_0") != FindStorage(graph, "present_0"));
  CHECK(FindStorage(graph, "past_lengths")->kind == TensorKind::kActivation);
}

TEST_CASE("constants and constants-of-shape are weights that no op writes") {
  ModelBuilder m;
  m.Input("x", {std::int64_t{3}, std::int64_t{5}});
  m.Ints("shape", {3, 5});
  m.Node("ConstantOfShape", {"shape"}, {"w"});
  onnx::NodeProto* constant = m.Node("Constant", {}, {"k"});
  onnx::AttributeProto* value = constant->add_attribute();
  value->set_name("value");
  value->set_type(onnx::AttributeProto::TENSOR);
  value->mutable_t()->set_data_type(onnx::TensorProto::FLOAT);
  value->mutable_t()->add_dims(5);
  for (int i = 0; i < 5; ++i) value->mutable_t()->add_float_data(1);
  m.Node("Add", {"x", "w"}, {"a"});
  m.Node("Sub", {"a", "k"}, {"y"});
  m.Output("y");
  const plan::Graph graph = m.Import();
  for (const char* name : {"w", "k"}) {
    CHECK(FindStorage(graph, name)->kind == TensorKind::kWeight);
    CHECK(FindStorage(graph, name)->persistent);
    CHECK(FindOp(graph, std::string("make_") + name).writes.empty());
  }
  CHECK(FindStorage(graph, "w")->bytes == 60);
  CHECK(FindStorage(graph, "k")->bytes == 20);
}

TEST_CASE("a branch is one op: the larger side is its workspace, captured values are read") {
  ModelBuilder m;
  m.Input("x", {std::int64_t{100}});
  m.Input("c", {}, onnx::TensorProto::BOOL);
  m.Node("Exp", {"x"}, {"a"});
  onnx::NodeProto* node = m.Node("If", {"c"}, {"y"});
  onnx::GraphProto* yes = ModelBuilder::SetGraph(node, "then_branch");
  onnx::TensorProto* weight = yes->add_initializer();
  weight->set_name("w");
  weight->set_data_type(onnx::TensorProto::FLOAT);
  weight->add_dims(100);
  weight->set_raw_data(std::string(400, '\0'));
  ModelBuilder::AddNode(*yes, "Add", {"a", "w"}, {"t"});
  ModelBuilder::AddNode(*yes, "Transpose", {"t"}, {"yes"});
  yes->add_output()->set_name("yes");
  onnx::GraphProto* no = ModelBuilder::SetGraph(node, "else_branch");
  ModelBuilder::AddNode(*no, "Transpose", {"a"}, {"no"});
  no->add_output()->set_name("no");
  m.Output("y");
  const plan::Graph graph = m.Import();
  CHECK(FindStorage(graph, "y")->bytes == 400);
  CHECK(FindOp(graph, "make_y").workspace == 800);  // t and yes at once
  CHECK(Reads(graph, "make_y", "a"));
  CHECK(Reads(graph, "make_y", "make_y[0]/w"));
  CHECK(FindStorage(graph, "make_y[0]/w")->kind == TensorKind::kWeight);
}

TEST_CASE("a loop's body is inferred from what goes in") {
  ModelBuilder m;
  m.Input("x", {"n", std::int64_t{10}});
  m.Input("trips", {}, onnx::TensorProto::INT64);
  m.Input("go", {}, onnx::TensorProto::BOOL);
  onnx::NodeProto* node = m.Node("Scan", {"x", "x"}, {"state", "out"});
  ModelBuilder::SetInt(node, "num_scan_inputs", 1);
  onnx::GraphProto* body = ModelBuilder::SetGraph(node, "body");
  body->add_input()->set_name("s");
  body->add_input()->set_name("r");
  ModelBuilder::AddNode(*body, "Add", {"s", "r"}, {"s2"});
  ModelBuilder::AddNode(*body, "Exp", {"r"}, {"r2"});
  body->add_output()->set_name("s2");
  body->add_output()->set_name("r2");
  m.Output("state");
  m.Output("out");
  OnnxOptions options;
  options.dims = {{"n", 7}};
  const plan::Graph graph = m.Import(options);
  CHECK(graph.unknown.empty());
  CHECK(FindStorage(graph, "state")->bytes == 7 * 10 * 4);
  CHECK(FindStorage(graph, "out")->bytes == 7 * 10 * 4);
  CHECK(FindOp(graph, "make_state").workspace >= 7 * 10 * 4 + 10 * 4);
}

TEST_CASE("a size that only the data decides is named, and its order is kept") {
  ModelBuilder m;
  m.Input("x", {std::int64_t{8}});
  m.Node("NonZero", {"x"}, {"where"});
  m.Node("Exp", {"x"}, {"e"});
  m.Node("Cast", {"where"}, {"w"})->add_attribute();
  onnx::AttributeProto* to = m.graph().mutable_node(2)->mutable_attribute(0);
  to->set_name("to");
  to->set_type(onnx::AttributeProto::INT);
  to->set_i(onnx::TensorProto::FLOAT);
  m.Output("w");
  const plan::Graph graph = m.Import();
  CHECK(graph.unknown == Names{"where", "w"});
  CHECK(FindStorage(graph, "where") == nullptr);
  CHECK(FindOp(graph, "make_w").after == std::vector<plan::OpIndex>{0});
}

TEST_CASE("what a file declares counts where nothing can be inferred") {
  ModelBuilder m;
  m.Input("x", {"n"});
  m.Node("Strange", {"x"}, {"y"})->set_domain("nobody.knows");
  ModelBuilder::SetType(m.graph().add_value_info(), "y", {"2*n + 1"}, onnx::TensorProto::FLOAT);
  m.Output("y");
  OnnxOptions options;
  options.dims = {{"n", 5}};
  const plan::Graph graph = m.Import(options);
  CHECK(FindStorage(graph, "y")->bytes == 11 * 4);
}

TEST_CASE("a tensor of no elements is neither storage nor unknown") {
  ModelBuilder m;
  m.Input("past_0", {std::int64_t{2}, "past", std::int64_t{4}});
  m.Input("new", {std::int64_t{2}, std::int64_t{1}, std::int64_t{4}});
  ModelBuilder::SetInt(m.Node("Concat", {"past_0", "new"}, {"present_0"}), "axis", 1);
  m.Output("present_0");
  OnnxOptions options;
  options.dims = {{"past", 0}};
  const plan::Graph graph = m.Import(options);
  CHECK(graph.unknown.empty());
  CHECK(FindStorage(graph, "past_0") == nullptr);
  CHECK(FindStorage(graph, "present_0")->bytes == 2 * 4 * 4);
}

TEST_CASE("names of ops are unique whatever the file says") {
  ModelBuilder m;
  m.Input("x", {std::int64_t{4}});
  m.Node("Exp", {"x"}, {"a"})->set_name("same");
  m.Node("Neg", {"a"}, {"b"})->set_name("same");
  m.Node("Abs", {"b"}, {"c"})->clear_name();
  const plan::Graph graph = m.Import();
  CHECK(graph.ops[0].name == "same");
  CHECK(graph.ops[1].name == "b");
  CHECK(graph.ops[2].name == "c");
}

TEST_CASE("a repeated constant: the last one counts") {
  ModelBuilder m;
  m.Input("x", {std::int64_t{12}});
  for (const std::int64_t rows : {3, 2}) {
    onnx::AttributeProto* value = m.Node("Constant", {}, {"shape"})->add_attribute();
    value->set_name("value_ints");
    value->set_type(onnx::AttributeProto::INTS);
    value->add_ints(rows);
    value->add_ints(12 / rows);
  }
  m.Node("Reshape", {"x", "shape"}, {"y"});
  m.Node("ReduceSum", {"y"}, {"z"});
  m.Node("Shape", {"y"}, {"s"});
  m.Node("ConstantOfShape", {"s"}, {"f"});
  ModelBuilder::SetInt(m.Node("Softmax", {"f"}, {"g"}), "axis", 0);
  m.Node("ReduceMax", {"y"}, {"h"});
  ModelBuilder::SetInt(m.graph().mutable_node(7), "keepdims", 0);
  onnx::AttributeProto* axes = m.graph().mutable_node(7)->add_attribute();
  axes->set_name("axes");
  axes->set_type(onnx::AttributeProto::INTS);
  axes->add_ints(1);
  m.Output("h");
  CHECK(FindStorage(m.Import(), "h")->bytes == 2 * 4);
}

TEST_CASE("external data lies in its file; without the file sizes still come from shapes") {
  const testing::TempDir dir;
  dir.Write("model.data", std::string(4096 + 400, 'x'));
  ModelBuilder m;
  m.Input("x", {std::int64_t{10}, std::int64_t{10}});
  m.External("w", {10, 10}, "model.data", "4096", "400");
  m.Node("MatMul", {"x", "w"}, {"y"});
  m.Output("y");
  std::ofstream(dir.File("m.onnx"), std::ios::binary) << m.Bytes();
  const auto graph = graph::ImportOnnx(dir.File("m.onnx"), {});
  INFO(graph.status().ToString());
  REQUIRE(graph.ok());
  CHECK(FindStorage(*graph, "w")->bytes == 400);
  OnnxOptions options;
  CHECK_FALSE(m.Try(options).ok());
  options.external_data_required = false;
  CHECK(m.Try(options).ok());
}

}  // namespace hmm
