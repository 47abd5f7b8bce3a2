// SPDX-License-Identifier: Apache-2.0
//
// Other orders of the same ops that may hide what a plan does not: work that does not depend on a
// stalled op is put before it. Pure.
#pragma once

#include <vector>

#include "plan/assemble.h"

namespace hmm::plan {

// Whether every dependency of the graph (data, `after`) points backwards in `order`, and each op
// stands in it once.
bool ValidOrder(const Graph& graph, const Order& order);

// Candidates, the most promising first; none where nothing stalls. REQUIRES: `assembled` is of
// `order`, which holds no recomputation.
std::vector<Order> OtherOrders(const Graph& graph, const Order& order, const Assembled& assembled);

}  // namespace hmm::plan
