// SPDX-License-Identifier: Apache-2.0
//
// The machine that hmmctl runs on, as the planner sees machines: what can be measured without a
// device in a tenth of a second. Emulated HBM is host memory, so the link between it and DDR is
// memcpy. Every number says in `assumptions` how it came about. One thread at a time.
#pragma once

#include "absl/status/statusor.h"
#include "plan/machine.h"

namespace hmm::ctl {

// RESOURCE_EXHAUSTED/NO_MEMORY when there is no memory to measure with; UNAVAILABLE/DEADLINE when
// the machine is too busy: what takes a tenth of a second took ten times that. Of both:
absl::StatusOr<plan::Machine> MeasureThisMachine();
// Compute and HBM bandwidth alone, for one whose tiers and links are known otherwise.
absl::StatusOr<plan::Machine> MeasureCompute();

}  // namespace hmm::ctl
