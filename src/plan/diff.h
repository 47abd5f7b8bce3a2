// SPDX-License-Identifier: Apache-2.0
//
// What differs between two plans of one graph: which moves only one has, and which both have at
// another place. Pure; O(m log m).
#pragma once

#include <cstdint>
#include <vector>

#include "plan/graph.h"
#include "plan/plan.h"

namespace hmm::plan {

struct MovePair {
  std::uint32_t a = 0;  // into Plan::moves
  std::uint32_t b = 0;
};

struct PlanDiff {
  std::vector<std::uint32_t> only_a;  // into Plan::moves, in the order of the sequence
  std::vector<std::uint32_t> only_b;
  std::vector<MovePair> placed_otherwise;  // the same move of the same storage between other ops
  // b less a.
  std::int64_t peak_bytes = 0;
  std::int64_t moved_bytes = 0;
  std::int64_t high_water_bytes = 0;
  double stall_us = 0;
  bool same() const { return only_a.empty() && only_b.empty() && placed_otherwise.empty(); }
};

// Moves of one kind, route and storage are matched in the order in which they run: first those
// between the same ops, then the rest. Predicted times do not count. REQUIRES: both are plans of
// one graph.
PlanDiff DiffPlans(const Plan& a, const Plan& b);

}  // namespace hmm::plan
