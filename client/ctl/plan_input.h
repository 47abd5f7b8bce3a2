// SPDX-License-Identifier: Apache-2.0
//
// What `hmmctl plan` works on: words of the command line made into graphs, machines and budgets.
// Every error says which flag, file, node or field is meant, and what is near what was given. One
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/ctl/plan_args.h"
#include "graph/read_graph.h"
#include "plan/baselines.h"
#include "plan/graph.h"
#include "plan/machine.h"

namespace hmm::ctl {

// INVALID_ARGUMENT/BAD_SIZE for anything but a size above 0 or a percentage above 0.
absl::StatusOr<Budget> ParseBudget(std::string_view text);
// As text: "24 GiB", "74%".
std::string BudgetText(const Budget& budget);
Bytes BudgetBytes(const Budget& budget, Bytes unplanned_peak);

// Adds "batch=1,past=1024" to `dims`. INVALID_ARGUMENT/BAD_ARGUMENT for no name, no whole number
// >= 0, or a name given twice.
absl::Status ParseDims(std::string_view text, std::map<std::string, std::int64_t>& dims);

// An ONNX file (.onnx), a preset's word (graph_model.h), or else a file of any form that
// graph::ReadGraph knows.
absl::StatusOr<plan::Graph> LoadGraph(const GraphArgs& args);

// How LoadGraph reads files.
graph::ReadOptions ReadOptionsOf(const GraphArgs& args);

// A preset's name, "this" (measured now), or a file. Empty: kDefaultMachine.
absl::StatusOr<plan::Machine> LoadMachine(const std::string& name);

// The durations of a profile, where one is named, for the ops that it has.
absl::Status GiveDurations(const std::string& profile, plan::Graph& graph);

// Empty: ours. NOT_FOUND names the known ones.
absl::StatusOr<const plan::Planner*> FindPlannerNamed(const std::string& name);

}  // namespace hmm::ctl
