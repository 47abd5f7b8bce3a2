// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/plan_emit.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/ctl/plan_input.h"
#include "client/ctl/plan_words.h"
#include "graph/export.h"

namespace hmm::ctl {

absl::Status EmitGraph(const PlanArgs& args, const plan::Plan& plan) {
  if (args.emit_graph.empty() || plan.verdict == plan::Verdict::kInfeasible) {
    return absl::OkStatus();
  }
  // Read anew: the one that was planned has durations that are this machine's.
  const absl::StatusOr<plan::Graph> graph = LoadGraph(args.input);
  if (!graph.ok()) return graph.status();
  const absl::Status written = graph::WriteAnnotatedGraph(
      {args.input.graph, ReadOptionsOf(args.input), *graph, plan}, args.emit_graph);
  return written.ok() ? written : Annotate(written, "--emit-graph");
}

absl::Status SayNotEmitted(const PlanArgs& args, const plan::Graph& graph, const plan::Plan& plan) {
  if (args.emit_graph.empty() || plan.verdict != plan::Verdict::kInfeasible) {
    return absl::OkStatus();
  }
  const std::string trace = args.trace.empty() ? "" : absl::StrCat(", --trace ", args.trace);
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kBadArgument,
               absl::StrCat("--emit-graph ", args.emit_graph, trace,
                            ": not written, there is no plan; ", VerdictText(graph, plan)));
}

}  // namespace hmm::ctl
