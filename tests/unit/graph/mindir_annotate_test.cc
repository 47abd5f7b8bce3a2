// SPDX-License-Identifier: Apache-2.0
//
// MindIR models with the moves of a plan in them: what the nodes of moves state, what is refused.
#include <string>

#include "base/status.h"
#include "graph/export.h"
#include "graph/read_graph.h"
#include "mindir_builder.h"
#include "plan/planner.h"
#include "support/read_file.h"
#include "support/temp_dir.h"

namespace hmm {
namespace {

using Catch::Contains;
using hmm::testing::MindIrBuilder;

absl::Status Annotate(const std::string& model, Bytes budget, const std::string& moves) {
  const graph::ReadOptions options;
  const plan::Graph graph = graph::ReadGraph(model).value();
  const auto plan = plan::MakePlan(graph, *plan::MachinePreset("h100"), budget);
  return graph::WriteAnnotatedGraph({model, options, graph, plan.value()}, moves);
}

}  // namespace

TEST_CASE("every node of a move states the shape of what it moves, be it a constant") {
  const hmm::testing::TempDir dir;
  const std::string model = HMM_GRAPH_DATA "/mindir/lenet_2_0.mindir";
  const plan::Graph graph = graph::ReadGraph(model).value();
  // Less than the peak by less than the largest constant, which is what can go then.
  REQUIRE(Annotate(model, 255'160, dir.File("moves.mindir")).ok());
  mind_ir::ModelProto moves;
  REQUIRE(moves.ParseFromString(hmm::testing::ReadFile(dir.File("moves.mindir"))));
  std::size_t of_constants = 0;
  for (const auto& node : moves.graph().node()) {
    if (!node.name().starts_with("hmm.")) continue;
    INFO(node.name());
    REQUIRE(node.attribute_size() == 1);
    CHECK(node.attribute(0).name() == "shape");
    REQUIRE(node.attribute(0).tensors_size() == 1);
    const auto& shape = node.attribute(0).tensors(0);
    CHECK(shape.dims_size() > 0);
    CHECK_FALSE(shape.has_raw_data());
    if (shape.dims_size() == 2 && shape.dims(0) == 120 && shape.dims(1) == 84) ++of_constants;
  }
  CHECK(of_constants > 0);
}

TEST_CASE(
    "with moves in it: a primitive as an argument stays, a call of several results is refused") {
  const hmm::testing::TempDir dir;
  const auto annotate = [&](const MindIrBuilder& b) {
    dir.Write("m.mindir", b.model.SerializeAsString());
    return Annotate(dir.File("m.mindir"), kMiB, dir.File("moves.mindir"));
  };
  MindIrBuilder b = MindIrBuilder::Simple();
  b.Is(b.Node(b.top(), "Map", {"REF::Exp:p", "y"}, "z"), {4});
  b.Node(b.top(), "Exp", {"z"}, "unused");
  REQUIRE(annotate(b).ok());
  const plan::Graph back = graph::ReadGraph(dir.File("moves.mindir")).value();
  CHECK(back.ops.size() == b.Graph().ops.size());

  b = MindIrBuilder::Simple();
  mind_ir::GraphProto& two = b.Function("two");
  b.Input(two, "two:x", {4});
  b.Is(b.Node(two, "Exp", {"two:x"}, "two:a"), {4});
  b.Is(b.Node(two, "Exp", {"two:a"}, "two:b"), {4});
  b.Output(two, "two:a");
  b.Output(two, "two:b");
  b.Number(b.top(), "1", 1);
  b.Node(b.top(), "two", {"y"}, "both", true);
  b.Node(b.top(), "TupleGetItem", {"both", "1"}, "second");
  b.Is(b.Node(b.top(), "Exp", {"second"}, "z"), {4});
  CHECK_THAT(
      std::string(annotate(b).message()),
      Catch::StartsWith(dir.File("m.mindir") + ": node \"second\" takes the result of a called "
                                               "graph with several outputs") &&
          Contains("a MakeTuple of them"));
}

TEST_CASE("a graph that hmmctl wrote, with a node that it would not") {
  const std::string bytes = graph::FormatGraphMindIr(MindIrBuilder::Simple().Graph()).value();
  REQUIRE(graph::ReadGraphBytes(bytes, "g.mindir").ok());
  mind_ir::ModelProto model;
  REQUIRE(model.ParseFromString(bytes));
  model.mutable_graph()->add_node()->set_name("odd");
  const auto graph = graph::ReadGraphBytes(model.SerializeAsString(), "g.mindir");
  CHECK_THAT(std::string(graph.status().message()),
             Contains("g.mindir: node \"odd\": is not as hmmctl writes it"));
}

TEST_CASE("moves that were edited are not those of the plan, and without the plan no graph") {
  const hmm::testing::TempDir dir;
  const std::string path = dir.File("moves.mindir");
  REQUIRE(Annotate(HMM_GRAPH_DATA "/mindir/lenet_2_0.mindir", 255'160, path).ok());
  mind_ir::ModelProto good;
  REQUIRE(good.ParseFromString(hmm::testing::ReadFile(path)));
  CHECK(graph::CheckMoves(path, graph::ReadPlan(path).value()).ok());
  // Moves written where others were leave nothing of those.
  REQUIRE(Annotate(path, 255'160, dir.File("again.mindir")).ok());
  mind_ir::ModelProto again;
  REQUIRE(again.ParseFromString(hmm::testing::ReadFile(dir.File("again.mindir"))));
  CHECK(again.primitives_size() == good.primitives_size());

  mind_ir::ModelProto lost = good;
  auto& nodes = *lost.mutable_graph()->mutable_node();
  std::string from, to;
  for (auto node = nodes.begin(); node != nodes.end(); ++node) {
    if (!node->output(0).starts_with("hmm.in/")) continue;
    from = node->input(0), to = node->output(0);
    nodes.erase(node);
    break;
  }
  REQUIRE_FALSE(from.empty());
  for (auto& node : nodes) {
    for (std::string& input : *node.mutable_input()) {
      if (input == to) input = from;
    }
  }
  dir.Write("moves.mindir", lost.SerializeAsString());
  const absl::Status status = graph::CheckMoves(path, graph::ReadPlan(path).value());
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(std::string(status.message()),
             Contains("moves.mindir: the moves in it are not those of its plan"));

  good.clear_user_info();
  dir.Write("moves.mindir", good.SerializeAsString());
  CHECK_THAT(std::string(graph::ReadGraph(path).status().message()),
             Contains("moves.mindir: holds the moves of a plan (\"hmm."));
}

}  // namespace hmm
