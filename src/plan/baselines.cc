// SPDX-License-Identifier: Apache-2.0
//
// The baselines but the reactive one (baseline_lru.cc). Each is told by its distinguishing choice;
// where a description leaves a constant open, the constant is swept and the first that fits is
// taken.
#include "plan/baselines.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/status.h"
#include "plan/baseline_lru.h"
#include "plan/cost.h"
#include "plan/lifetimes.h"
#include "plan/max_tree.h"
#include "plan/planner.h"
#include "plan/schedule.h"

namespace hmm::plan {
namespace {

using Chosen = std::vector<std::uint32_t>;

Bytes BytesOf(const Problem& problem, std::uint32_t g) {
  return problem.lifetimes.lives[problem.gaps[g].life].bytes;
}

// Positions between the uses round a gap: what these planners call distance or span.
std::uint32_t Distance(const Problem& problem, std::uint32_t g) {
  std::uint32_t positions = 0;
  ForAbsent(problem.gaps[g], problem.lifetimes.positions,
            [&](std::uint32_t first, std::uint32_t last) { positions += last - first; });
  return positions;
}

MaxTree OverBudget(const Problem& problem, const std::vector<Bytes>& base) {
  std::vector<std::int64_t> over(base.size());
  for (std::size_t p = 0; p < base.size(); ++p) {
    over[p] = static_cast<std::int64_t>(base[p]) - static_cast<std::int64_t>(problem.budget);
  }
  return MaxTree(over);
}

void AddAbsent(const Problem& problem, MaxTree& tree, std::uint32_t g, bool absent) {
  const auto bytes = static_cast<std::int64_t>(BytesOf(problem, g));
  ForAbsent(problem.gaps[g], problem.lifetimes.positions,
            [&](std::uint32_t first, std::uint32_t last) {
              tree.Add(first, last, absent ? -bytes : bytes);
            });
}

std::int64_t MaxAbsent(const Problem& problem, const MaxTree& tree, std::uint32_t g) {
  std::int64_t result = MaxTree::kLowest;
  ForAbsent(problem.gaps[g], problem.lifetimes.positions,
            [&](std::uint32_t first, std::uint32_t last) {
              result = std::max(result, tree.Max(first, last));
            });
  return result;
}

// Plans whose SwapIns stand right before their uses.
std::vector<GapPlan> JustInTime(const Problem& problem, Chosen chosen, bool on_demand) {
  std::sort(chosen.begin(), chosen.end());
  std::vector<GapPlan> plans;
  for (const std::uint32_t g : chosen) {
    const Gap& gap = problem.gaps[g];
    GapPlan plan;
    plan.gap = g;
    plan.leave_before = gap.from + 1;
    plan.on_demand = on_demand;
    if (gap.kind != GapKind::kTail && gap.kind != GapKind::kAll) plan.in_before = gap.to;
    plans.push_back(plan);
  }
  MarkCopies(problem, plans);
  ScheduleOuts(problem, problem.start_us, plans);
  return plans;
}

std::optional<std::vector<GapPlan>> None(const Problem& problem) {
  if (problem.lifetimes.peak_bytes > problem.budget) return std::nullopt;
  return std::vector<GapPlan>();
}

// Moves each SwapIn `ahead` positions before its use; false where that does not fit.
bool PutAhead(const Problem& problem, MaxTree& tree, std::uint32_t ahead,
              std::vector<GapPlan>& plans) {
  for (GapPlan& plan : plans) {
    if (plan.in_before == kNone) continue;
    const Gap& gap = problem.gaps[plan.gap];
    const std::uint32_t earliest = gap.kind == GapKind::kInner ? plan.leave_before : 0;
    const std::uint32_t wish = gap.to > ahead ? gap.to - ahead : 0;
    plan.in_before = std::max(earliest, wish);
    const auto bytes = static_cast<std::int64_t>(BytesOf(problem, plan.gap));
    tree.Add(plan.in_before, gap.to, bytes);
  }
  return tree.Max() <= 0;
}

// MindSpore's shipped strategy: gaps of at least select_distance ops, the select_num largest of
// them, SwapIns prefetch_distance ops early. Time and bandwidth play no part. Swept from strict to
// lax.
std::optional<std::vector<GapPlan>> DistanceBased(const Problem& problem) {
  const std::uint32_t n = problem.lifetimes.positions;
  for (std::uint32_t distance = std::max(1U, n / 2); distance > 0; distance /= 2) {
    Chosen by;
    for (std::uint32_t g = 0; g < problem.gaps.size(); ++g) {
      if (Distance(problem, g) >= distance) by.push_back(g);
    }
    std::stable_sort(by.begin(), by.end(), [&](std::uint32_t a, std::uint32_t b) {
      return BytesOf(problem, a) > BytesOf(problem, b);
    });
    MaxTree tree = OverBudget(problem, problem.lifetimes.curve);
    std::size_t count = 0;
    for (; count < by.size() && tree.Max() > 0; ++count) {
      AddAbsent(problem, tree, by[count], true);
    }
    if (tree.Max() > 0) continue;
    by.resize(count);
    const std::vector<GapPlan> late = JustInTime(problem, by, false);
    for (const std::uint32_t ahead : {4U, 2U, 1U, 0U}) {
      std::vector<GapPlan> plans = late;
      MaxTree early = tree;
      if (PutAhead(problem, early, ahead, plans)) return plans;
    }
  }
  return std::nullopt;
}

// gsm SwapStrategyBuilder: keeps spans in HBM from the smallest (distance - 1) x bytes up, as long
// as every position of the span has room; the rest goes, and comes back right before its use.
std::optional<std::vector<GapPlan>> SpanGreedy(const Problem& problem) {
  if (problem.gaps.empty()) return None(problem);
  Chosen by(problem.gaps.size());
  std::iota(by.begin(), by.end(), 0U);
  const auto weight = [&](std::uint32_t g) {
    return static_cast<double>(Distance(problem, g)) * static_cast<double>(BytesOf(problem, g));
  };
  std::stable_sort(by.begin(), by.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return weight(a) < weight(b); });
  MaxTree tree = OverBudget(problem, problem.lifetimes.curve);
  for (const std::uint32_t g : by) AddAbsent(problem, tree, g, true);
  if (tree.Max() > 0) return std::nullopt;
  Chosen chosen;
  for (const std::uint32_t g : by) {
    if (MaxAbsent(problem, tree, g) + static_cast<std::int64_t>(BytesOf(problem, g)) <= 0) {
      AddAbsent(problem, tree, g, false);
    } else {
      chosen.push_back(g);
    }
  }
  return JustInTime(problem, chosen, true);
}

// Walks back from each use adding op times until they cover the transfer; stops at a position where
// another SwapIn stands, and goes forward again while it does not fit.
void WalkBack(const Problem& problem, MaxTree& tree, std::vector<GapPlan>& plans) {
  const Link* link = FindLink(*problem.machine, TierKind::kDdr, TierKind::kHbm);
  std::vector<bool> taken(problem.lifetimes.positions + 1, false);
  for (GapPlan& plan : plans) {
    if (plan.in_before == kNone) continue;
    const Gap& gap = problem.gaps[plan.gap];
    const std::uint32_t earliest = gap.kind == GapKind::kInner ? plan.leave_before : 0;
    const double need = TransferUs(*link, BytesOf(problem, plan.gap));
    const auto bytes = static_cast<std::int64_t>(BytesOf(problem, plan.gap));
    std::uint32_t p = gap.to;
    double covered = 0;
    while (p > earliest && covered < need && !taken[p - 1]) covered += problem.us[--p];
    while (p < gap.to && tree.Max(p, gap.to) + bytes > 0) ++p;
    tree.Add(p, gap.to, bytes);
    taken[p] = true;
    plan.in_before = p;
  }
}

// MemSwapManager: two thresholds, size and distance, start strict and retreat until a mock run
// fits.
std::optional<std::vector<GapPlan>> BackwardWalk(const Problem& problem) {
  const std::uint32_t n = problem.lifetimes.positions;
  Bytes largest = 0;
  for (std::uint32_t g = 0; g < problem.gaps.size(); ++g) {
    largest = std::max(largest, BytesOf(problem, g));
  }
  for (std::uint32_t factor = 2; factor <= 1024; factor *= 2) {
    const bool last = factor == 1024;
    const std::uint32_t distance = last ? 1 : std::max(1U, n / factor);
    const Bytes least = last ? 1 : largest / factor;
    Chosen chosen;
    MaxTree tree = OverBudget(problem, problem.lifetimes.curve);
    for (std::uint32_t g = 0; g < problem.gaps.size(); ++g) {
      if (Distance(problem, g) < distance || BytesOf(problem, g) < least) continue;
      chosen.push_back(g);
      AddAbsent(problem, tree, g, true);
    }
    if (tree.Max() > 0) continue;
    std::vector<GapPlan> plans = JustInTime(problem, chosen, false);
    WalkBack(problem, tree, plans);
    return plans;
  }
  return std::nullopt;
}

// hyper-parallel's GreedyResidencyPlanner: longest gap first, then largest, then earliest; taken
// only if it crosses an op over the budget; the copy back is the consuming op's own first action.
std::optional<std::vector<GapPlan>> HyperParallel(const Problem& problem) {
  Chosen by(problem.gaps.size());
  std::iota(by.begin(), by.end(), 0U);
  std::sort(by.begin(), by.end(), [&](std::uint32_t a, std::uint32_t b) {
    const auto key = [&](std::uint32_t g) {
      return std::tuple(-static_cast<std::int64_t>(Distance(problem, g)),
                        -static_cast<std::int64_t>(BytesOf(problem, g)), problem.gaps[g].from, g);
    };
    return key(a) < key(b);
  });
  MaxTree tree = OverBudget(problem, problem.lifetimes.curve);
  Chosen chosen;
  for (const std::uint32_t g : by) {
    if (tree.Max() <= 0) break;
    if (MaxAbsent(problem, tree, g) <= 0) continue;
    AddAbsent(problem, tree, g, true);
    chosen.push_back(g);
  }
  if (tree.Max() > 0) return std::nullopt;
  return JustInTime(problem, chosen, true);
}

template <std::size_t kIndex>
absl::StatusOr<Plan> MakeBaseline(const Graph& graph, const Machine& machine, Bytes budget) {
  HMM_RETURN_IF_ERROR(CheckGraph(graph));
  const Baseline& baseline = Baselines()[kIndex];
  Plan result;
  FillGraphTotals(graph, result);
  const Problem problem = MakeProblem(graph, machine, budget, GivenOrder(graph));
  const Plan totals = result;
  result.verdict = Verdict::kInfeasible;
  std::optional<std::vector<GapPlan>> plans = baseline.decide(problem);
  if (plans.has_value()) {
    const HomeTiers homes = AssignHomes(problem, *plans);
    Assembled assembled = homes.ok ? Assemble(problem, *plans, homes) : Assembled();
    if (assembled.ok) {
      result = std::move(assembled.plan);
      result.verdict = plans->empty() ? Verdict::kFits : Verdict::kPlanned;
      ApplyContention(graph, machine, result);
      FillCeilings(graph, machine, result);
    }
  }
  CopyTotals(totals, result);
  result.planner = baseline.name;
  result.budget_bytes = budget;
  return result;
}

absl::StatusOr<Plan> MakeOurs(const Graph& graph, const Machine& machine, Bytes budget) {
  return MakePlan(graph, machine, budget);
}

}  // namespace

const std::vector<Baseline>& Baselines() {
  static const std::vector<Baseline> kBaselines = {
      {"none", "no moves", None},
      {"lru", "reactive: evicts the least recently used when an op does not fit", DecideLru},
      {"distance", "gaps of many ops, brought back a fixed number of ops early", DistanceBased},
      {"span-greedy", "keeps the smallest spans, brings the rest back at their use", SpanGreedy},
      {"backward-walk",
       "size and distance thresholds, SwapIns placed by walking back over op times", BackwardWalk},
      {"hyper-parallel", "longest gaps over the budget, brought back at their use", HyperParallel},
  };
  return kBaselines;
}

const std::vector<Planner>& Planners() {
  static const std::vector<Planner> kPlanners = {
      {"hmm", "ours", MakeOurs},
      {Baselines()[0].name, Baselines()[0].summary, MakeBaseline<0>},
      {Baselines()[1].name, Baselines()[1].summary, MakeBaseline<1>},
      {Baselines()[2].name, Baselines()[2].summary, MakeBaseline<2>},
      {Baselines()[3].name, Baselines()[3].summary, MakeBaseline<3>},
      {Baselines()[4].name, Baselines()[4].summary, MakeBaseline<4>},
      {Baselines()[5].name, Baselines()[5].summary, MakeBaseline<5>},
  };
  return kPlanners;
}

const Planner* FindPlanner(std::string_view name) {
  for (const Planner& planner : Planners()) {
    if (planner.name == name) return &planner;
  }
  return nullptr;
}

}  // namespace hmm::plan
