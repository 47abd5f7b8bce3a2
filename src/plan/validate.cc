// SPDX-License-Identifier: Apache-2.0
#include "plan/validate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "plan/validate_internal.h"

namespace hmm::plan {
namespace internal {

Before::Before(const Graph& graph, const Plan& plan) {
  const std::size_t n = plan.sequence.size();
  std::uint32_t streams = 1;
  for (const Op& op : graph.ops) streams = std::max(streams, op.stream + 1);
  lanes_ = 4 + streams;
  lane_.assign(n, kNone);
  rank_.assign(n, 0);
  seen_.assign(n * lanes_, 0);
  std::vector<TaskIndex> previous(lanes_, kNone);
  for (TaskIndex t = 0; t < n; ++t) {
    std::uint32_t lane = kNone;
    if (!plan.sequence[t].is_move) {
      lane = 4 + graph.ops[plan.sequence[t].index].stream;
    } else {
      const Move& move = plan.moves[plan.sequence[t].index];
      const bool down = move.kind == MoveKind::kSwapOut;
      const bool copies = down || move.kind == MoveKind::kSwapIn;
      const bool hbm = move.from == TierKind::kHbm || move.to == TierKind::kHbm;
      if (copies) lane = (down ? 0U : 1U) + (hbm ? 0U : 2U);
      if (move.kind == MoveKind::kRecompute) lane = 4 + graph.ops[move.producer].stream;
    }
    lane_[t] = lane;
    std::uint32_t* mine = &seen_[t * lanes_];
    const auto learn = [&](TaskIndex from) {
      for (std::size_t l = 0; l < lanes_; ++l) {
        mine[l] = std::max(mine[l], seen_[from * lanes_ + l]);
      }
      if (lane_[from] != kNone) {
        mine[lane_[from]] = std::max(mine[lane_[from]], rank_[from] + 1);
      }
    };
    for (TaskIndex w = plan.wait_begin[t]; w < plan.wait_begin[t + 1]; ++w) learn(plan.waits[w]);
    if (lane == kNone) continue;
    if (previous[lane] != kNone) {
      learn(previous[lane]);
      rank_[t] = rank_[previous[lane]] + 1;
    }
    previous[lane] = t;
  }
}

std::pair<Bytes, TaskIndex> WorstCase(const std::vector<Holding>& holdings, const Before& before,
                                      std::size_t tasks) {
  // Take any moment, and let t be the last task in the sequence, of those that take bytes, that has
  // started. A holding that began later in the sequence is not there; nor is one whose tasks have
  // all ended before every taker from some task e <= t on. The rest is counted.
  std::vector<bool> taker(tasks, false);
  Bytes held = 0;
  for (const Holding& holding : holdings) {
    if (holding.begin == kNone) {
      held += holding.bytes;
    } else {
      taker[holding.begin] = true;
    }
  }
  const std::uint32_t lanes = before.lanes();
  // least[t * lanes + l]: what every taker at or after t has seen end on lane l.
  std::vector<std::uint32_t> least((tasks + 1) * lanes, kNone);
  for (std::size_t t = tasks; t-- > 0;) {
    for (std::uint32_t l = 0; l < lanes; ++l) {
      const std::uint32_t later = least[(t + 1) * lanes + l];
      least[t * lanes + l] =
          taker[t] ? std::min(later, before.seen(static_cast<TaskIndex>(t), l)) : later;
    }
  }
  std::vector<Bytes> comes(tasks + 1, 0), goes(tasks + 1, 0);
  for (const Holding& holding : holdings) {
    const TaskIndex first = holding.begin == kNone ? 0 : holding.begin;
    if (holding.begin != kNone) comes[first] += holding.bytes;
    if (holding.forever) continue;
    std::size_t gone = holding.begin == kNone ? 0 : first + std::size_t{1};
    for (const TaskIndex task : holding.until) {
      const std::uint32_t lane = before.lane(task);
      std::size_t low = gone, high = tasks;  // first t at or after `gone` that has surely seen it
      while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (least[middle * lanes + lane] > before.rank(task)) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      gone = low;
    }
    goes[gone] += holding.bytes;
  }
  std::pair<Bytes, TaskIndex> worst = {held, kNone};
  for (std::size_t t = 0; t < tasks; ++t) {
    held -= goes[t];
    held += comes[t];
    if (taker[t] && held > worst.first) worst = {held, static_cast<TaskIndex>(t)};
  }
  return worst;
}

namespace {

void CheckTiers(const Graph& graph, const Machine& machine, const Plan& plan, const Held& held,
                const Before& before, FaultList& faults) {
  const std::size_t n = plan.sequence.size();
  const auto [hbm, hbm_task] = WorstCase(held.hbm, before, n);
  if (hbm > plan.budget_bytes) {
    faults.Add(Rule::kOverBudget, hbm_task, kNone,
               absl::StrCat("HBM can hold ", hbm, " bytes, ", hbm - plan.budget_bytes,
                            " over the budget"));
  } else if (hbm > plan.peak_bytes) {
    faults.Add(
        Rule::kFigures, hbm_task, kNone,
        absl::StrCat("HBM can hold ", hbm, " bytes, the plan says at most ", plan.peak_bytes));
  }
  Bytes ddr = 0, flash = 0;
  for (const Home& home : plan.homes) {
    (home.tier == TierKind::kDdr ? ddr : flash) += graph.storages[home.storage].bytes;
  }
  const auto [out, out_task] = WorstCase(held.ddr_out, before, n);
  const auto [in, in_task] = WorstCase(held.ddr_in, before, n);
  const Bytes staged = out + in;
  const TaskIndex ddr_task = out_task == kNone ? in_task : out_task;
  if (ddr + staged > machine.ddr_bytes && ddr + staged > 0) {
    faults.Add(Rule::kOverTier, ddr_task, kNone,
               absl::StrCat("DDR can hold ", ddr + staged, " bytes of ", machine.ddr_bytes));
  }
  if (flash > machine.flash_bytes) {
    faults.Add(Rule::kOverTier, kNone, kNone,
               absl::StrCat("flash holds ", flash, " bytes of ", machine.flash_bytes));
  }
}

void CheckFigures(const Plan& plan, FaultList& faults) {
  Bytes moved = 0;
  for (const Move& move : plan.moves) {
    if (move.kind == MoveKind::kSwapIn || move.kind == MoveKind::kSwapOut) moved += move.bytes;
  }
  if (moved != plan.moved_bytes) {
    faults.Add(Rule::kFigures, kNone, kNone,
               absl::StrCat("moves add up to ", moved, " bytes, the plan says ", plan.moved_bytes));
  }
  const auto bad = [&](std::string text) {
    faults.Add(Rule::kFigures, kNone, kNone, std::move(text));
  };
  if (plan.peak_bytes > plan.budget_bytes) bad("the peak that the plan states is over its budget");
  if (plan.short_bytes != 0 || plan.smallest_budget_bytes != 0) {
    bad("a plan that fits is said to be short of bytes");
  }
  const double stall = std::max(0.0, plan.step_us - plan.compute_us);
  const bool times = std::isfinite(plan.step_us) && std::isfinite(plan.compute_us) &&
                     std::abs(stall - plan.stall_us) <= 1e-6 * plan.step_us + 1e-3;
  if (!times) bad("step, compute and stall contradict each other");
  if (plan.verdict == Verdict::kFits && !plan.moves.empty()) {
    faults.Add(Rule::kFigures, kNone, kNone, "a plan that needs no plan has moves");
  }
}

// No step needs more than this: all storages from their first to their last use, inputs and outputs
// and what lives across steps throughout.
Bytes MostAtOnce(const Graph& graph) {
  const std::size_t n = graph.ops.size();
  std::vector<std::size_t> first(graph.storages.size(), n), last(graph.storages.size(), 0);
  const auto use = [&](StorageIndex s, std::size_t at) {
    first[s] = std::min(first[s], at);
    last[s] = std::max(last[s], at);
  };
  for (std::size_t at = 0; at < n; ++at) {
    const Op& op = graph.ops[at];
    for (const StorageIndex s : op.reads) use(s, at);
    for (const StorageIndex s : op.writes) use(s, at);
    if (!op.group.has_value()) continue;
    for (const StorageIndex s : graph.groups[*op.group].members) use(s, at);
  }
  std::vector<Bytes> comes(n + 1), goes(n + 1);
  for (StorageIndex s = 0; s < graph.storages.size(); ++s) {
    const Storage& storage = graph.storages[s];
    if (storage.persistent || storage.pinned || storage.input) first[s] = 0;
    if (storage.persistent || storage.pinned || storage.output) last[s] = n;
    if (first[s] > last[s] || n == 0) continue;
    comes[first[s]] += storage.bytes;
    goes[std::min(last[s], n - 1)] += storage.bytes;
  }
  Bytes held = 0, most = 0;
  for (std::size_t at = 0; at < n; ++at) {
    held += comes[at];
    most = std::max(most, held + graph.ops[at].workspace);
    held -= goes[at];
  }
  return most;
}

// The op named really needs what the verdict says.
void CheckInfeasible(const Graph& graph, const Plan& plan, FaultList& faults) {
  const auto bad = [&](std::string text) {
    faults.Add(Rule::kFigures, kNone, kNone, std::move(text));
  };
  const Bytes peak = MostAtOnce(graph);
  if (plan.short_tier == TierKind::kHbm && plan.budget_bytes >= peak) {
    return bad(absl::StrCat("all of it together, ", peak, " bytes, is within the budget"));
  }
  if (plan.short_tier != TierKind::kHbm || graph.ops.empty()) return;
  if (plan.short_op >= graph.ops.size()) return bad("the op that is short does not exist");
  if (plan.budget_bytes + plan.short_bytes != plan.smallest_budget_bytes) {
    return bad("budget and shortfall do not add up to the smallest budget");
  }
  if (plan.smallest_budget_bytes != plan.floor_bytes) return;  // there is nowhere to move to
  const Op& op = graph.ops[plan.short_op];
  std::vector<StorageIndex> touched = op.reads;
  touched.insert(touched.end(), op.writes.begin(), op.writes.end());
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  Bytes least = op.workspace;
  bool others = op.group.has_value();  // groups and pinned storages may add to it
  for (const StorageIndex s : touched) least += graph.storages[s].bytes;
  for (const Storage& storage : graph.storages) others = others || storage.pinned;
  if (least > plan.smallest_budget_bytes || (!others && least != plan.smallest_budget_bytes)) {
    bad(absl::StrCat("op ", op.name, " needs ", least, " bytes, the verdict says ",
                     plan.smallest_budget_bytes));
  }
}

}  // namespace
}  // namespace internal

std::string_view RuleName(Rule rule) {
  static constexpr std::string_view kNames[] = {
      "shape", "order",       "absent",    "early-use", "early-copy", "late-write",
      "lost",  "twice",       "pinned",    "path",      "remake",     "fetch",
      "cycle", "over-budget", "over-tier", "figures",   "address"};
  return kNames[static_cast<std::size_t>(rule)];
}

std::vector<PlanFault> Validate(const Graph& graph, const Machine& machine, const Plan& plan) {
  internal::FaultList faults;
  if (plan.verdict == Verdict::kInfeasible) {
    internal::CheckInfeasible(graph, plan, faults);
    return faults.Take();
  }
  if (!internal::CheckShape(graph, machine, plan, faults)) return faults.Take();
  const internal::Before before(graph, plan);
  internal::CheckDependencies(graph, plan, before, faults);
  const internal::Held held = internal::CheckStates(graph, plan, before, faults);
  internal::CheckTiers(graph, machine, plan, held, before, faults);
  internal::CheckPlaces(graph, plan, held.hbm, before, faults);
  internal::CheckFigures(plan, faults);
  return faults.Take();
}

}  // namespace hmm::plan
