// SPDX-License-Identifier: Apache-2.0
//
// The part of the command line that is `hmmctl topology`; client/ctl/cli.cc has the rest. One
// thread.
#pragma once

#include <CLI/CLI.hpp>

#include "client/ctl/cli.h"

namespace hmm::ctl {

// Options that hold their values in `command`, which outlives `app`.
void AddTopology(CLI::App* app, Command* command);

}  // namespace hmm::ctl
