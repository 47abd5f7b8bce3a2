// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of eviction costs. Pure, any thread.
#include "policy/cost.h"

#include <algorithm>
#include <cmath>

namespace hmm::policy {
namespace {

double Seconds(Duration span) { return std::chrono::duration<double>(span).count(); }

}  // namespace

double KindWeight(TensorKind kind) {
  switch (kind) {
    case TensorKind::kWeight:  // every step of every request needs it
      return 4;
    case TensorKind::kActivation:  // the step that runs needs it
      return 2;
    case TensorKind::kOptimizerState:
    case TensorKind::kKvCache:
    case TensorKind::kOther:
      return 1;
  }
  return 1;
}

EvictionCost CostOfEviction(const CostFactors& factors) {
  EvictionCost cost;
  // A tensor made this moment has no rate yet; a second's worth of age bounds it.
  const double age = std::max(Seconds(factors.age), 1.0);
  cost.uses_per_s = static_cast<double>(factors.accesses) / age *
                    std::exp2(-Seconds(factors.idle) / Seconds(kUseHalfLife));
  cost.use_probability = -std::expm1(-cost.uses_per_s * Seconds(kCostHorizon));
  cost.weight = KindWeight(factors.kind) * std::exp2(std::min(factors.priority, 7U));
  std::optional<Duration> miss = factors.bring_back;
  if (factors.recompute.has_value())
    miss = std::min(miss.value_or(*factors.recompute), *factors.recompute);
  if (miss.has_value() && factors.bytes > 0) {
    cost.us_per_byte = cost.use_probability * Seconds(*miss) * 1e6 * cost.weight /
                       static_cast<double>(factors.bytes);
  }
  return cost;
}

}  // namespace hmm::policy
