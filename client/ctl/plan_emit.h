// SPDX-License-Identifier: Apache-2.0
// `hmmctl plan --emit-graph`: the graph with the plan's moves in it.
#pragma once

#include "absl/status/status.h"
#include "client/ctl/plan_args.h"
#include "plan/graph.h"
#include "plan/plan.h"

namespace hmm::ctl {

// Where one is asked for; an infeasible plan has no moves and gives none.
absl::Status EmitGraph(const PlanArgs& args, const plan::Plan& plan);

// FAILED_PRECONDITION where one is asked for of an infeasible plan. Names the trace too, which
// there is none of either.
absl::Status SayNotEmitted(const PlanArgs& args, const plan::Graph& graph, const plan::Plan& plan);

}  // namespace hmm::ctl
