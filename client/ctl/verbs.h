// SPDX-License-Identifier: Apache-2.0
//
// What hmmctl does for each verb: ask the daemon, hand the answer to the printer. Data goes to
// standard output. The exit code, or an error for main to report.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/ctl/cli.h"
#include "client/ctl/daemon_link.h"

namespace hmm::ctl {

// The verbs that ask a daemon once and have a method of Printer.
absl::StatusOr<int> RunVerb(const Command& command);
// client/ctl/replay_verb.cc
absl::StatusOr<int> RunReplay(const Command& command);
// client/ctl/plan_verb.cc: needs no daemon
absl::StatusOr<int> RunPlan(const Command& command);
// client/ctl/graph_verb.cc: likewise
absl::StatusOr<int> RunGraph(const Command& command);
// client/ctl/topology_verb.cc
absl::StatusOr<int> RunTopology(const Command& command);
// stat_verb.cc, events_verb.cc, explain_verb.cc, health_verb.cc, swap_verb.cc, sizes_verb.cc
absl::StatusOr<int> RunStat(const Command& command);
absl::StatusOr<int> RunEvents(const Command& command);
absl::StatusOr<int> RunExplain(const Command& command);
absl::StatusOr<int> RunHealth(const Command& command);
absl::StatusOr<int> RunSwap(const Command& command);   // prefetch too
absl::StatusOr<int> RunSizes(const Command& command);  // resize, compact, log-level
// doctor_verb.cc: needs no daemon
absl::StatusOr<int> RunDoctor(const Command& command);
// The one of them that the command's verb is for.
absl::StatusOr<int> Run(const Command& command);

// A tensor by handle, or by key as `tensor list` prints it, and why it is where it is. Both are a
// tenant's own: `tenant` may be empty where one alone has such a tensor. NOT_FOUND;
// INVALID_ARGUMENT/BAD_ARGUMENT names those that have one.
absl::StatusOr<v1::ExplainResponse> ExplainNamed(DaemonLink& link, const std::string& id,
                                                 const std::string& tenant);

inline std::chrono::milliseconds TimeoutOf(const Command& command) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(command.timeout_s * 1e3));
}

// Says on standard error what failed; the exit code.
int Report(const absl::Status& failed);

// Writes to standard output; an error when it cannot (a full disk, a closed pipe).
absl::Status WriteOut(const std::string& text);

}  // namespace hmm::ctl
