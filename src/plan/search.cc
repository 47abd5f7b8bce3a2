// SPDX-License-Identifier: Apache-2.0
#include "plan/search.h"

#include <algorithm>

#include "plan/simulate.h"

namespace hmm::plan {
namespace {

constexpr std::size_t kEverySetMax = 9;  // gaps of which every subset is tried
constexpr std::size_t kPlacesMax = 48;   // moves whose places are tried one by one
constexpr std::uint32_t kReach = 64;     // how far a place is tried from the use
constexpr std::uint32_t kRounds = 3;     // schedule, look at the stalls, schedule again

bool Contended(const Machine& machine) {
  return std::any_of(machine.links.begin(), machine.links.end(),
                     [](const Link& link) { return link.duplex_factor < 1; });
}

}  // namespace

bool Better(const Candidate& a, const Candidate& b) {
  const double rounding = 1e-9 * std::max(a.step_us, b.step_us);
  if (a.step_us < b.step_us - rounding) return true;
  if (a.step_us > b.step_us + rounding) return false;
  return a.assembled.plan.moved_bytes < b.assembled.plan.moved_bytes;
}

Search::Search(const Problem& problem, std::uint64_t& steps) : problem_(problem), steps_(steps) {
  // Room for SwapIns to be early: none, one or two of the largest, and shares of the budget.
  Bytes largest = 0;
  for (const Gap& gap : problem.gaps) {
    largest = std::max(largest, problem.lifetimes.lives[gap.life].bytes);
  }
  margins_ = {0,
              largest,
              2 * largest,
              problem.budget / 20,
              problem.budget / 8,
              problem.budget / 4,
              problem.budget / 2};
  std::vector<Bytes> unique;
  for (const Bytes margin : margins_) {
    if (margin <= problem.budget && std::find(unique.begin(), unique.end(), margin) == unique.end())
      unique.push_back(margin);
  }
  margins_ = std::move(unique);
}

std::optional<Candidate> Search::Evaluate(std::vector<GapPlan> plans) {
  const std::uint64_t cost = problem_.lifetimes.positions + 4 * plans.size();
  steps_ -= std::min(steps_, cost);
  const HomeTiers homes = AssignHomes(problem_, plans);
  if (!homes.ok) {
    if (!homes_short_.has_value() || homes.short_bytes < homes_short_->short_bytes) {
      homes_short_ = homes;
    }
    return std::nullopt;
  }
  Candidate candidate;
  candidate.assembled = Assemble(problem_, plans, homes);
  if (!candidate.assembled.ok) return std::nullopt;
  candidate.gaps = std::move(plans);
  candidate.step_us = candidate.assembled.plan.step_us;
  if (Contended(*problem_.machine)) {
    const Plan& plan = candidate.assembled.plan;
    const std::vector<double> us = PredictedUs(*problem_.graph, *problem_.machine, plan);
    candidate.step_us = StepUs(*problem_.graph, *problem_.machine, plan, us);
  }
  candidate.stall_us = std::max(0.0, candidate.step_us - problem_.compute_us);
  return candidate;
}

bool Search::Keep(std::optional<Candidate> candidate) {
  if (!candidate.has_value()) return false;
  if (best_.has_value() && !Better(*candidate, *best_)) return false;
  best_ = std::move(candidate);
  return true;
}

void Search::Consider(std::vector<GapPlan> plans) { Keep(Evaluate(std::move(plans))); }

bool Search::TryChosen(const std::vector<std::uint32_t>& chosen) {
  const auto at = std::lower_bound(tried_.begin(), tried_.end(), chosen);
  if (at != tried_.end() && *at == chosen) return false;
  tried_.insert(at, chosen);
  bool better = false;
  std::vector<double> start_us = problem_.start_us;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    if (OutOfSteps() && best_.has_value()) break;
    ScheduleOptions options;
    options.tail_prefetch = round != 1;
    std::optional<Candidate> candidate = Evaluate(Schedule(problem_, chosen, start_us, options));
    if (!candidate.has_value()) continue;
    const double stall = candidate->stall_us;
    double latest = 0;
    for (std::uint32_t p = 0; p < problem_.lifetimes.positions; ++p) {
      latest = std::max(latest, candidate->assembled.op_start[p]);
      start_us[p] = latest;
    }
    start_us.back() = candidate->assembled.plan.step_us;
    better |= Keep(std::move(candidate));
    if (stall <= 0) break;
  }
  return better;
}

bool Search::TryRule(ChooseRule rule, Bytes margin, const std::vector<bool>* banned) {
  const std::vector<GapFactors> factors = ComputeFactors(problem_, ChooseTarget(problem_, margin));
  return TryChosen(Choose(problem_, factors, {rule, margin, banned}));
}

void Search::Glance() { TryRule(ChooseRule::kHide, 0, nullptr); }

void Search::Run() {
  // The first try is made whatever the steps; without it there is no plan.
  TryRule(ChooseRule::kHide, 0, nullptr);
  for (const Bytes margin : margins_) {
    const std::vector<GapFactors> factors =
        ComputeFactors(problem_, ChooseTarget(problem_, margin));
    for (std::uint32_t r = 0; r < kChooseRules; ++r) {
      if (best_.has_value() && (OutOfSteps() || NothingLeft())) return;
      TryChosen(Choose(problem_, factors, {static_cast<ChooseRule>(r), margin, nullptr}));
    }
  }
  if (problem_.gaps.size() <= kEverySetMax) TryEverySet();
  Improve();
}

bool Search::NothingLeft() const {
  return best_->stall_us <= 0 && best_->assembled.plan.moved_bytes == 0;
}

bool Search::Fits(const std::vector<std::uint32_t>& chosen) const {
  const Lifetimes& lt = problem_.lifetimes;
  std::vector<std::int64_t> change(lt.positions + 1, 0);
  for (const std::uint32_t g : chosen) {
    const auto bytes = static_cast<std::int64_t>(lt.lives[problem_.gaps[g].life].bytes);
    ForAbsent(problem_.gaps[g], lt.positions, [&](std::uint32_t first, std::uint32_t last) {
      if (first >= last) return;
      change[first] -= bytes;
      change[last] += bytes;
    });
  }
  std::int64_t sum = 0;
  for (std::uint32_t p = 0; p < lt.positions; ++p) {
    sum += change[p];
    if (static_cast<std::int64_t>(lt.curve[p]) + sum > static_cast<std::int64_t>(problem_.budget)) {
      return false;
    }
  }
  return true;
}

void Search::TryEverySet() {
  const std::size_t count = problem_.gaps.size();
  for (std::uint32_t bits = 1; bits < (1U << count) && !OutOfSteps(); ++bits) {
    std::vector<std::uint32_t> chosen;
    for (std::uint32_t g = 0; g < count; ++g) {
      if ((bits >> g & 1U) != 0) chosen.push_back(g);
    }
    if (Fits(chosen)) TryChosen(chosen);
  }
}

void Search::Improve() {
  while (best_.has_value() && !OutOfSteps() && best_->stall_us > 0) {
    const bool places = ImprovePlaces();
    if (!ImproveSets() && !places) return;
  }
}

// Gives the gaps that cost most time back, one by one, and lets others take their part.
bool Search::ImproveSets() {
  const Plan& plan = best_->assembled.plan;
  std::vector<double> stall(problem_.graph->storages.size(), 0);
  for (const Move& move : plan.moves) {
    if (move.storage != kNone) stall[move.storage] += move.stall_us;
  }
  std::vector<std::pair<double, std::uint32_t>> by;  // stall, gap
  for (const GapPlan& gap : best_->gaps) {
    const double us = stall[problem_.lifetimes.lives[problem_.gaps[gap.gap].life].storage];
    if (us > 0) by.emplace_back(-us, gap.gap);
  }
  std::sort(by.begin(), by.end());
  std::vector<bool> banned(problem_.gaps.size(), false);
  for (const auto& [us, gap] : by) {
    for (const Bytes margin : margins_) {
      if (OutOfSteps()) return false;
      banned[gap] = true;
      if (TryRule(ChooseRule::kHide, margin, &banned)) return true;
      banned[gap] = false;
    }
  }
  return false;
}

// Moves each SwapIn to other boundaries, the rest staying.
bool Search::ImprovePlaces() {
  if (best_->gaps.size() > kPlacesMax) return false;
  bool improved = false;
  for (std::size_t i = 0; i < best_->gaps.size(); ++i) {
    if (best_->gaps[i].in_before == kNone) continue;
    for (const std::uint32_t p : OtherPlaces(best_->gaps[i])) {
      if (OutOfSteps()) return improved;
      if (p == best_->gaps[i].in_before) continue;
      std::vector<GapPlan> plans = best_->gaps;
      plans[i].in_before = p;
      improved |= Keep(Evaluate(std::move(plans)));
    }
  }
  return improved;
}

// Boundaries before the use, and for what wraps those at the end of the step before.
std::vector<std::uint32_t> Search::OtherPlaces(const GapPlan& plan) const {
  const Gap& gap = problem_.gaps[plan.gap];
  std::vector<std::uint32_t> places;
  const std::uint32_t first = gap.kind == GapKind::kInner ? plan.leave_before : 0;
  const std::uint32_t begin = std::max(first, gap.to > kReach ? gap.to - kReach : 0);
  for (std::uint32_t p = begin; p <= gap.to; ++p) places.push_back(p);
  if (gap.kind != GapKind::kWrap) return places;
  const std::uint32_t n = problem_.lifetimes.positions;
  const std::uint32_t tail = std::max(plan.leave_before, n > kReach ? n - kReach : 0);
  for (std::uint32_t p = tail; p <= n; ++p) places.push_back(p);
  return places;
}

}  // namespace hmm::plan
