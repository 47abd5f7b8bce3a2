// SPDX-License-Identifier: Apache-2.0
//
// How a fuzz target says that a law does not hold: it prints what and aborts, which libFuzzer takes
// for a crash.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"

namespace hmm::fuzz {

inline void Require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what.c_str());
  std::abort();
}

inline void RequireOk(const absl::Status& status, const std::string& what) {
  if (!status.ok()) Require(false, what + ": " + status.ToString());
}

}  // namespace hmm::fuzz
