// SPDX-License-Identifier: Apache-2.0
//
// Orders that make bytes anew by running their op again, where that is cheaper than the round trip
// the plan pays for them. Pure.
#pragma once

#include <vector>

#include "plan/assemble.h"

namespace hmm::plan {

// Candidates: all that pay at once, then each alone, the most stalled first. REQUIRES: `plan` is of
// `order`.
std::vector<Order> RecomputingOrders(const Graph& graph, const Machine& machine, const Order& order,
                                     const Plan& plan);

}  // namespace hmm::plan
