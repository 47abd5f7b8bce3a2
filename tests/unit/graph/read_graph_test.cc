// SPDX-License-Identifier: Apache-2.0
#include "graph/read_graph.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "base/status.h"
#include "graph/file_error.h"
#include "graph/generate.h"
#include "graph/graph_proto.h"
#include "graph/plan_proto.h"
#include "support/catch.h"
#include "support/temp_dir.h"
#include "support/wait_until.h"
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

TEST_CASE("a pipe without a writer is empty; one with a writer is read to its end") {
  const hmm::testing::TempDir dir;
  const std::string path = dir.File("pipe");
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK(ReadFileBytes(path, 1000).value().empty());
  const int writer = open(path.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(writer >= 0);
  REQUIRE(write(writer, "all of it", 9) == 9);
  absl::StatusOr<std::string> read;
  std::thread reader([&] { read = ReadFileBytes(path, 1000); });
  // Taken by the reader, which waits for more until the last writer is gone.
  const bool taken = hmm::testing::WaitUntil([&] {
    int left = 1;
    return ioctl(writer, FIONREAD, &left) == 0 && left == 0;
  });
  close(writer);
  reader.join();
  CHECK(taken);
  CHECK(read.value() == "all of it");
}

TEST_CASE("a model under another ending is read by its content, or refused by its name") {
  const hmm::testing::TempDir dir;
  const std::string onnx =
      ReadFileBytes(HMM_TEST_DATA "/graphs/onnx/light_resnet50.onnx", kMiB).value();
  const std::string mindir =
      ReadFileBytes(HMM_TEST_DATA "/graphs/mindir/lenet_2_0.mindir", kMiB).value();
  const std::string binary = FormatGraphBinary(Example()).value();
  const std::string text = FormatGraphText(Example()).value();
  plan::Plan plan;
  plan.wait_begin = {0};
  const std::string planned = FormatPlanBinary(plan, IdentityOf(plan::Graph())).value();
  const auto refused = [&](const std::string& name, const std::string& bytes,
                           const std::string& what) {
    dir.Write(name, bytes);
    const std::string path = dir.File(name);
    CHECK(std::string(ReadGraph(path).status().message()) == path + ": " + what);
    CHECK(std::string(ReadGraphBytes(bytes, path).status().message()) == path + ": " + what);
  };
  refused("a.onnx", mindir, "is a MindIR model, no ONNX model; let its name end in .mindir");
  refused("a.mindir", onnx, "is an ONNX model, no MindIR model; let its name end in .onnx");
  refused("b.onnx", binary, "is a binary hmm.v1.Graph, no ONNX model; let its name end in .pb");
  refused("b.mindir", binary, "is a binary hmm.v1.Graph, no MindIR model; let its name end in .pb");
  refused("c.mindir", text, "is text of hmm.v1, no MindIR model; let its name end in .pbtxt");
  refused("d.onnx", planned, "is a plan, not a graph");
  for (const char* name : {"m", "m.pb", "m.json"}) {
    dir.Write(name, mindir);
    const auto read = ReadGraph(dir.File(name));
    if (!read.ok()) FAIL(read.status());
    CHECK(read->ops.size() == 11);
  }
}

TEST_CASE("an empty text file is an empty graph") {
  CHECK(ReadGraphBytes("", "g.pbtxt").value().ops.empty());
}

}  // namespace
}  // namespace hmm::graph
