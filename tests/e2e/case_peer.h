// SPDX-License-Identifier: Apache-2.0
// How case_peer answers, and how a test starts one.
#pragma once

#include <string>
#include <vector>

#include "support/daemon_process.h"

namespace hmm::testing {

inline constexpr int kGot = 0;
inline constexpr int kFailed = 1;
inline constexpr int kRefusedForOthers = 10;  // FULL or PINNED: another time, perhaps
inline constexpr int kRefusedForSize = 11;    // QUOTA or TOO_LARGE

// A uid that is neither ours nor the overflow uid.
inline constexpr char kOtherUid[] = "61234";

inline std::vector<std::string> AsOther(std::vector<std::string> command) {
  std::vector<std::string> words{"setpriv", "--reuid", kOtherUid, "--clear-groups"};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

}  // namespace hmm::testing
