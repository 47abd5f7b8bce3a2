// SPDX-License-Identifier: Apache-2.0
//
// What evicting a tensor costs, per byte freed:
//
//   P(used within the horizon) x min(time to bring it back, time to recompute it) x weight / bytes
//
// Uses are taken to come at a rate: those known of over the tensor's age, halved for every
// half-life since the last one. P is then 1 - exp(-rate x horizon). Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "base/units.h"

namespace hmm::policy {

inline constexpr Duration kCostHorizon = std::chrono::seconds(10);
inline constexpr Duration kUseHalfLife = std::chrono::seconds(60);

struct CostFactors {
  std::uint64_t accesses = 0;
  Duration age{};                      // since it was made
  Duration idle{};                     // since the last access
  std::optional<Duration> bring_back;  // unset: there is nowhere below
  std::optional<Duration> recompute;   // unset: unknown
  TensorKind kind = TensorKind::kOther;
  std::uint32_t priority = 0;  // 0 .. 7
  Bytes bytes = 0;             // freed
};

struct EvictionCost {
  double use_probability = 0;  // 0 .. 1
  double uses_per_s = 0;       // decayed
  double weight = 1;
  double us_per_byte = 0;  // 0 when neither time is known
};

// Of a kind: what a miss of it stops. Doubled for every level of priority.
double KindWeight(TensorKind kind);
EvictionCost CostOfEviction(const CostFactors& factors);

}  // namespace hmm::policy
