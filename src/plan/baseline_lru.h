// SPDX-License-Identifier: Apache-2.0
//
// The reactive baseline: no look ahead at all. Before each op what it needs is brought in, and the
// least recently used goes until that fits. Pure.
#pragma once

#include <optional>
#include <vector>

#include "plan/assemble.h"

namespace hmm::plan {

std::optional<std::vector<GapPlan>> DecideLru(const Problem& problem);

}  // namespace hmm::plan
