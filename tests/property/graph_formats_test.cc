// SPDX-License-Identifier: Apache-2.0
//
// Graphs of every kind the generator makes, through every format that there is: the same graph
// comes back, and the same plan is made of it; with the plan's moves written in, the same graph and
// plan come back, and data alone carries all order that the plan has. ONNX's own checker finds
// nothing amiss with either.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "graph/export.h"
#include "graph/graph_proto.h"
#include "graph/mindir_annotate.h"
#include "graph/mindir_structure.h"
#include "graph/onnx_annotate.h"
#include "graph/onnx_structure.h"
#include "graph/read_graph.h"
#include "graph/weave.h"
#include "plan/planner.h"
#include "support/catch.h"
#include "support/gen_graph.h"
#include "support/onnx_checker.h"
#include "support/temp_dir.h"
#include "unit/graph/mindir_builder.h"
#include "unit/graph/same.h"

namespace hmm::graph {
namespace {

using hmm::testing::GenCase;
using hmm::testing::GraphGenerator;
using hmm::testing::kOneIn;
using hmm::testing::OnnxCheckerSays;
using hmm::testing::Same;
using plan::TaskIndex;

constexpr std::uint64_t kCases = 1200 / kOneIn;
const ReadOptions kAsItIs;

plan::Plan PlanOf(const plan::Graph& graph, const GenCase& c) {
  plan::PlanOptions options;
  options.steps = 300;
  options.place.steps = 200;
  absl::StatusOr<plan::Plan> plan = plan::MakePlan(graph, c.machine, c.budget, options);
  REQUIRE(plan.ok());
  return *std::move(plan);
}

// The generator's graphs, with what it leaves out: kinds, aliases, unknown tensors, op types, and a
// storage that nothing touches.
GenCase CaseOf(std::uint64_t seed) {
  GraphGenerator generator(seed);
  GenCase c = generator.Next();
  plan::Graph& graph = c.graph;
  for (plan::Storage& storage : graph.storages) {
    storage.kind = static_cast<TensorKind>(1 + generator.Pick(5));
    if (generator.Chance(0.2)) storage.aliases = {storage.name + "~1", storage.name + "/view"};
  }
  for (plan::Op& op : graph.ops) {
    if (generator.Chance(0.7)) op.type = generator.Chance(0.5) ? "MatMul" : "Add";
    if (generator.Chance(0.3)) op.flops = 1e6 * generator.Unit();
  }
  if (generator.Chance(0.2)) graph.unknown = {"mystery", "another"};
  if (generator.Chance(0.2)) {
    plan::Storage untouched;
    untouched.name = "untouched";
    untouched.bytes = 64;
    untouched.output = generator.Chance(0.5);
    graph.storages.push_back(untouched);
  }
  return c;
}

struct Ancestors {
  absl::flat_hash_map<std::string, std::set<std::string>> of;  // names that data leads from
  absl::flat_hash_map<std::string, std::string> node_of_output;
  std::set<std::string> without_inputs;
};

Ancestors AncestorsOf(const onnx::GraphProto& graph) {
  Ancestors result;
  for (const onnx::NodeProto& node : graph.node()) {
    std::set<std::string> all;
    for (const std::string& input : node.input()) {
      const auto maker = result.node_of_output.find(input);
      if (maker == result.node_of_output.end()) continue;
      all.insert(maker->second);
      const std::set<std::string>& more = result.of[maker->second];
      all.insert(more.begin(), more.end());
    }
    if (node.input_size() == 0) result.without_inputs.insert(node.name());
    for (const std::string& output : node.output()) result.node_of_output[output] = node.name();
    result.of[node.name()] = std::move(all);
  }
  return result;
}

// The node of each task.
std::string NodeOf(const plan::Graph& graph, const plan::Plan& plan, TaskIndex t,
                   const Ancestors& nodes) {
  const plan::Task& task = plan.sequence[t];
  if (!task.is_move) return graph.ops[task.index].name;
  const plan::Move& move = plan.moves[task.index];
  if (move.kind == plan::MoveKind::kRecompute) {
    for (const auto& [output, node] : nodes.node_of_output) {
      if (absl::StartsWith(output, absl::StrCat("hmm.again/", task.index, "/"))) return node;
    }
  }
  const char* kind = move.kind == plan::MoveKind::kSwapOut  ? "out/"
                     : move.kind == plan::MoveKind::kSwapIn ? "in/"
                                                            : "drop/";
  return absl::StrCat("hmm.", kind, task.index);
}

// Whether data leads from task w to node `to`. A drop is a mark: what it waits for has to lead
// there.
bool Leads(const plan::Graph& graph, const plan::Plan& plan, TaskIndex w, const std::string& to,
           const Ancestors& nodes) {
  if (nodes.of.at(to).contains(NodeOf(graph, plan, w, nodes))) return true;
  const plan::Task& task = plan.sequence[w];
  if (!task.is_move || plan.moves[task.index].kind != plan::MoveKind::kDrop) return false;
  for (TaskIndex i = plan.wait_begin[w]; i < plan.wait_begin[w + 1]; ++i) {
    if (!Leads(graph, plan, plan.waits[i], to, nodes)) return false;
  }
  return true;
}

std::string FirstLost(const plan::Graph& graph, const plan::Plan& plan,
                      const onnx::GraphProto& written) {
  const Ancestors nodes = AncestorsOf(written);
  std::vector<std::vector<TaskIndex>> before(plan::ChannelCount(graph));
  for (TaskIndex t = 0; t < plan.sequence.size(); ++t) {
    const std::string node = NodeOf(graph, plan, t, nodes);
    if (!nodes.of.contains(node)) return "no node for " + node;
    std::vector<TaskIndex> waits(plan.waits.begin() + plan.wait_begin[t],
                                 plan.waits.begin() + plan.wait_begin[t + 1]);
    const std::uint32_t channel = plan::ChannelOf(graph, plan, plan.sequence[t]);
    if (channel != plan::kNone) {
      waits.insert(waits.end(), before[channel].begin(), before[channel].end());
      before[channel].push_back(t);
    }
    // What has no tensor to read can be ordered by nothing but its place.
    const bool ordered = !plan.sequence[t].is_move && nodes.without_inputs.contains(node);
    for (const TaskIndex w : waits) {
      if (ordered || Leads(graph, plan, w, node, nodes)) continue;
      return absl::StrCat("nothing leads from ", NodeOf(graph, plan, w, nodes), " to ", node);
    }
  }
  return "";
}

}  // namespace

TEST_CASE("random graphs come back from every format the same, and give the same plan") {
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    const GenCase c = CaseOf(seed);
    const plan::Plan plan = PlanOf(c.graph, c);
    for (const char* name : {"g.pb", "g.pbtxt", "g.onnx", "g.mindir"}) {
      const std::string_view ending = name;
      const auto bytes = ending == "g.pb"      ? FormatGraphBinary(c.graph)
                         : ending == "g.pbtxt" ? FormatGraphText(c.graph)
                         : ending == "g.onnx"  ? FormatGraphOnnx(c.graph)
                                               : FormatGraphMindIr(c.graph);
      if (!bytes.ok()) FAIL("seed " << seed << " " << name << ": " << bytes.status());
      const auto back = ReadGraphBytes(*bytes, name);
      if (!back.ok()) FAIL("seed " << seed << " " << name << ": " << back.status());
      if (!Same(c.graph, *back)) FAIL("seed " << seed << " " << name << ": another graph");
      if (!Same(plan, PlanOf(*back, c))) FAIL("seed " << seed << " " << name << ": another plan");
    }
  }
}

TEST_CASE("with the moves written in, graph, plan and order come back") {
  const hmm::testing::TempDir dir;
  std::uint64_t moves = 0, recomputed = 0, groups = 0;
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    const GenCase c = CaseOf(seed);
    const plan::Plan plan = PlanOf(c.graph, c);
    if (plan.verdict == plan::Verdict::kInfeasible) continue;
    moves += plan.moves.size();
    recomputed += plan.recompute_us > 0 ? 1U : 0U;
    groups += plan.offloaded_groups.empty() ? 0U : 1U;
    const AnnotateRequest request{"", kAsItIs, c.graph, plan};
    for (const char* name : {"a.onnx", "a.mindir"}) {
      const auto written = WriteAnnotatedGraph(request, dir.File(name));
      if (!written.ok()) FAIL("seed " << seed << " " << name << ": " << written);
      const auto back = ReadGraph(dir.File(name));
      if (!back.ok()) FAIL("seed " << seed << " " << name << ": " << back.status());
      if (!Same(c.graph, *back)) FAIL("seed " << seed << " " << name << ": another graph");
      const auto kept = ReadPlan(dir.File(name));
      if (!kept.ok()) FAIL("seed " << seed << " " << name << ": " << kept.status());
      if (!Same(plan, kept->plan)) FAIL("seed " << seed << " " << name << ": another plan");
      const auto moves_are = CheckMoves(dir.File(name), *kept);
      if (!moves_are.ok()) FAIL("seed " << seed << " " << name << ": " << moves_are);
    }
    OnnxModel model{std::make_unique<onnx::ModelProto>(OnnxOfGraph(c.graph).value()), "m", ""};
    for (const bool annotated : {false, true}) {
      if (annotated) REQUIRE(AnnotateOnnx(c.graph, plan, model).ok());
      const std::string amiss = OnnxCheckerSays(*model.proto);
      if (!amiss.empty()) FAIL("seed " << seed << ": " << amiss);
    }
    const std::string lost = FirstLost(c.graph, plan, model.proto->graph());
    if (!lost.empty()) FAIL("seed " << seed << ": " << lost);
  }
  CHECK(moves > 2000 / kOneIn);
  CHECK(recomputed >= 4 / kOneIn);
  CHECK(groups >= 5 / kOneIn);
}

// A loop in MindIR is a graph that calls itself. Where it is called first its nodes stand in place
// of the call, and read back from there it must be counted as it was: once.
TEST_CASE("a loop in MindIR comes back with moves in it, and with moves in that again") {
  hmm::testing::MindIrBuilder b;
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
  b.Is(b.Node(body, "Exp", {"body:i"}, "body:e"), {4});
  b.Is(b.Node(body, "loop", {"body:e"}, "body:r", true), {4});
  b.Output(body, "body:r");
  mind_ir::GraphProto& after = b.Function("after");
  b.Input(after, "after:i", {4});
  b.Is(b.Node(after, "Exp", {"after:i"}, "after:a"), {64});
  b.Is(b.Node(after, "Exp", {"after:a"}, "after:r"), {4});
  b.Output(after, "after:r");
  b.Input(b.top(), "top:x", {4});
  b.Node(b.top(), "loop", {"top:x"}, "y", true);
  b.Output(b.top(), "y");

  const hmm::testing::TempDir dir;
  dir.Write("loop.mindir", b.model.SerializeAsString());
  const plan::Graph graph = ReadGraph(dir.File("loop.mindir")).value();
  const auto plan = plan::MakePlan(graph, *plan::MachinePreset("h100"), Bytes{1} << 20);
  REQUIRE(plan.ok());
  for (const auto& [from, to] :
       {std::pair("loop.mindir", "moves.mindir"), std::pair("moves.mindir", "again.mindir")}) {
    const AnnotateRequest request{dir.File(from), kAsItIs, graph, *plan};
    const absl::Status written = WriteAnnotatedGraph(request, dir.File(to));
    INFO(from << ": " << written);
    REQUIRE(written.ok());
    CHECK(Same(ReadGraph(dir.File(to)).value(), graph));
    CHECK(CheckMoves(dir.File(to), ReadPlan(dir.File(to)).value()).ok());
  }
}

}  // namespace hmm::graph
