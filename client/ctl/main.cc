// SPDX-License-Identifier: Apache-2.0
//
// hmmctl: shows and steers hmmd. Data goes to standard output, errors as "hmmctl: ..." to standard
// error. Exit code 0: done, 1: failed (also: a plan that cannot be), 2: wrong usage.
#include <google/protobuf/stubs/logging.h>

#include <csignal>

#include "absl/status/statusor.h"
#include "client/ctl/cli.h"
#include "client/ctl/verbs.h"

int main(int argc, char** argv) {
  // A reader that went away is an error of the write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // nor is a file that may not grow
  // What it would say of a file, our readers say, with its name.
  google::protobuf::SetLogHandler(nullptr);
  const hmm::ctl::ParsedCommand parsed = hmm::ctl::ParseCommandLine(argc, argv);
  if (!parsed.command) return parsed.exit_code;
  const absl::StatusOr<int> done = hmm::ctl::Run(*parsed.command);
  return done.ok() ? *done : hmm::ctl::Report(done.status());
}
