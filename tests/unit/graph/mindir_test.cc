// SPDX-License-Identifier: Apache-2.0
//
// The MindIR importer on models made here: what owns memory and what only passes on, calls,
// closures, recursion, and files that are not what they should be.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/file_error.h"
#include "graph/read_graph.h"
#include "mindir_builder.h"
#include "plan/lifetimes.h"
#include "support/temp_dir.h"

namespace hmm {
namespace {

using Catch::Contains;
using hmm::testing::MindIrBuilder;
using plan::kNone;

plan::StorageIndex Find(const plan::Graph& graph, const std::string& name) {
  for (plan::StorageIndex s = 0; s < graph.storages.size(); ++s) {
    const plan::Storage& storage = graph.storages[s];
    if (storage.name == name) return s;
    if (std::find(storage.aliases.begin(), storage.aliases.end(), name) != storage.aliases.end()) {
      return s;
    }
  }
  return kNone;
}

const plan::Op& OpNamed(const plan::Graph& graph, const std::string& name) {
  for (const plan::Op& op : graph.ops) {
    if (op.name == name) return op;
  }
  FAIL("no op " << name);
  return graph.ops[0];
}

bool Reads(const plan::Op& op, plan::StorageIndex s) {
  return std::binary_search(op.reads.begin(), op.reads.end(), s);
}
bool Writes(const plan::Op& op, plan::StorageIndex s) {
  return std::binary_search(op.writes.begin(), op.writes.end(), s);
}

void Refused(const MindIrBuilder& builder, const std::string& word) {
  const absl::StatusOr<plan::Graph> graph = builder.Import();
  REQUIRE_FALSE(graph.ok());
  CHECK(graph.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(graph.status().message()),
             Catch::StartsWith("test.mindir: ") && Contains(word));
}

}  // namespace

TEST_CASE("what passes on owns nothing, and keeps the order that monads show") {
  MindIrBuilder b;
  b.Parameter("weight", {8});
  b.Input(b.top(), "top:x", {8});
  b.Monad(b.top(), "u");
  b.Node(b.top(), "Load", {"top:weight", "u"}, "w");
  b.Is(b.Node(b.top(), "Mul", {"top:x", "w"}, "a"), {8});
  b.Node(b.top(), "UpdateState", {"u", "a"}, "u2");
  b.Is(b.Node(b.top(), "Assign", {"top:weight", "top:x", "u2"}, "set"), {8});
  b.Node(b.top(), "UpdateState", {"u2", "set"}, "u3");
  b.Is(b.Node(b.top(), "Reshape", {"a"}, "flat"), {2, 4});
  b.Is(b.Node(b.top(), "Add", {"flat", "flat"}, "sum"), {2, 4});
  b.Node(b.top(), "Depend", {"sum", "u3"}, "out");
  b.Output(b.top(), "out");
  const plan::Graph graph = b.Graph();
  REQUIRE(graph.ops.size() == 3);
  const plan::StorageIndex weight = Find(graph, "weight");
  REQUIRE(weight != kNone);
  CHECK(Find(graph, "w") == weight);
  CHECK(Find(graph, "top:weight") == weight);
  CHECK(Find(graph, "set") == weight);
  CHECK(graph.storages[weight].persistent);
  CHECK(graph.storages[weight].kind == TensorKind::kWeight);
  const plan::Op& assign = OpNamed(graph, "set");
  CHECK(Writes(assign, weight));
  CHECK_FALSE(Reads(assign, weight));
  CHECK(assign.after == std::vector<plan::OpIndex>{0});  // by the monad alone
  CHECK(Find(graph, "flat") == Find(graph, "a"));
  CHECK(Find(graph, "out") == Find(graph, "sum"));
  CHECK(graph.storages[Find(graph, "out")].output);
  CHECK(graph.storages.size() == 4);
}

TEST_CASE("results of several parts, and tuples that are handed on") {
  MindIrBuilder b;
  b.Input(b.top(), "top:x", {16});
  b.Number(b.top(), "0", 0);
  b.Number(b.top(), "-1", -1);
  b.IsTuple(b.Node(b.top(), "Split", {"top:x"}, "parts"), {{4}, {12}});
  b.Node(b.top(), "TupleGetItem", {"parts", "0"}, "first");
  b.Node(b.top(), "TupleGetItem", {"parts", "-1"}, "last");
  b.Node(b.top(), "MakeTuple", {"last", "first", "last"}, "both");
  b.Is(b.Node(b.top(), "Concat", {"both"}, "all"), {28});
  b.Output(b.top(), "all");
  const plan::Graph graph = b.Graph();
  REQUIRE(graph.ops.size() == 2);
  CHECK(graph.storages[Find(graph, "first")].bytes == 16);
  CHECK(graph.storages[Find(graph, "parts[1]")].bytes == 48);
  CHECK(Find(graph, "last") == Find(graph, "parts[1]"));
  CHECK(graph.ops[0].writes.size() == 2);
  CHECK(graph.ops[1].reads == graph.ops[0].writes);
}

TEST_CASE("kinds by name: optimizer states and caches, written in place") {
  MindIrBuilder b;
  b.Parameter("w", {4});
  b.Parameter("moments.w", {4});
  b.Parameter("layer.key_cache", {4});
  b.Input(b.top(), "top:g", {4});
  b.Is(b.Node(b.top(), "ApplyMomentum", {"top:w", "top:moments.w", "top:g"}, "step"), {4});
  b.Output(b.top(), "step");
  const plan::Graph graph = b.Graph();
  CHECK(graph.storages[Find(graph, "moments.w")].kind == TensorKind::kOptimizerState);
  CHECK(graph.storages[Find(graph, "layer.key_cache")].kind == TensorKind::kKvCache);
  REQUIRE(graph.ops.size() == 1);
  CHECK(Writes(graph.ops[0], Find(graph, "w")));
  CHECK(Writes(graph.ops[0], Find(graph, "moments.w")));
  CHECK(Find(graph, "step") == Find(graph, "w"));
}

TEST_CASE("a graph called twice is there twice, under names of its own") {
  MindIrBuilder b;
  mind_ir::GraphProto& layer = b.Function("layer");
  b.Input(layer, "layer:h", {4});
  b.Is(b.Node(layer, "Exp", {"layer:h"}, "layer:e"), {4}).set_domain("Default/layer/Exp-op0");
  b.Is(b.Node(layer, "Mul", {"layer:e", "outer"}, "layer:m"), {4});  // a free variable
  b.Output(layer, "layer:m");
  b.Input(b.top(), "top:x", {4});
  b.Is(b.Node(b.top(), "Neg", {"top:x"}, "outer"), {4});
  b.Node(b.top(), "layer", {"top:x"}, "c1", true);
  b.Node(b.top(), "Partial", {"layer", "c1"}, "later");
  b.Node(b.top(), "later", {}, "c2", true);
  b.Output(b.top(), "c2");
  const plan::Graph graph = b.Graph();
  REQUIRE(graph.ops.size() == 5);
  CHECK(OpNamed(graph, "Default/layer/Exp-op0#2").reads ==
        std::vector<plan::StorageIndex>{Find(graph, "layer:m")});
  CHECK(Reads(OpNamed(graph, "layer:m#2"), Find(graph, "outer")));
  CHECK(graph.storages[Find(graph, "layer:m#2")].output);
}

TEST_CASE("a Switch is one op with the larger branch inside") {
  MindIrBuilder b;
  mind_ir::GraphProto& small = b.Function("small");
  b.Input(small, "small:h", {4});
  b.Is(b.Node(small, "Exp", {"small:h"}, "small:e"), {4});
  b.Output(small, "small:e");
  mind_ir::GraphProto& large = b.Function("large");
  b.Input(large, "large:h", {4});
  b.Is(b.Constant(large, "table", 0), {}).clear_attribute();
  mind_ir::AttributeProto& table = *large.mutable_node(0)->add_attribute();
  table.set_name("value");
  table.set_type(19);
  b.Tensor(*table.add_tensors(), {256});
  b.Is(b.Node(large, "Tile", {"large:h", "table", "free"}, "large:t"), {1000});
  b.Is(b.Node(large, "ReduceSum", {"large:t"}, "large:s"), {4});
  b.Output(large, "large:s");
  b.Input(b.top(), "top:c", {1});
  b.Input(b.top(), "top:x", {4});
  b.Is(b.Node(b.top(), "Neg", {"top:x"}, "free"), {4});
  b.Node(b.top(), "Switch", {"top:c", "small", "large"}, "chosen");
  b.Is(b.Node(b.top(), "chosen", {"top:x"}, "y", true), {4});
  b.Output(b.top(), "y");
  const plan::Graph graph = b.Graph();
  REQUIRE(graph.ops.size() == 2);
  const plan::Op& call = OpNamed(graph, "y");
  CHECK(Reads(call, Find(graph, "c")));
  CHECK(Reads(call, Find(graph, "x")));
  CHECK(Reads(call, Find(graph, "free")));
  CHECK(Reads(call, Find(graph, "y[1]/table")));
  CHECK(call.workspace == 4000 + 16);  // large:t and large:s
  CHECK(Writes(call, Find(graph, "y")));
}

TEST_CASE("a loop calls itself, and is counted once") {
  MindIrBuilder b;
  mind_ir::GraphProto& loop = b.Function("loop");
  b.Input(loop, "loop:i", {4});
  b.Is(b.Node(loop, "Less", {"loop:i"}, "loop:c"), {1});
  b.Node(loop, "Partial", {"body", "loop:i"}, "loop:body");
  b.Node(loop, "Partial", {"after", "loop:i"}, "loop:after");
  b.Node(loop, "Switch", {"loop:c", "loop:body", "loop:after"}, "loop:next");
  b.Is(b.Node(loop, "loop:next", {}, "loop:r", true), {4});
  b.Output(loop, "loop:r");
  mind_ir::GraphProto& body = b.Function("body");
  b.Input(body, "body:i", {4});
  b.Is(b.Node(body, "Tile", {"body:i"}, "body:t"), {100});
  b.Is(b.Node(body, "ReduceSum", {"body:t"}, "body:s"), {4});
  b.Is(b.Node(body, "loop", {"body:s"}, "body:r", true), {4});
  b.Output(body, "body:r");
  mind_ir::GraphProto& after = b.Function("after");
  b.Input(after, "after:i", {4});
  b.Is(b.Node(after, "Exp", {"after:i"}, "after:r"), {4});
  b.Output(after, "after:r");
  b.Input(b.top(), "top:x", {4});
  b.Node(b.top(), "loop", {"top:x"}, "y", true);
  b.Output(b.top(), "y");
  const plan::Graph graph = b.Graph();
  REQUIRE(graph.ops.size() == 2);  // the condition, and all that follows it
  CHECK(graph.ops[1].workspace >= 400);
  CHECK(graph.ops[1].workspace < 800);
  CHECK(graph.storages[Find(graph, "loop:r")].output);
}

// g0 calls g1 twice, g1 g2, and so on; the last graph's only node is `last`.
MindIrBuilder CallsThatMultiply(int levels, const std::string& last) {
  MindIrBuilder b;
  for (int level = 0; level < levels; ++level) {
    const std::string name = "g" + std::to_string(level), next = "g" + std::to_string(level + 1);
    mind_ir::GraphProto& graph = b.Function(name);
    b.Input(graph, name + ":x", {4});
    if (level + 1 == levels) {
      b.Is(b.Node(graph, "Exp", {name + ":x"}, last), {4});
      b.Output(graph, last);
      continue;
    }
    b.Node(graph, next, {name + ":x"}, name + ":z", true);
    b.Node(graph, next, {name + ":z"}, name + ":y", true);
    b.Output(graph, name + ":y");
  }
  b.Input(b.top(), "top:x", {4});
  b.Node(b.top(), "g0", {"top:x"}, "y", true);
  b.Output(b.top(), "y");
  return b;
}

TEST_CASE("calls that multiply, and tuples of tuples, are refused in time") {
  const auto refused = [](const MindIrBuilder& b, const graph::MindIrOptions& options,
                          const std::string& why) {
    const absl::Status status = b.Import(options).status();
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK_THAT(std::string(status.message()), Contains(why));
  };
  const MindIrBuilder calls = CallsThatMultiply(40, "e");
  graph::MindIrOptions options;
  options.called_nodes_max = 10'000;
  refused(calls, options, "more than 10081 nodes, the limit here for a file with 81");
  options.nodes_max = 5'000;
  refused(calls, options, "more than 5000 nodes");
  // Not many nodes, but each has a long name, which every run of it keeps.
  options = {};
  options.called_nodes_max = 10'000;
  const std::string long_name(1 << 14, 'e');
  CHECK(CallsThatMultiply(5, long_name).Import(options).ok());
  refused(CallsThatMultiply(12, long_name), options, "takes more work than");

  MindIrBuilder tuples;
  tuples.Input(tuples.top(), "top:x", {4});
  std::string last = "top:x";
  for (int i = 0; i < 2000; ++i) {  // each twice in the next: 2^2000 tensors, if one counted so
    const std::string name = "t" + std::to_string(i);
    tuples.Node(tuples.top(), "MakeTuple", {last, last}, name);
    last = name;
  }
  tuples.Is(tuples.Node(tuples.top(), "AddN", {last}, "y"), {4});
  tuples.Output(tuples.top(), "y");
  CHECK(tuples.Graph().ops.size() == 1);
}

TEST_CASE("sizes that are not known are named and counted nowhere") {
  MindIrBuilder b = MindIrBuilder::Simple();
  b.Is(b.Node(b.top(), "Unique", {"y"}, "some"), {-1});
  b.Node(b.top(), "Custom", {"some"}, "odd");
  b.Is(b.Node(b.top(), "Exp", {"odd"}, "z"), {2});
  b.Output(b.top(), "z");
  const plan::Graph graph = b.Graph();
  CHECK(graph.unknown == std::vector<std::string>{"some", "odd"});
  CHECK(OpNamed(graph, "z").after == std::vector<plan::OpIndex>{2});
}

TEST_CASE("what is amiss is refused by name") {
  MindIrBuilder b = MindIrBuilder::Simple();
  b.Node(b.top(), "Exp", {"nowhere"}, "z");
  Refused(b, "input \"nowhere\": nothing makes it");

  b = MindIrBuilder::Simple();
  b.Node(b.top(), "y", {"top:x"}, "z", true);
  b.top().mutable_node(1)->set_op_type("REF::unheard");
  Refused(b, "\"unheard\" is no primitive, graph or node");

  b = MindIrBuilder::Simple();
  b.Function("f");
  b.Node(b.top(), "f", {"y"}, "z", true);
  Refused(b, "calls graph \"f\", which takes 0 arguments, with 1");

  b = MindIrBuilder::Simple();
  b.top().mutable_node(0)->add_output("second");
  Refused(b, "has 2 outputs");

  b = MindIrBuilder::Simple();
  b.top().mutable_node(0)->mutable_attribute(0)->mutable_tensors(0)->set_data_type(99);
  Refused(b, "data_type 99 is not known");

  b = MindIrBuilder::Simple();
  b.top().mutable_input(0)->mutable_tensor(0)->set_dims(0, -7);
  Refused(b, "dims[0] is -7");

  b = MindIrBuilder::Simple();
  b.Parameter("w", {std::int64_t{1} << 40, std::int64_t{1} << 40});
  Refused(b, "their product is too large");

  b = MindIrBuilder::Simple();
  b.Parameter("w", {4}).set_raw_data("short");
  Refused(b, "raw_data: 5 bytes, its shape needs 16");

  b = MindIrBuilder::Simple();
  b.Parameter("w", {4});
  b.Parameter("w", {4});
  Refused(b, "name: used twice");
}

TEST_CASE("weights in files of their own: bounds are looked at, and the folder is not left") {
  const hmm::testing::TempDir dir;
  MindIrBuilder b = MindIrBuilder::Simple();
  mind_ir::TensorProto& w = b.Parameter("w", {16});
  mind_ir::ExternalDataProto& data = *w.mutable_external_data();
  data.set_location("m_variables/data_0");
  data.set_offset(64);
  data.set_length(64);
  const auto write = [&] { dir.Write("m_graph.mindir", b.model.SerializeAsString()); };
  const auto read = [&](bool required = true) {
    graph::MindIrOptions options;
    options.external_data_required = required;
    return graph::ImportMindIr(dir.File("m_graph.mindir"), options);
  };
  write();
  CHECK_THAT(std::string(read().status().message()), Contains("is not there"));
  CHECK(read(false).ok());
  dir.Write("m_variables/data_0", std::string(127, '\0'));
  CHECK_THAT(std::string(read().status().message()), Contains("lie beyond the end"));
  dir.Write("m_variables/data_0", std::string(128, '\0'));
  REQUIRE(read().ok());
  CHECK(read()->storages[Find(*read(), "w")].bytes == 64);
  data.set_length(60);
  write();
  CHECK_THAT(std::string(read().status().message()), Contains("external_data.length: 60"));
  w.set_compression_type(1);  // then the size is another
  write();
  CHECK(read().ok());
  w.clear_compression_type();
  data.set_length(64);
  data.set_offset(-1);
  write();
  CHECK_THAT(std::string(read().status().message()), Contains("must not be negative"));
  data.set_offset(0);
  for (const char* location : {"/etc/passwd", "../data", "m_variables/../../data", ""}) {
    data.set_location(location);
    write();
    CHECK_THAT(std::string(read().status().message()), Contains("external_data.location"));
  }
}

TEST_CASE("the weights of MindSpore 1.x: files of a graph each") {
  const hmm::testing::TempDir dir;
  MindIrBuilder b;
  b.Input(b.top(), "top:x", {4});
  b.Is(b.Node(b.top(), "Mul", {"top:x", "top:w"}, "y"), {4});
  b.Output(b.top(), "y");
  dir.Write("m_graph.mindir", b.model.SerializeAsString());
  CHECK_FALSE(graph::ReadGraph(dir.File("m_graph.mindir")).ok());
  mind_ir::GraphProto part;
  mind_ir::TensorProto& w = *part.add_parameter();
  w.set_name("top:w");
  MindIrBuilder::Tensor(w, {4});
  w.set_raw_data(std::string(16, '\0'));
  dir.Write("m_variables/data_0", part.SerializeAsString());
  const auto graph = graph::ReadGraph(dir.File("m_graph.mindir"));
  if (!graph.ok()) FAIL(graph.status());
  CHECK(graph->storages[Find(*graph, "w")].kind == TensorKind::kWeight);
  w.set_raw_data("short");
  dir.Write("m_variables/data_0", part.SerializeAsString());
  CHECK_THAT(std::string(graph::ReadGraph(dir.File("m_graph.mindir")).status().message()),
             Contains("raw_data: 5 bytes"));
}

TEST_CASE("every provided MindIR file imports, but for the encrypted one, which is named") {
  const auto file = [](const std::string& name) {
    return graph::ReadGraph(std::string(HMM_GRAPH_DATA) + "/mindir/" + name + ".mindir");
  };
  struct Expected {
    const char* name;
    std::size_t ops;
    Bytes weights;  // summed by hand over the file's parameters and constants
  };
  for (const Expected& expected :
       {Expected{"add_1_1", 1, 0},
        {"relu", 1, 0},
        {"tensor_add", 1, 0},
        // conv 6x1x5x5 and 16x6x5x5, dense 400x120, 120x84 and 84x10, four bytes each
        {"lenet_2_0", 11, 4 * (150 + 2400 + 48000 + 10080 + 840)},
        // 4x50 + 4, 200x10 + 200x50 + 2x200
        {"lstm_1_6", 11, 4 * (200 + 4 + 2000 + 10000 + 400)}}) {
    INFO(expected.name);
    const auto graph = file(expected.name);
    if (!graph.ok()) FAIL(graph.status());
    CHECK(plan::CheckGraph(*graph).ok());
    CHECK(graph->unknown.empty());
    CHECK(graph->ops.size() == expected.ops);
    Bytes weights = 0;
    for (const plan::Storage& storage : graph->storages) {
      if (storage.kind == TensorKind::kWeight) weights += storage.bytes;
    }
    CHECK(weights == expected.weights);
  }
  const plan::Graph lenet = file("lenet_2_0").value();
  CHECK(lenet.ops[0].name == "Default/conv1-Conv2d/Conv2D-op1");
  CHECK(lenet.ops[0].flops == 2.0 * 6 * 28 * 28 * 25);
  CHECK(lenet.ops[10].flops == 2.0 * 84 * 10);
  CHECK(Find(lenet, "conv1.weight") == Find(lenet, "17_1_construct.Default_wrapper.5:7:1"));
  const absl::Status encrypted = file("add_encrypted").status();
  CHECK_THAT(std::string(encrypted.message()), Contains("is encrypted (AES-GCM)"));
  for (const auto& [first, cipher] : {std::pair("\xD9", "AES-CBC"), std::pair("\xDA", "SM4-CBC")}) {
    const std::string bytes = std::string(first) + "\x5E\x3A\x7F and what follows";
    CHECK_THAT(std::string(graph::ReadGraphBytes(bytes, "e.mindir").status().message()),
               Contains(absl::StrCat("is encrypted (", cipher, ")")));
  }
}

TEST_CASE("cut short anywhere, a file is refused or is a graph") {
  for (const char* name : {"lenet_2_0", "lstm_1_6", "relu"}) {
    const std::string bytes =
        graph::ReadFileBytes(std::string(HMM_GRAPH_DATA) + "/mindir/" + name + ".mindir", kMiB)
            .value();
    for (std::size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 300) {
      const auto graph =
          graph::ReadGraphBytes(std::string_view(bytes).substr(0, size), "cut.mindir");
      if (graph.ok()) {
        CHECK(plan::CheckGraph(*graph).ok());
      } else {
        CHECK_THAT(std::string(graph.status().message()), Catch::StartsWith("cut.mindir: "));
      }
    }
  }
}

}  // namespace hmm
