// SPDX-License-Identifier: Apache-2.0
//
// Published ways to place transfers, rebuilt from their descriptions, beside ours: what a plan is
// worth is told by comparison. All end in the same assembly, so each is as safe as ours; they
// differ in which gaps they choose and where the moves stand. Pure.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/assemble.h"

namespace hmm::plan {

struct Planner {
  std::string_view name;
  std::string_view summary;
  // INVALID_ARGUMENT as CheckGraph. A planner that finds no plan answers kInfeasible; only ours
  // says what would do.
  absl::StatusOr<Plan> (*make)(const Graph& graph, const Machine& machine, Bytes budget);
};
// Ours ("hmm") first, then the baselines.
const std::vector<Planner>& Planners();
const Planner* FindPlanner(std::string_view name);  // nullptr: no such planner

// What a baseline decides for the given order; nullopt where it finds nothing that fits. Marked,
// sorted by gap.
using Decide = std::optional<std::vector<GapPlan>> (*)(const Problem& problem);
struct Baseline {
  std::string_view name;
  std::string_view summary;
  Decide decide;
};
const std::vector<Baseline>& Baselines();

}  // namespace hmm::plan
