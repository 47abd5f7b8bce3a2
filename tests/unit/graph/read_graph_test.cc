// SPDX-License-Identifier: Apache-2.0
#include "graph/read_graph.h"

#include "base/status.h"
#include "graph/file_error.h"
#include "graph/generate.h"
#include "graph/graph_proto.h"
#include "graph/plan_proto.h"
#include "support/catch.h"
#include "support/temp_dir.h"
#include "unit/graph/same.h"

namespace hmm::graph {
namespace {

using Catch::Contains;
using hmm::testing::Same;

plan::Graph Example() {
  ModelPreset preset = *FindModelPreset("llama-8b");
  preset.shape.layers = 2;
  return GenerateModel(preset.shape, preset.step).value();
}

TEST_CASE("every form is told from the others") {
  const hmm::testing::TempDir dir;
  const plan::Graph graph = Example();
  const std::string binary = FormatGraphBinary(graph).value();
  const std::string text = FormatGraphText(graph).value();
  dir.Write("g.pb", binary);
  dir.Write("g.data", binary);  // says itself what it is
  dir.Write("g.pbtxt", text);
  for (const char* name : {"g.pb", "g.data", "g.pbtxt"}) {
    const auto read = ReadGraph(dir.File(name));
    if (!read.ok()) FAIL(read.status());
    CHECK(Same(graph, *read));
  }
  const std::string json = R"( {"nodes": [], "edges": []})";
  CHECK(ReadGraphBytes(json, "g.json").ok());
  CHECK(ReadGraphBytes(json, "g").ok());
  const std::string costed = HMM_TEST_DATA "/graphs/costed/linear_a72.json";
  CHECK(ReadGraph(costed).value().ops.size() == 27);
  CHECK(ReadGraph(costed).value().storages.size() == 27);
  CHECK(ReadGraph(costed, {.costed = {.pin_parameters = true}}).value().storages.size() == 28);
}

TEST_CASE("ONNX models: by name, by content, and their dimensions") {
  const hmm::testing::TempDir dir;
  const std::string path = HMM_TEST_DATA "/graphs/onnx/light_resnet50.onnx";
  const auto graph = ReadGraph(path);
  if (!graph.ok()) FAIL(graph.status());
  CHECK(graph->ops.size() > 100);
  const std::string bytes = ReadFileBytes(path, kMiB).value();
  for (const char* name : {"m.onnx", "m", "m.pb"}) {
    dir.Write(name, bytes);
    const auto same = ReadGraph(dir.File(name));
    if (!same.ok()) FAIL(same.status());
    CHECK(Same(*graph, *same));
    CHECK(Same(*graph, ReadGraphBytes(bytes, name).value()));
  }
  ReadOptions options;
  options.onnx.dims["batch"] = 1;
  const auto none = ReadGraphBytes("", "g.pbtxt", options);
  CHECK(ReasonOf(none.status()) == Reason::kBadArgument);
  CHECK_THAT(std::string(none.status().message()),
             Contains("g.pbtxt is no ONNX model and has no dimension \"batch\""));
}

TEST_CASE("what is no graph is refused by what it is") {
  const auto refusal = [](std::string_view bytes, const std::string& name) {
    const auto graph = ReadGraphBytes(bytes, name);
    REQUIRE_FALSE(graph.ok());
    CHECK(ReasonOf(graph.status()) == Reason::kBadGraph);
    return std::string(graph.status().message());
  };
  CHECK_THAT(refusal("", "g.xyz"), Contains("g.xyz: is no graph that can be told"));
  CHECK_THAT(refusal("x", "g"), Contains(".pbtxt"));
  CHECK_THAT(refusal("", "g.pb"), Contains("g.pb: the file is empty"));
  CHECK_THAT(refusal("[", "g.json"), Contains("g.json:1: no JSON"));
  CHECK_THAT(refusal("ops {", "g.pbtxt"), Contains("g.pbtxt:1:"));
  CHECK_THAT(refusal("ops { }", "g.pbtxt"), Contains("ops[0]: name: is empty"));
  plan::Plan plan;
  plan.wait_begin = {0};
  const std::string bytes = FormatPlanBinary(plan, IdentityOf(plan::Graph())).value();
  CHECK_THAT(refusal(bytes, "p.pb"), Contains("p.pb: is a plan, not a graph"));
  const std::string text = FormatPlanText(plan, IdentityOf(plan::Graph())).value();
  CHECK_THAT(refusal(text, "p.pbtxt"), Contains("p.pbtxt:"));
  CHECK(absl::IsNotFound(ReadGraph("/nonexistent/g.pb").status()));
}

TEST_CASE("an empty text file is an empty graph") {
  CHECK(ReadGraphBytes("", "g.pbtxt").value().ops.empty());
}

}  // namespace
}  // namespace hmm::graph
