// SPDX-License-Identifier: Apache-2.0
//
// Arguments of the verbs that look and steer. Values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace hmm::ctl {

// Which tensors; empty: any. Words as the lists print them.
struct SelectArgs {
  std::string tenant{};
  std::string tier{};
  std::string kind{};
  std::string state{};
  std::string key_prefix{};
  std::optional<bool> pinned{};
  std::vector<std::string> ids{};  // handles, or keys as `tensor list` prints them
};

struct EventArgs {
  std::vector<std::string> types;  // empty: all
  std::string tier;
  std::string tenant;
  std::uint32_t occupancy_ms = 0;
  std::optional<std::uint64_t> after{};
  std::uint64_t count = 0;  // events to print; 0: until stopped
};

struct DoctorArgs {
  std::string root = "/";  // hidden, for tests: where /proc and /sys are
  std::string flash;       // empty: /var/lib/hmm
};

}  // namespace hmm::ctl
