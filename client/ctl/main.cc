// SPDX-License-Identifier: Apache-2.0
//
// hmmctl: shows and steers hmmd. Data goes to standard output, errors as "hmmctl: ..." to standard
// error. Exit code 0: done, 1: failed (also: a plan that cannot be), 2: wrong usage.
#include <csignal>
#include <cstdio>
#include <string>

#include "base/status.h"
#include "client/ctl/cli.h"
#include "client/ctl/verbs.h"

int main(int argc, char** argv) {
  // A reader that went away is an error of the write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  const hmm::ctl::ParsedCommand parsed = hmm::ctl::ParseCommandLine(argc, argv);
  if (!parsed.command) return parsed.exit_code;
  const absl::StatusOr<int> done = hmm::ctl::Run(*parsed.command);
  if (done.ok()) return *done;
  // Whoever read us had enough (`| head`): nothing failed.
  if (absl::IsCancelled(done.status()) && done.status().message().empty()) return 0;
  const std::string message(done.status().message());
  std::fprintf(stderr, "hmmctl: %s\n",
               message.empty() ? done.status().ToString().c_str() : message.c_str());
  return 1;
}
