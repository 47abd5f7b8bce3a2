// SPDX-License-Identifier: Apache-2.0
//
// Which gaps give up their bytes, so that every position fits. Greedy in the order of a rule, over
// a segment tree of what is over the target; then whatever proves superfluous is taken back,
// dearest first. Pure; O(G log n).
#pragma once

#include <cstdint>
#include <vector>

#include "plan/cost.h"

namespace hmm::plan {

enum class ChooseRule : std::uint8_t {
  kHide,    // least exposed time for each over-budget byte x time it relieves
  kLink,    // least link time likewise
  kSlack,   // most spare time left after the transfers
  kRelief,  // most relief
  kLong,    // longest gap
};
inline constexpr std::uint32_t kChooseRules = 5;

struct ChooseOptions {
  ChooseRule rule = ChooseRule::kHide;
  Bytes margin = 0;  // below the budget where ops leave it: room in which SwapIns can be early
  const std::vector<bool>* banned = nullptr;  // by gap: only if nothing else does
};

// By position: budget - margin, but never below what the op itself needs, nor above the budget.
std::vector<Bytes> ChooseTarget(const Problem& problem, Bytes margin);

// Chosen gaps, ascending. Where every gap together does not reach the target (or the budget), all
// useful ones are chosen; Assemble tells. `factors` are those of the target.
std::vector<std::uint32_t> Choose(const Problem& problem, const std::vector<GapFactors>& factors,
                                  const ChooseOptions& options);

}  // namespace hmm::plan
