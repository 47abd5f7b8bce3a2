// SPDX-License-Identifier: Apache-2.0
//
// ONNX models with the moves of a plan in them, as ONNX's own checker sees them. That they run, and
// to the same bits, is for tests/runtime; that graph and plan come back, for graph_formats_test.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "graph/export.h"
#include "graph/onnx_dims.h"
#include "graph/onnx_import.h"
#include "onnx_model_builder.h"
#include "plan/lifetimes.h"
#include "plan/planner.h"
#include "support/onnx_checker.h"
#include "support/read_file.h"
#include "support/temp_dir.h"

namespace hmm {
namespace {

using graph::ReadOptions;
using testing::ModelBuilder;
using testing::OnnxCheckerSays;
using testing::TempDir;

onnx::ModelProto Read(const std::string& path) {
  onnx::ModelProto model;
  std::ifstream in(path, std::ios::binary);
  INFO(path);
  REQUIRE(model.ParseFromIstream(&in));
  return model;
}

struct Annotated {
  onnx::ModelProto model;
  std::size_t moves = 0;
};

// With the moves of a plan whose budget is `percent` of the way from the floor to the peak.
Annotated Annotate(const std::string& source, const ReadOptions& options, Bytes percent) {
  const TempDir dir;
  const absl::StatusOr<plan::Graph> graph = graph::ReadGraph(source, options);
  INFO(graph.status().ToString());
  REQUIRE(graph.ok());
  plan::Plan totals;
  plan::FillGraphTotals(*graph, totals);
  const Bytes budget =
      totals.floor_bytes + (totals.unplanned_peak_bytes - totals.floor_bytes) * percent / 100;
  const auto plan = plan::MakePlan(*graph, *plan::MachinePreset("h100"), budget);
  REQUIRE(plan.ok());
  const std::string path = dir.File("moves.onnx");
  const absl::Status written = graph::WriteAnnotatedGraph({source, options, *graph, *plan}, path);
  INFO(written.ToString());
  REQUIRE(written.ok());
  return {Read(path), plan->moves.size()};
}

}  // namespace

TEST_CASE("what ONNX's checker takes, it takes with the moves in it") {
  struct Case {
    const char* name;
    graph::DimBindings dims;
    const char* amiss;  // with the model as it is given
  };
  const Case c = GENERATE(
      Case{"light_resnet50", {}, ""}, Case{"light_densenet121", {}, ""},
      Case{"gpt2_megatron", {{"batch_size", 2}, {"seq_len", 16}, {"past_seq_len", 32}}, ""},
      Case{"tiny_random_gpt2_past",
           {{"batch_size", 2}, {"seq_len", 1}, {"past_seq_len", 15}, {"total_seq_len", 16}},
           ""},
      // Of a version of the format that the checker is too old for; it is lowered below.
      Case{"paged_decoder",
           {{"num_tokens", 8}, {"batch_plus_1", 3}, {"batch", 2}, {"max_blocks", 4}},
           "ir_version"},
      Case{"gpt2_past_12layer", {{"batch_size", 2}, {"seq_len", 7}}, "topologically sorted"},
      Case{"bloom_3layer_training",
           {{"inputs_input_ids_dim0", 2},
            {"inputs_attention_mask_dim0", 2},
            {"inputs_labels_dim0", 2},
            {"inputs_attention_mask_dim1", 1024},
            {"inputs_labels_dim1", 1024}},
           "LayerNormalization"});
  const std::string source = std::string(HMM_GRAPH_DATA) + "/onnx/" + c.name + ".onnx";
  ReadOptions options;
  options.onnx.dims = c.dims;
  INFO(c.name);
  onnx::ModelProto given = Read(source);
  const std::string amiss = OnnxCheckerSays(given);
  INFO(amiss);
  REQUIRE(amiss.empty() == std::string_view(c.amiss).empty());
  REQUIRE(amiss.find(c.amiss) != std::string::npos);
  for (const Bytes percent : {Bytes{5}, Bytes{50}}) {
    Annotated annotated = Annotate(source, options, percent);
    REQUIRE(annotated.moves > 0);
    if (std::string_view(c.amiss) == "ir_version") {
      given.set_ir_version(onnx::IR_VERSION);
      REQUIRE(OnnxCheckerSays(given) == "");
      annotated.model.set_ir_version(onnx::IR_VERSION);
    } else if (!amiss.empty()) {
      continue;
    }
    CHECK(OnnxCheckerSays(annotated.model) == "");
  }
}

TEST_CASE("the checker sees what is wrong with a model that has moves in it") {
  const std::string source = std::string(HMM_GRAPH_DATA) + "/onnx/light_resnet50.onnx";
  const onnx::ModelProto good = Annotate(source, {}, 50).model;
  REQUIRE(OnnxCheckerSays(good) == "");
  onnx::ModelProto bad = good;
  bad.mutable_opset_import()->RemoveLast();  // of the functions
  CHECK(OnnxCheckerSays(bad) != "");
  bad = good;
  bad.mutable_functions(0)->mutable_node(0)->set_input(0, "nothing");
  CHECK(OnnxCheckerSays(bad) != "");
  bad = good;
  auto& nodes = *bad.mutable_graph()->mutable_node();
  nodes.SwapElements(0, nodes.size() - 1);
  CHECK(OnnxCheckerSays(bad) != "");
}

TEST_CASE("of constants of one name the last still counts") {
  // The file is unsorted: what reads the name stands before them all.
  ModelBuilder m;
  m.Input("x", {std::int64_t{12}});
  m.Node("Reshape", {"x", "shape"}, {"y"});
  for (const std::int64_t rows : {3, 4, 2}) {
    onnx::AttributeProto* value = m.Node("Constant", {}, {"shape"})->add_attribute();
    value->set_name("value_ints");
    value->set_type(onnx::AttributeProto::INTS);
    value->add_ints(rows);
    value->add_ints(12 / rows);
  }
  m.Node("Softmax", {"y"}, {"z"});
  m.Output("z");
  const TempDir dir;
  std::ofstream(dir.File("m.onnx"), std::ios::binary) << m.model.SerializeAsString();
  const onnx::ModelProto annotated = Annotate(dir.File("m.onnx"), {}, 100).model;
  std::vector<std::int64_t> rows;
  bool read = false;
  for (const onnx::NodeProto& node : annotated.graph().node()) {
    if (node.op_type() == "Constant") {
      CHECK_FALSE(read);
      rows.push_back(node.attribute(0).ints(0));
    }
    read |= node.op_type() == "Reshape";
  }
  CHECK(rows == std::vector<std::int64_t>{3, 4, 2});
}

TEST_CASE("a model with symbolic dimensions, its moves in MindIR, which has none") {
  ModelBuilder m;
  m.Input("x", {"batch"});
  m.Node("Softmax", {"x"}, {"y"});
  m.Output("y");
  const TempDir dir;
  const std::string source = dir.File("m.onnx"), path = dir.File("moves.mindir");
  std::ofstream(source, std::ios::binary) << m.model.SerializeAsString();
  ReadOptions options;
  options.onnx.dims["batch"] = 64;
  const plan::Graph graph = graph::ReadGraph(source, options).value();
  const plan::Plan plan = plan::MakePlan(graph, *plan::MachinePreset("h100"), kMiB).value();
  const absl::Status written = graph::WriteAnnotatedGraph({source, options, graph, plan}, path);
  INFO(written.ToString());
  REQUIRE(written.ok());
  CHECK(graph::CheckIdentity(graph::IdentityOf(graph::ReadGraph(path).value()), graph).ok());
}

TEST_CASE("moves that would not be read back leave what lies in their file") {
  ModelBuilder m;
  m.Input("x", {std::int64_t{12}});
  m.Node("Softmax", {"x"}, {"y"});
  m.Output("y");
  const TempDir dir;
  const std::string source = dir.File("m.onnx"), path = dir.File("moves.mindir");
  std::ofstream(source, std::ios::binary) << m.model.SerializeAsString();
  std::ofstream(path) << "precious";
  ReadOptions options;
  options.mindir.file_bytes_max = 16;  // so it is too large for a reader
  const plan::Graph graph = graph::ReadGraph(source, options).value();
  const plan::Plan plan = plan::MakePlan(graph, *plan::MachinePreset("h100"), kMiB).value();
  const absl::Status written = graph::WriteAnnotatedGraph({source, options, graph, plan}, path);
  CHECK_THAT(std::string(written.message()), Catch::Contains("would not be read back the same"));
  CHECK(testing::ReadFile(path) == "precious");
}

TEST_CASE("moves that were edited are not those of the plan, and without the plan no graph") {
  const std::string source = std::string(HMM_GRAPH_DATA) + "/onnx/light_resnet50.onnx";
  const onnx::ModelProto good = Annotate(source, {}, 50).model;
  const TempDir dir;
  const std::string path = dir.File("moves.onnx");
  const auto check = [&](const onnx::ModelProto& model) {
    std::ofstream(path, std::ios::binary) << model.SerializeAsString();
    return graph::CheckMoves(path, graph::ReadPlan(path).value());
  };
  // What other programs write anew without harm.
  onnx::ModelProto model = good;
  model.set_producer_name("another");
  model.mutable_metadata_props()->SwapElements(0, 1);
  for (auto& node : *model.mutable_graph()->mutable_node()) {
    if (node.domain() == "hmm") node.set_name("again/" + node.name());
  }
  CHECK(check(model).ok());

  const auto find = [&](const char* type) {
    auto& nodes = *model.mutable_graph()->mutable_node();
    const auto found = std::find_if(nodes.begin(), nodes.end(),
                                    [&](const auto& node) { return node.op_type() == type; });
    REQUIRE(found != nodes.end());
    return found;
  };
  const auto bypass = [&](const char* type) {
    const auto node = find(type);
    const std::string from = node->input(0), to = node->output(0);
    model.mutable_graph()->mutable_node()->erase(node);
    for (auto& other : *model.mutable_graph()->mutable_node()) {
      for (std::string& input : *other.mutable_input()) {
        if (input == to) input = from;
      }
    }
  };
  const auto says = [&](const char* what) {
    const absl::Status status = check(model);
    CHECK(absl::IsFailedPrecondition(status));
    CHECK_THAT(std::string(status.message()), Catch::StartsWith(path + ": the ") &&
                                                  Catch::Contains(what) &&
                                                  Catch::Contains("plan the model anew"));
  };
  for (const char* type : {"SwapIn", "Depend"}) {
    model = good;
    bypass(type);
    says("moves in it are not those of its plan");
  }
  model = good;
  for (auto& attribute : *find("SwapIn")->mutable_attribute()) {
    if (attribute.name() == "bytes") attribute.set_i(attribute.i() + 1);
  }
  says("moves in it are not those of its plan");
  model = good;
  find("Softmax")->set_input(0, model.graph().input(0).name());
  says("ops and tensors in it are not those of its plan");

  model = good;
  model.clear_metadata_props();
  std::ofstream(path, std::ios::binary) << model.SerializeAsString();
  CHECK_THAT(std::string(graph::ReadGraph(path).status().message()),
             Catch::StartsWith(path + ": holds the moves of a plan (\"hmm.") &&
                 Catch::Contains("read the model that it was made of"));
}

TEST_CASE("moves written where others were leave nothing of those") {
  const std::string source = std::string(HMM_GRAPH_DATA) + "/onnx/light_resnet50.onnx";
  const onnx::ModelProto once = Annotate(source, {}, 50).model;
  const TempDir dir;
  std::ofstream(dir.File("once.onnx"), std::ios::binary) << once.SerializeAsString();
  const onnx::ModelProto twice = Annotate(dir.File("once.onnx"), {}, 50).model;
  CHECK(twice.SerializeAsString() == once.SerializeAsString());
}

}  // namespace hmm
