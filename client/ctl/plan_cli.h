// SPDX-License-Identifier: Apache-2.0
//
// The part of the command line that is `hmmctl plan` and `hmmctl graph`; client/ctl/cli.cc has the
// rest. One thread.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "client/ctl/cli.h"

namespace hmm::ctl {

// Options that hold their values in `command`, which outlives `app`.
void AddPlan(CLI::App* app, Command* command);
void AddGraph(CLI::App* app, Command* command);  // client/ctl/graph_cli.cc
// GRAPH and what belongs to it.
void AddGraphInput(CLI::App* app, Command* command);

// What the parser cannot say of these verbs; empty when all is well.
std::string PlanContradiction(const Command& command);

}  // namespace hmm::ctl
