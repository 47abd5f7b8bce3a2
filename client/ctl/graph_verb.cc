// SPDX-License-Identifier: Apache-2.0
//
// `hmmctl graph`: makes the graph of a model, or reads one; tells what it amounts to and writes it
// where asked. No daemon.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/ctl/graph_model.h"
#include "client/ctl/graph_summary.h"
#include "client/ctl/plan_busy.h"
#include "client/ctl/plan_files.h"
#include "client/ctl/plan_input.h"
#include "client/ctl/verbs.h"
#include "graph/export.h"
#include "graph/file_error.h"

namespace hmm::ctl {
namespace {

// "kv_heads: ..." is about --kv-heads.
absl::Status AboutFlags(const absl::Status& status) {
  std::string message(status.message());
  const std::size_t colon = message.find(": ");
  if (colon == message.npos || message.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") < colon) {
    return status;
  }
  std::replace(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(colon), '_', '-');
  return Error(status.code(), Reason::kBadArgument, absl::StrCat("--", message));
}

}  // namespace

absl::StatusOr<int> RunGraph(const Command& command) {
  HMM_RETURN_IF_ERROR(CheckOutputFiles(command.plan));
  plan::Graph graph;
  GraphSummary summary;
  {
    const Busy busy("reading the graph");
    if (command.verb == Verb::kGraphModel) {
      const absl::StatusOr<ModelSpec> spec = MakeModelSpec(command.model);
      if (!spec.ok()) return AboutFlags(spec.status());
      absl::StatusOr<plan::Graph> made = GenerateSpec(command.model, *spec);
      if (!made.ok()) return AboutFlags(made.status());
      graph = *std::move(made);
      summary = Summarize(graph);
      summary.parameters = graph::CountParameters(spec->shape);
    } else {
      HMM_ASSIGN_OR_RETURN(graph, LoadGraph(command.plan.input));
      summary = Summarize(graph);
    }
    if (!command.plan.out.empty()) {
      HMM_RETURN_IF_ERROR(
          graph::WriteGraph(graph, graph::FileFormatOf(command.plan.out_format), command.plan.out));
    }
  }
  HMM_RETURN_IF_ERROR(WriteOut(FormatSummary(graph, summary, command.format)));
  return 0;
}

}  // namespace hmm::ctl
