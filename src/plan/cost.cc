// SPDX-License-Identifier: Apache-2.0
#include "plan/cost.h"

#include <algorithm>

namespace hmm::plan {
namespace {

double SlackUs(const Problem& problem, const Gap& gap) {
  double slack = 0;
  ForAbsent(gap, problem.lifetimes.positions, [&](std::uint32_t first, std::uint32_t last) {
    if (first < last) slack += problem.start_us[last] - problem.start_us[first];
  });
  return slack;
}

}  // namespace

double EvictionCost(const GapFactors& factors) {
  const double bring_back = factors.exposed_us + 0.05 * (factors.out_us + factors.in_us);
  if (factors.recompute_us < 0) return bring_back;
  return std::min(bring_back, factors.recompute_us);
}

std::vector<GapFactors> ComputeFactors(const Problem& problem, const std::vector<Bytes>& target) {
  const Lifetimes& lt = problem.lifetimes;
  const std::uint32_t n = lt.positions;
  std::vector<GapFactors> result(problem.gaps.size());
  const Link* out = FindLink(*problem.machine, TierKind::kHbm, TierKind::kDdr);
  const Link* in = FindLink(*problem.machine, TierKind::kDdr, TierKind::kHbm);
  if (out == nullptr || in == nullptr) return result;
  // Prefix sums of over-budget time; an op of no duration counts a little.
  std::vector<double> over(n + 1, 0);
  const double least = 1e-3 * (1 + problem.compute_us) / (n + 1);
  for (std::uint32_t p = 0; p < n; ++p) {
    over[p + 1] = over[p] + (lt.curve[p] > target[p] ? problem.us[p] + least : 0);
  }
  for (std::size_t g = 0; g < problem.gaps.size(); ++g) {
    const Gap& gap = problem.gaps[g];
    const Life& life = lt.lives[gap.life];
    GapFactors& f = result[g];
    const bool head = gap.kind == GapKind::kHead || gap.kind == GapKind::kAll;
    f.uses_per_step = life.access_end - life.access_begin;
    if (!life.clean && !head) f.out_us = TransferUs(*out, life.bytes);
    if (gap.kind != GapKind::kTail && gap.kind != GapKind::kAll) {
      f.in_us = TransferUs(*in, life.bytes);
    }
    if (problem.compute_us > 0) f.link_share = (f.out_us + f.in_us) / problem.compute_us;
    f.slack_us = SlackUs(problem, gap);
    // The copy out runs beside the uses between the last write and the gap.
    double out_left = f.out_us;
    if (!head && f.out_us > 0) {
      const double since = gap.last_write == kNone ? 0 : problem.start_us[gap.last_write + 1];
      out_left = std::max(0.0, f.out_us - (problem.start_us[gap.from + 1] - since));
    }
    f.exposed_us = std::max(0.0, f.in_us + out_left - f.slack_us);
    ForAbsent(gap, n, [&](std::uint32_t first, std::uint32_t last) {
      if (first < last) f.relief += over[last] - over[first];
    });
    f.relief *= static_cast<double>(life.bytes);
    const Storage& storage = problem.graph->storages[life.storage];
    if (storage.recomputable && life.access_begin < life.access_end) {
      f.recompute_us = problem.us[lt.accesses[life.access_begin].position];
    }
  }
  return result;
}

}  // namespace hmm::plan
