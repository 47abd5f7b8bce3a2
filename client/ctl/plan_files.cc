// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/plan_files.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "graph/export.h"
#include "graph/message_file.h"

namespace hmm::ctl {
namespace {

namespace fs = std::filesystem;

struct NamedFile {
  const char* option;
  const std::string& path;
};

// By any name that leads there, whether it exists yet or not.
bool OneFile(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::exists(a, error) && fs::exists(b, error)) {
    return fs::equivalent(a, b, error) && fs::is_regular_file(a, error);
  }
  const fs::path first = fs::weakly_canonical(a, error);
  return !error && first == fs::weakly_canonical(b, error) && !error;
}

absl::Status Refuse(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument, what);
}

// Readers go by the ending. What is no file, such as a pipe or /dev/stdout, has none.
absl::Status CheckEnding(const NamedFile& output, const std::vector<std::string>& endings) {
  const std::string& path = output.path;
  std::error_code error;
  const bool other = fs::exists(path, error) && !fs::is_regular_file(path, error);
  if (path.empty() || path.starts_with("/dev/") || other) return absl::OkStatus();
  for (const std::string& ending : endings) {
    if (path.ends_with(ending)) return absl::OkStatus();
  }
  return Refuse(absl::StrCat(output.option, " ", path, ": the name must end in ",
                             absl::StrJoin(endings, " or ")));
}

}  // namespace

absl::Status CheckOutputFiles(const PlanArgs& args) {
  const std::vector<NamedFile> outputs = {{"--out", args.out},
                                          {"--emit-graph", args.emit_graph},
                                          {"--report", args.report},
                                          {"--trace", args.trace},
                                          {"--svg", args.svg}};
  const std::vector<NamedFile> inputs = {{"GRAPH", args.input.graph},
                                         {"--machine", args.machine},
                                         {"--profile", args.profile},
                                         {"FILE", args.csv}};
  std::error_code error;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const NamedFile& output = outputs[i];
    if (output.path.empty()) continue;
    for (const NamedFile& input : inputs) {
      // Else it is a preset's word.
      if (!fs::exists(input.path, error) || !OneFile(output.path, input.path)) continue;
      return Refuse(absl::StrCat(output.option, " ", output.path, ": would overwrite ",
                                 input.option, " ", input.path));
    }
    for (std::size_t k = 0; k < i; ++k) {
      if (outputs[k].path.empty() || !OneFile(output.path, outputs[k].path)) continue;
      return Refuse(absl::StrCat(output.option, " ", output.path, ": would overwrite ",
                                 outputs[k].option, " ", outputs[k].path));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPlanNames(const PlanArgs& args) {
  if (!args.out.empty()) HMM_RETURN_IF_ERROR(graph::FormOfPath(args.out).status());
  HMM_RETURN_IF_ERROR(CheckEnding({"--report", args.report}, {".html", ".htm"}));
  HMM_RETURN_IF_ERROR(CheckEnding({"--trace", args.trace}, {".json"}));
  HMM_RETURN_IF_ERROR(CheckEnding({"--svg", args.svg}, {".svg"}));
  if (args.emit_graph.empty()) return absl::OkStatus();
  const absl::Status named = graph::CheckAnnotatedName(args.emit_graph);
  return named.ok() ? named : Annotate(named, "--emit-graph");
}

}  // namespace hmm::ctl
