// SPDX-License-Identifier: Apache-2.0
//
// Internal to config*.cc. Pure; any thread.
#pragma once

#include "absl/status/status.h"
#include "daemon/config.h"

namespace hmm::daemon {

// The [[tenant]] blocks against each other and against the tiers; fills in the directories that are
// left out. INVALID_ARGUMENT/BAD_CONFIG for the first that is wrong, as config.h says.
// REQUIRES: tiers are checked.
absl::Status CheckTenants(Config& config);

}  // namespace hmm::daemon
