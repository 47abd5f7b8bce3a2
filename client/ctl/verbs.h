// SPDX-License-Identifier: Apache-2.0
//
// What hmmctl does for each verb: ask the daemon, hand the answer to the printer. Data goes to
// standard output. The exit code, or an error for main to report.
#pragma once

#include "absl/status/statusor.h"
#include "client/ctl/cli.h"

namespace hmm::ctl {

// The verbs that ask a daemon, but for replay.
absl::StatusOr<int> RunVerb(const Command& command);
// client/ctl/replay_verb.cc
absl::StatusOr<int> RunReplay(const Command& command);
// client/ctl/plan_verb.cc: needs no daemon
absl::StatusOr<int> RunPlan(const Command& command);
// client/ctl/graph_verb.cc: likewise
absl::StatusOr<int> RunGraph(const Command& command);
// The one of them that the command's verb is for.
absl::StatusOr<int> Run(const Command& command);

// Writes to standard output; an error when it cannot (a full disk, a closed pipe).
absl::Status WriteOut(const std::string& text);

}  // namespace hmm::ctl
