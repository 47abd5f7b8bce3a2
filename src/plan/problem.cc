// SPDX-License-Identifier: Apache-2.0
//
// What an order of ops fixes before any gap is chosen, and what a choice of gaps implies: which of
// them copy, and where the copies lie.
#include <algorithm>
#include <numeric>

#include "plan/assemble.h"

namespace hmm::plan {
namespace {

// When positions start were nothing ever moved; recomputations take no time if `given_only`.
std::vector<double> StartTimes(const Problem& problem, bool given_only) {
  const Lifetimes& lt = problem.lifetimes;
  std::vector<double> end(lt.positions, 0), starts(lt.positions + 1, 0), free;
  double last = 0, latest_start = 0;
  for (std::uint32_t p = 0; p < lt.positions; ++p) {
    const std::uint32_t stream = problem.graph->ops[problem.order.steps[p].op].stream;
    if (stream >= free.size()) free.resize(stream + 1, 0);
    double start = free[stream];
    for (std::uint32_t d = lt.dep_begin[p]; d < lt.dep_begin[p + 1]; ++d) {
      start = std::max(start, end[lt.deps[d]]);
    }
    const bool takes_time = !given_only || problem.order.steps[p].remakes == kNone;
    end[p] = start + (takes_time ? problem.us[p] : 0);
    free[stream] = end[p];
    last = std::max(last, end[p]);
    latest_start = std::max(latest_start, start);
    starts[p] = latest_start;
  }
  starts[lt.positions] = last;
  return starts;
}

}  // namespace

Problem MakeProblem(const Graph& graph, const Machine& machine, Bytes budget, Order order) {
  Problem problem;
  problem.graph = &graph;
  problem.machine = &machine;
  problem.budget = budget;
  problem.order = std::move(order);
  problem.lifetimes = ComputeLifetimes(graph, problem.order);
  if (FindLink(machine, TierKind::kHbm, TierKind::kDdr) != nullptr &&
      FindLink(machine, TierKind::kDdr, TierKind::kHbm) != nullptr && machine.ddr_bytes > 0) {
    problem.gaps = FindGaps(problem.lifetimes);
  }
  problem.gap_begin.assign(problem.lifetimes.lives.size() + 1, 0);
  for (const Gap& gap : problem.gaps) ++problem.gap_begin[gap.life + 1];
  std::partial_sum(problem.gap_begin.begin(), problem.gap_begin.end(), problem.gap_begin.begin());
  problem.us.reserve(problem.order.steps.size());
  for (const ExecStep& step : problem.order.steps) {
    problem.us.push_back(graph.ops[step.op].microseconds);
  }
  problem.start_us = StartTimes(problem, false);
  problem.compute_us = StartTimes(problem, true).back();
  return problem;
}

void MarkCopies(const Problem& problem, std::vector<GapPlan>& chosen) {
  const Lifetimes& lt = problem.lifetimes;
  for (std::size_t i = 0; i < chosen.size();) {
    const std::uint32_t life_index = problem.gaps[chosen[i].gap].life;
    const Life& life = lt.lives[life_index];
    std::size_t end = i;
    bool valid = life.clean;
    for (; end < chosen.size() && problem.gaps[chosen[end].gap].life == life_index; ++end) {
      const GapKind kind = problem.gaps[chosen[end].gap].kind;
      valid = valid || kind == GapKind::kWrap || kind == GapKind::kHead || kind == GapKind::kAll;
    }
    std::uint32_t valid_since = 0;  // writes before this position do not matter any more
    for (; i < end; ++i) {
      const Gap& gap = problem.gaps[chosen[i].gap];
      if (gap.kind == GapKind::kHead || gap.kind == GapKind::kAll) {
        chosen[i].copies_out = false;
        continue;
      }
      if (gap.last_write != kNone && gap.last_write >= valid_since) valid = false;
      chosen[i].copies_out = !valid;
      valid = true;
      valid_since = gap.from + 1;
    }
  }
}

HomeTiers AssignHomes(const Problem& problem, const std::vector<GapPlan>& chosen) {
  struct Stay {
    StorageIndex storage;
    Bytes bytes;
    std::uint32_t shortest;  // of its chosen gaps, in positions
  };
  const std::uint32_t n = problem.lifetimes.positions;
  std::vector<Stay> stays;
  Bytes total = 0;
  for (const GapPlan& plan : chosen) {
    const Gap& gap = problem.gaps[plan.gap];
    const Life& life = problem.lifetimes.lives[gap.life];
    const bool wraps = gap.kind == GapKind::kWrap;
    const std::uint32_t length = wraps ? n - gap.from + gap.to : gap.to - gap.from;
    if (stays.empty() || stays.back().storage != life.storage) {
      stays.push_back({life.storage, life.bytes, length});
    } else {
      stays.back().shortest = std::min(stays.back().shortest, length);
    }
  }
  std::sort(stays.begin(), stays.end(),
            [](const Stay& a, const Stay& b) { return a.storage < b.storage; });
  std::vector<Stay> merged;  // a storage made anew may have two lives that move
  for (const Stay& stay : stays) {
    if (merged.empty() || merged.back().storage != stay.storage) {
      merged.push_back(stay);
      total += stay.bytes;
    } else {
      merged.back().shortest = std::min(merged.back().shortest, stay.shortest);
    }
  }
  for (std::size_t g = 0; g < problem.order.offloaded.size(); ++g) {
    if (!problem.order.offloaded[g]) continue;
    for (const StorageIndex s : problem.graph->groups[g].members) {
      total += problem.graph->storages[s].bytes;
    }
  }
  HomeTiers homes;
  const Machine& machine = *problem.machine;
  if (total <= machine.ddr_bytes) return homes;
  const bool flash = FindLink(machine, TierKind::kDdr, TierKind::kFlash) != nullptr &&
                     FindLink(machine, TierKind::kFlash, TierKind::kDdr) != nullptr;
  std::stable_sort(merged.begin(), merged.end(), [](const Stay& a, const Stay& b) {
    if (a.shortest != b.shortest) return a.shortest > b.shortest;
    return a.bytes > b.bytes;
  });
  Bytes in_flash = 0, largest = 0;
  for (const Stay& stay : merged) {
    // Four staging slots: two on the way out, two on the way in.
    if (!flash || total - in_flash + 4 * largest <= machine.ddr_bytes) break;
    if (in_flash + stay.bytes > machine.flash_bytes) continue;
    in_flash += stay.bytes;
    largest = std::max(largest, stay.bytes);
    homes.in_flash.push_back(stay.storage);
  }
  const Bytes in_ddr = total - in_flash + 4 * largest;
  if (in_ddr > machine.ddr_bytes) {
    homes.ok = false;
    homes.short_bytes = in_ddr - machine.ddr_bytes;
  }
  std::sort(homes.in_flash.begin(), homes.in_flash.end());
  return homes;
}

}  // namespace hmm::plan
