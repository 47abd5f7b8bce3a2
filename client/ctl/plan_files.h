// SPDX-License-Identifier: Apache-2.0
// The files that `hmmctl plan` and `hmmctl graph` write, before any of them is written.
#pragma once

#include "absl/status/status.h"
#include "client/ctl/plan_args.h"

namespace hmm::ctl {

// INVALID_ARGUMENT/BAD_ARGUMENT if two outputs, or an output and an input, are one file. What is no
// regular file (/dev/null, a pipe) may be named more than once.
absl::Status CheckOutputFiles(const PlanArgs& args);

// INVALID_ARGUMENT: a plan, an annotated graph, a page, a trace or a drawing is not written by such
// a name. Asked before the planning, which may take long. Pipes and devices may have any name,
// except as --out and --emit-graph, whose endings say the format.
absl::Status CheckPlanNames(const PlanArgs& args);

}  // namespace hmm::ctl
