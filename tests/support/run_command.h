// SPDX-License-Identifier: Apache-2.0
// A command as a user runs it, to its end: what it said and how it ended. The test's thread.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "support/catch.h"
#include "support/read_file.h"
#include "support/temp_dir.h"

namespace hmm::testing {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

// In a shell, with nothing to read: words without quotes. A command that dies of a signal fails the
// test; one that may hang says its own bound (`timeout 60 ...`).
inline Outcome RunCommand(const std::string& command) {
  const TempDir dir;
  const std::string whole =
      command + " >" + dir.File("out") + " 2>" + dir.File("err") + " </dev/null";
  const int status = std::system(whole.c_str());
  REQUIRE(WIFEXITED(status));
  return {WEXITSTATUS(status), ReadFile(dir.File("out")), ReadFile(dir.File("err"))};
}

}  // namespace hmm::testing
