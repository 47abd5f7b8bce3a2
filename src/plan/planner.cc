// SPDX-License-Identifier: Apache-2.0
#include "plan/planner.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "plan/baselines.h"
#include "plan/lifetimes.h"
#include "plan/recompute.h"
#include "plan/reorder.h"
#include "plan/search.h"
#include "plan/simulate.h"

namespace hmm::plan {
namespace {

constexpr std::uint64_t kStepsBase = 3'000'000;  // about a second
constexpr std::uint64_t kStepsLarge = 400'000;   // instead, where a step misses the caches
constexpr std::size_t kLargeOps = 50'000;
constexpr std::uint64_t kStepsPerOp = 8;        // large graphs get their handful of tries
constexpr std::size_t kBaselinesMax = 200'000;  // ops up to which baselines are considered too
constexpr std::uint32_t kOrdersMax = 24;        // other orders of ops that are looked at

class Planning {
 public:
  Planning(const Graph& graph, const Machine& machine, Bytes budget, const PlanOptions& options)
      : graph_(graph),
        machine_(machine),
        budget_(budget),
        options_(options),
        steps_(options.steps > 0 ? options.steps
                                 : (graph.ops.size() < kLargeOps ? kStepsBase : kStepsLarge) +
                                       kStepsPerOp * graph.ops.size()) {}

  // nullopt: nothing fits.
  std::optional<Plan> Run() {
    // Most of the steps go to the order as given; other orders live on what is left.
    const std::vector<std::uint32_t> groups = GroupsByCost();
    std::vector<std::size_t> counts = {0};
    const std::size_t parts = std::min<std::size_t>(groups.size(), 8);
    for (std::size_t part = 1; part <= parts; ++part) {
      counts.push_back(groups.size() * part / parts);
    }
    const std::uint64_t share = steps_ * 6 / 10 / counts.size();
    std::size_t best = 0;
    const auto look = [&](std::size_t count) {
      const bool better = Try(Offloading(groups, count), true, share);
      if (better) best = count;
      return better;
    };
    for (const std::size_t count : counts) look(count);
    // Each group more is a fetch more that cannot hide: close in on the best number from both
    // sides.
    for (std::size_t step = groups.size() / std::max<std::size_t>(1, parts); step > 0; step /= 2) {
      if (best >= step && look(best - step)) continue;
      if (best + step <= groups.size()) look(best + step);
    }
    if (!best_.has_value()) return std::nullopt;
    if (options_.reorder) Reorder();
    if (options_.recompute) Recompute();
    return std::move(best_->candidate.assembled.plan);
  }
  const std::optional<HomeTiers>& homes_short() const { return homes_short_; }

 private:
  struct Found {
    Order order;
    Candidate candidate;
  };

  // Groups that may be offloaded, those first whose fetches cost least for the bytes they free.
  std::vector<std::uint32_t> GroupsByCost() const {
    const std::vector<bool> may = OffloadableGroups(graph_);
    std::vector<double> fetched(graph_.groups.size(), 0);
    for (const Op& op : graph_.ops) {
      if (op.group.has_value()) {
        fetched[*op.group] += static_cast<double>(GroupSlotBytes(graph_, *op.group));
      }
    }
    std::vector<std::pair<double, std::uint32_t>> by;
    for (std::uint32_t g = 0; g < graph_.groups.size(); ++g) {
      double bytes = 1;
      for (const StorageIndex s : graph_.groups[g].members) {
        bytes += static_cast<double>(graph_.storages[s].bytes);
      }
      if (may[g]) by.emplace_back(fetched[g] / bytes, g);
    }
    std::sort(by.begin(), by.end());
    std::vector<std::uint32_t> groups;
    for (const auto& [cost, group] : by) groups.push_back(group);
    return groups;
  }

  Order Offloading(const std::vector<std::uint32_t>& groups, std::size_t count) const {
    Order order = GivenOrder(graph_);
    for (std::size_t i = 0; i < count; ++i) order.offloaded[groups[i]] = true;
    return order;
  }

  // Searches this order; true if it gave something better than before.
  bool Try(Order order, bool thorough, std::uint64_t share) {
    std::uint64_t steps = std::min(steps_, share);
    steps_ -= steps;
    const bool better = Look(std::move(order), thorough, steps);
    steps_ += steps - std::min<std::uint64_t>(steps, 2 * graph_.ops.size());
    return better;
  }

  bool Look(Order order, bool thorough, std::uint64_t& steps) {
    Problem problem = MakeProblem(graph_, machine_, budget_, order);
    // Stall is told against the ops as given: another order's streams may overlap otherwise.
    if (compute_us_ < 0) compute_us_ = problem.compute_us;
    problem.compute_us = compute_us_;
    if (problem.lifetimes.floor_bytes > budget_) return false;
    Search search(problem, steps);
    if (thorough) {
      search.Run();
    } else {
      search.Glance();
    }
    if (options_.baselines && thorough && graph_.ops.size() <= kBaselinesMax) {
      for (const Baseline& baseline : Baselines()) {
        if (search.best().has_value() && search.best()->stall_us <= 0) break;
        std::optional<std::vector<GapPlan>> plans = baseline.decide(problem);
        if (plans.has_value()) search.Consider(*std::move(plans));
      }
    }
    if (search.homes_short() && (!homes_short_.has_value() ||
                                 search.short_homes().short_bytes < homes_short_->short_bytes)) {
      homes_short_ = search.short_homes();
    }
    if (!search.best().has_value()) return false;
    if (best_.has_value() && !Better(*search.best(), best_->candidate)) return false;
    best_ = Found{std::move(order), *search.best()};
    return true;
  }

  // An order is looked at quickly; thoroughly if small graphs make that cheap.
  bool TryOther(Order order) {
    const bool small = order.steps.size() <= 64 && steps_ > 200 * order.steps.size();
    return Try(std::move(order), small, small ? steps_ / 4 : steps_);
  }

  void Reorder() {
    std::uint32_t looked = 0;
    bool better = true;
    while (better && best_->candidate.stall_us > 0) {
      better = false;
      const std::vector<Order> others =
          OtherOrders(graph_, best_->order, best_->candidate.assembled);
      for (const Order& other : others) {
        if (looked++ >= kOrdersMax || steps_ == 0) return;
        if (TryOther(other)) {
          better = true;
          break;
        }
      }
    }
  }

  void Recompute() {
    std::uint32_t looked = 0;
    bool better = true;
    while (better && best_->candidate.stall_us > 0) {
      better = false;
      const std::vector<Order> others =
          RecomputingOrders(graph_, machine_, best_->order, best_->candidate.assembled.plan);
      for (const Order& other : others) {
        if (looked++ >= kOrdersMax || steps_ == 0) return;
        if (TryOther(other)) {
          better = true;
          break;
        }
      }
    }
  }

  const Graph& graph_;
  const Machine& machine_;
  const Bytes budget_;
  const PlanOptions& options_;
  std::uint64_t steps_;
  double compute_us_ = -1;  // of the order given, which is tried first
  std::optional<Found> best_;
  std::optional<HomeTiers> homes_short_;
};

Plan Infeasible(Plan plan, OpIndex op, Bytes needed) {
  plan.verdict = Verdict::kInfeasible;
  plan.short_op = op;
  plan.short_bytes = needed - plan.budget_bytes;
  plan.smallest_budget_bytes = needed;
  return plan;
}

}  // namespace

void ApplyContention(const Graph& graph, const Machine& machine, Plan& plan) {
  const bool contended = std::any_of(machine.links.begin(), machine.links.end(),
                                     [](const Link& link) { return link.duplex_factor < 1; });
  if (!contended || plan.moves.empty()) return;
  const Simulation simulation = Simulate(graph, machine, plan, PredictedUs(graph, machine, plan));
  for (TaskIndex t = 0; t < plan.sequence.size(); ++t) {
    if (!plan.sequence[t].is_move) continue;
    Move& move = plan.moves[plan.sequence[t].index];
    if (move.kind == MoveKind::kDrop) continue;
    move.start_us = simulation.start[t];
    move.end_us = simulation.end[t];
  }
  plan.step_us = simulation.step_us;
  plan.stall_us = std::max(0.0, plan.step_us - plan.compute_us);
}

void CopyTotals(const Plan& from, Plan& to) {
  to.planner = from.planner;
  to.budget_bytes = from.budget_bytes;
  to.unplanned_peak_bytes = from.unplanned_peak_bytes;
  to.unplanned_peak_op = from.unplanned_peak_op;
  to.floor_bytes = from.floor_bytes;
  to.floor_op = from.floor_op;
}

void FillGraphTotals(const Graph& graph, Plan& plan) {
  Order order = GivenOrder(graph);
  const Lifetimes given = ComputeLifetimes(graph, order);
  plan.unplanned_peak_bytes = given.peak_bytes;
  plan.unplanned_peak_op = given.peak_position;
  plan.floor_bytes = given.floor_bytes;
  plan.floor_op = given.floor_position;
  if (graph.groups.empty()) return;
  order.offloaded = OffloadableGroups(graph);
  const Lifetimes least = ComputeLifetimes(graph, order);
  plan.floor_bytes = least.floor_bytes;
  plan.floor_op = least.floor_position;
}

void FillCeilings(const Graph& graph, const Machine& machine, Plan& plan) {
  const Link* link = FindLink(machine, TierKind::kDdr, TierKind::kHbm);
  if (link == nullptr) return;
  Ceilings& c = plan.ceilings;
  c.link_bytes_per_us = link->curve.back().bytes_per_us;
  if (machine.hbm_bytes_per_us > 0) {
    c.link_to_hbm_ratio = std::min(1.0, c.link_bytes_per_us / machine.hbm_bytes_per_us);
  }
  double in = 0;
  for (const Move& move : plan.moves) {
    if (move.kind != MoveKind::kSwapIn || move.to != TierKind::kHbm) continue;
    if (move.group != kNone) {
      c.group_fetch_us += move.end_us - move.start_us;
    } else {
      in += static_cast<double>(move.bytes);
    }
  }
  (void)graph;
  if (in <= 0 || plan.compute_us <= 0) return;
  c.hide_80_percent_bytes_per_us = 0.8 * in / plan.compute_us;
  c.hideable_fraction = std::min(1.0, c.link_bytes_per_us * plan.compute_us / in);
}

namespace {

absl::StatusOr<Plan> PlanOnce(const Graph& graph, const Machine& machine, Bytes budget,
                              const PlanOptions& options) {
  HMM_RETURN_IF_ERROR(CheckGraph(graph));
  Plan totals;
  totals.planner = "hmm";
  totals.budget_bytes = budget;
  FillGraphTotals(graph, totals);
  if (totals.unplanned_peak_bytes <= budget) {
    // One stream runs in order and needs no more than the peak; several may overlap as room allows.
    const bool one = std::all_of(graph.ops.begin(), graph.ops.end(),
                                 [](const Op& op) { return op.stream == 0; });
    const Problem problem =
        MakeProblem(graph, machine, one ? totals.unplanned_peak_bytes : budget, GivenOrder(graph));
    Assembled assembled = Assemble(problem, {}, HomeTiers());
    CopyTotals(totals, assembled.plan);
    assembled.plan.verdict = Verdict::kFits;
    FillCeilings(graph, machine, assembled.plan);
    if (options.layout) PlaceInHbm(graph, options.place, assembled.plan);
    return std::move(assembled.plan);
  }
  if (totals.floor_bytes > budget) {
    return Infeasible(std::move(totals), totals.floor_op, totals.floor_bytes);
  }
  Planning planning(graph, machine, budget, options);
  std::optional<Plan> plan = planning.Run();
  if (!plan.has_value()) {
    // The floor is reached by moving everything at every op, so only room below can be short; or
    // there is nowhere to move to.
    if (!planning.homes_short().has_value()) {
      return Infeasible(std::move(totals), totals.unplanned_peak_op, totals.unplanned_peak_bytes);
    }
    totals.verdict = Verdict::kInfeasible;
    totals.short_tier = planning.homes_short()->short_tier;
    totals.short_op = totals.unplanned_peak_op;
    totals.short_bytes = planning.homes_short()->short_bytes;
    totals.smallest_budget_bytes = machine.ddr_bytes + totals.short_bytes;
    return totals;
  }
  CopyTotals(totals, *plan);
  plan->verdict = Verdict::kPlanned;
  ApplyContention(graph, machine, *plan);
  FillCeilings(graph, machine, *plan);
  if (options.layout) PlaceInHbm(graph, options.place, *plan);
  return *std::move(plan);
}

// The least exposed time of any baseline that fits; infinite if none does.
double BestBaselineUs(const Graph& graph, const Machine& machine, Bytes budget) {
  double best = std::numeric_limits<double>::infinity();
  for (const Planner& planner : Planners()) {
    if (planner.name == "hmm") continue;
    const absl::StatusOr<Plan> made = planner.make(graph, machine, budget);
    if (made.ok() && made->verdict != Verdict::kInfeasible) best = std::min(best, made->stall_us);
  }
  return best;
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const Graph& graph, const Machine& machine, Bytes budget,
                              const PlanOptions& options) {
  HMM_ASSIGN_OR_RETURN(Plan plan, PlanOnce(graph, machine, budget, options));
  if (plan.verdict == Verdict::kInfeasible || plan.high_water_bytes <= budget ||
      options.fit_tries == 0) {
    return plan;
  }
  // Down by what is over until it fits, then half of the way back up with the tries that are left.
  std::optional<Plan> fitting;
  Bytes fits = budget, over = plan.high_water_bytes - budget, above = budget;
  for (std::uint32_t i = 0; i < options.fit_tries; ++i) {
    const Bytes less = fitting.has_value() ? fits + (above - fits) / 2
                                           : fits - std::min(over, fits - plan.floor_bytes);
    if (less == fits) break;
    HMM_ASSIGN_OR_RETURN(Plan tighter, PlanOnce(graph, machine, less, options));
    if (tighter.verdict == Verdict::kInfeasible) break;
    tighter.budget_bytes = budget;
    if (tighter.high_water_bytes > budget) {
      above = less;
      over = tighter.high_water_bytes - budget;
      if (!fitting.has_value()) fits = less;
      continue;
    }
    fits = less;
    if (!fitting.has_value() || tighter.stall_us < fitting->stall_us) fitting = std::move(tighter);
  }
  // Least exposed time comes first: addresses are not bought with a plan that a baseline beats.
  if (!fitting.has_value() || fitting->stall_us > BestBaselineUs(graph, machine, budget)) {
    return plan;
  }
  return *std::move(fitting);
}

}  // namespace hmm::plan
