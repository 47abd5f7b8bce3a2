// SPDX-License-Identifier: Apache-2.0
//
// make_seeds OUT ONNX MINDIR: writes the seeds that our own writers make, OUT/<target>/<name>, and
// the models that stand as text in the folders ONNX and MINDIR.
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "fuzz/cases.h"
#include "fuzz/require.h"
#include "graph/export.h"
#include "graph/file_error.h"
#include "graph/graph_proto.h"
#include "graph/machine_file.h"
#include "graph/plan_proto.h"
#include "graph/profile.h"
#include "mindir.pb.h"
#include "onnx/onnx_pb.h"
#include "plan/planner.h"

namespace {

using namespace hmm;
namespace fs = std::filesystem;

void Write(const fs::path& path, const absl::StatusOr<std::string>& bytes) {
  fuzz::RequireOk(bytes.status(), path.string());
  fs::create_directories(path.parent_path());
  fuzz::RequireOk(graph::WriteFileBytes(path.string(), *bytes), path.string());
}

// With the moves of its plan in it.
void WriteAnnotated(const fs::path& out, const std::string& name, const plan::Graph& graph,
                    const plan::Plan& plan) {
  if (plan.verdict != plan::Verdict::kPlanned) return;
  for (const std::string format : {"onnx", "mindir"}) {
    const fs::path path = out / format / (name + "_moves." + format);
    fuzz::RequireOk(graph::WriteAnnotatedGraph({"", {}, graph, plan}, path.string()), name);
  }
}

void WriteCases(const fs::path& out) {
  const std::vector<hmm::testing::GenCase> cases = fuzz::SmallCases();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const hmm::testing::GenCase& c = cases[i];
    const std::string name = "case" + std::to_string(i);
    plan::PlanOptions options;
    options.steps = 500;
    options.place.steps = 500;
    const auto plan = plan::MakePlan(c.graph, c.machine, c.budget, options);
    fuzz::RequireOk(plan.status(), name);
    const graph::GraphIdentity identity = graph::IdentityOf(c.graph);
    Write(out / "graph" / (name + ".pb"), graph::FormatGraphBinary(c.graph));
    Write(out / "onnx" / (name + ".onnx"), graph::FormatGraphOnnx(c.graph));
    Write(out / "mindir" / (name + ".mindir"), graph::FormatGraphMindIr(c.graph));
    WriteAnnotated(out, name, c.graph, *plan);
    Write(out / "plan" / (name + ".pb"), graph::FormatPlanBinary(*plan, identity));
    if (i % 4 == 0) {
      Write(out / "graph" / (name + ".pbtxt"), graph::FormatGraphText(c.graph));
      Write(out / "plan" / (name + ".pbtxt"), graph::FormatPlanText(*plan, identity));
      Write(out / "profile" / (name + ".csv"), graph::FormatProfile(c.graph));
    }
    if (i < 4) {
      plan::Machine machine = c.machine;  // made without what a file has to have
      machine.flops_per_us = 1e8;
      machine.hbm_bytes_per_us = 1e6;
      machine.hbm_bytes = std::max<Bytes>(c.budget, 1);
      Write(out / "machine" / (name + ".toml"), graph::FormatMachine(machine));
    }
  }
  for (const std::string_view name : plan::MachinePresetNames()) {
    Write(out / "machine" / (std::string(name) + ".toml"),
          graph::FormatMachine(*plan::MachinePreset(name)));
  }
}

template <typename Model>
void WriteModels(const fs::path& out, const fs::path& models, const std::string& ending) {
  for (const fs::directory_entry& entry : fs::directory_iterator(models)) {
    const auto text = graph::ReadFileBytes(entry.path().string(), kMiB);
    fuzz::RequireOk(text.status(), entry.path().string());
    Model model;
    fuzz::Require(google::protobuf::TextFormat::ParseFromString(*text, &model),
                  entry.path().string() + " is a model");
    Write(out / (entry.path().stem().string() + ending), model.SerializeAsString());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("make_seeds OUT ONNX MINDIR\n", stderr);
    return 2;
  }
  WriteCases(argv[1]);
  const fs::path out = argv[1];
  WriteModels<onnx::ModelProto>(out / "onnx", argv[2], ".onnx");
  WriteModels<mind_ir::ModelProto>(out / "mindir", argv[3], ".mindir");
  return 0;
}
