// SPDX-License-Identifier: Apache-2.0
//
// A plan as a trace for chrome://tracing and ui.perfetto.dev: the JSON object form of the Trace
// Event Format. One process; a thread a compute stream and a thread a link direction, with a
// complete event ("X") an op or transfer; a counter ("C") of the bytes in HBM. Pure but for the
// writer.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/ctl/plan_timeline.h"
#include "plan/graph.h"
#include "plan/plan.h"

namespace hmm::ctl {

// Timestamps are microseconds with three decimals, so events of one thread never overlap.
std::string FormatPlanTrace(const plan::Graph& graph, const plan::Plan& plan,
                            const PlanTimeline& timeline);

// FAILED_PRECONDITION where there is no plan to trace.
absl::Status WritePlanTrace(const std::string& path, const plan::Graph& graph,
                            const plan::Machine& machine, const plan::Plan& plan);

}  // namespace hmm::ctl
