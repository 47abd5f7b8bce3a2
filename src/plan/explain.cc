// SPDX-License-Identifier: Apache-2.0
#include "plan/explain.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"
#include "plan/assemble.h"

namespace hmm::plan {
namespace {

std::string Us(double us) { return absl::StrFormat("%.1f us", us); }

double Price(const GapReport& gap) { return gap.cost_us / gap.factors.relief; }

// The elements of `all`, sorted by storage, that are this storage's.
template <typename T>
std::vector<T> Of(const std::vector<T>& all, StorageIndex storage) {
  const auto before = [](const T& a, StorageIndex b) { return a.storage < b; };
  const auto after = [](StorageIndex a, const T& b) { return a < b.storage; };
  return {std::lower_bound(all.begin(), all.end(), storage, before),
          std::upper_bound(all.begin(), all.end(), storage, after)};
}

template <typename T>
void SortByStorage(std::vector<T>& all) {
  std::stable_sort(all.begin(), all.end(),
                   [](const T& a, const T& b) { return a.storage < b.storage; });
}

}  // namespace

Explainer::Explainer(const Graph& graph, const Machine& machine, const Plan& plan)
    : graph_(graph),
      machine_(machine),
      plan_(plan),
      problem_(MakeProblem(graph, machine, plan.budget_bytes, OrderOf(graph, plan))),
      factors_(ComputeFactors(
          problem_, std::vector<Bytes>(problem_.lifetimes.positions, plan.budget_bytes))) {
  CountUses();
  ListMoves();
  ListGaps();
}

StorageReport Explainer::Explain(StorageIndex storage) const {
  HMM_CHECK(storage < graph_.storages.size());
  StorageReport report;
  report.storage = storage;
  report.bytes = graph_.storages[storage].bytes;
  report.pinned = graph_.storages[storage].pinned;
  report.uses_per_step = uses_[storage];
  const Link* in = FindLink(machine_, TierKind::kDdr, TierKind::kHbm);
  if (in != nullptr) report.in_us = TransferUs(*in, report.bytes);
  const std::vector<Slot> slots = Of(slots_, storage);
  for (const Slot& slot : slots) report.moves.push_back(slot.slot);
  std::size_t outs_taken = 0;
  for (const StorageGap& gap : Of(gaps_, storage)) {
    GapReport of_gap = ReportOf(gap.gap);
    if (of_gap.factors.recompute_us >= 0) report.recompute_us = of_gap.factors.recompute_us;
    Attribute(problem_.gaps[gap.gap], slots, of_gap, outs_taken);
    report.gaps.push_back(of_gap);
  }
  report.why = Why(report);
  return report;
}

// An op that reads a group touches each member once, whether or not it also names it.
void Explainer::CountUses() {
  uses_.assign(graph_.storages.size(), 0);
  std::vector<double> of_group(graph_.groups.size(), 0);
  std::vector<std::vector<StorageIndex>> members;
  for (const DataDependentGroup& group : graph_.groups) {
    members.push_back(group.members);
    std::sort(members.back().begin(), members.back().end());
    members.back().erase(std::unique(members.back().begin(), members.back().end()),
                         members.back().end());
  }
  const auto by_group = [&](const Op& op, StorageIndex storage) {
    return op.group.has_value() &&
           std::binary_search(members[*op.group].begin(), members[*op.group].end(), storage);
  };
  for (const Op& op : graph_.ops) {
    if (op.group.has_value()) ++of_group[*op.group];
    for (const StorageIndex s : op.reads) uses_[s] += by_group(op, s) ? 0 : 1;
    for (const StorageIndex s : op.writes) {
      const bool read = std::binary_search(op.reads.begin(), op.reads.end(), s);
      uses_[s] += read || by_group(op, s) ? 0 : 1;
    }
  }
  for (std::size_t g = 0; g < members.size(); ++g) {
    for (const StorageIndex s : members[g]) uses_[s] += of_group[g];
  }
  offloaded_.assign(graph_.storages.size(), kNone);
  for (const std::uint32_t g : plan_.offloaded_groups) {
    for (const StorageIndex s : members[g]) offloaded_[s] = g;
  }
}

void Explainer::ListMoves() {
  std::vector<std::uint32_t> count(ChannelCount(graph_), 0);
  std::vector<double> free(count.size(), 0);
  std::uint32_t position = 0;
  for (const Task& task : plan_.sequence) {
    const std::uint32_t channel = ChannelOf(graph_, plan_, task);
    const bool link = channel != kNone && channel < kLinkChannels;
    if (task.is_move) {
      const Move& move = plan_.moves[task.index];
      if (move.storage != kNone) {
        const std::uint32_t place = channel == kNone ? 0 : count[channel];
        const double idle = link ? std::max(0.0, move.start_us - free[channel]) : 0;
        slots_.push_back({move.storage, channel, position, {task.index, place, 0, idle}});
      }
      if (link) free[channel] = move.end_us;
    }
    if (channel != kNone) ++count[channel];
    position += channel == kNone || link ? 0U : 1U;
  }
  for (Slot& slot : slots_) {
    if (slot.channel != kNone) slot.slot.of = count[slot.channel];
  }
  SortByStorage(slots_);
}

void Explainer::ListGaps() {
  for (std::uint32_t g = 0; g < problem_.gaps.size(); ++g) {
    gaps_.push_back({problem_.lifetimes.lives[problem_.gaps[g].life].storage, g});
  }
  SortByStorage(gaps_);
  absent_at_start_.assign(graph_.storages.size(), false);
  for (const Home& home : plan_.homes) {
    if (!home.in_hbm_at_start) absent_at_start_[home.storage] = true;
  }
}

GapReport Explainer::ReportOf(std::uint32_t index) const {
  const Gap& gap = problem_.gaps[index];
  GapReport r;
  r.kind = gap.kind;
  const bool from = gap.kind != GapKind::kHead && gap.kind != GapKind::kAll;
  const bool to = gap.kind != GapKind::kTail && gap.kind != GapKind::kAll;
  if (from) r.after_op = problem_.order.steps[gap.from].op;
  if (to) r.before_op = problem_.order.steps[gap.to].op;
  r.factors = factors_[index];
  r.cost_us = EvictionCost(r.factors);
  r.over_budget = r.factors.relief > 0;
  return r;
}

// The moves that end and begin its stays at this gap. A SwapOut may stand long before, after the
// last write: it belongs to the first moved gap after it.
void Explainer::Attribute(const Gap& gap, const std::vector<Slot>& slots, GapReport& r,
                          std::size_t& outs_taken) const {
  const std::uint32_t n = problem_.lifetimes.positions;
  const bool to_end = gap.kind == GapKind::kTail || gap.kind == GapKind::kWrap;
  const std::uint32_t until = to_end ? n : gap.to;
  std::vector<std::size_t> outs;
  bool comes = false, drops = false;
  double stall = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Move& move = plan_.moves[slots[i].slot.move];
    if (move.kind == MoveKind::kSwapOut) {
      if (i >= outs_taken && slots[i].boundary <= until) outs.push_back(i);
      continue;
    }
    bool inside = false;
    ForAbsent(gap, n, [&](std::uint32_t first, std::uint32_t last) {
      inside = inside || (first <= slots[i].boundary && slots[i].boundary <= last);
    });
    if (!inside) continue;
    comes = comes || move.kind == MoveKind::kSwapIn;
    drops = drops || move.kind == MoveKind::kDrop;
    stall += move.stall_us;
  }
  switch (gap.kind) {
    case GapKind::kInner:
    case GapKind::kWrap:
      r.moved = comes;
      break;
    case GapKind::kTail:
      r.moved = drops || !outs.empty();
      break;
    case GapKind::kHead:
    case GapKind::kAll:
      outs.clear();
      r.moved = absent_at_start_[problem_.lifetimes.lives[gap.life].storage];
      break;
  }
  if (!r.moved) return;
  for (const std::size_t i : outs) stall += plan_.moves[slots[i].slot.move].stall_us;
  if (!outs.empty()) outs_taken = outs.back() + 1;
  r.stall_us = stall;
}

std::string Explainer::Between(const GapReport& gap) const {
  const std::string after = gap.after_op == kNone
                                ? std::string("the start of the step")
                                : absl::StrCat("op ", graph_.ops[gap.after_op].name);
  if (gap.before_op == kNone) return absl::StrCat("from ", after, " to the end of the step");
  return absl::StrCat("between ", after, " and op ", graph_.ops[gap.before_op].name,
                      gap.kind == GapKind::kWrap ? " of the next step" : "");
}

std::string Explainer::Why(const StorageReport& report) const {
  if (const std::uint32_t g = offloaded_[report.storage]; g != kNone) {
    return absl::StrCat("lies in DDR with group ", graph_.groups[g].name,
                        ": which members are read is known only when the router has run, and a "
                        "fetch is never counted as hidden");
  }
  const auto moved = std::count_if(report.gaps.begin(), report.gaps.end(),
                                   [](const GapReport& gap) { return gap.moved; });
  for (const MoveSlot& slot : report.moves) {
    const Move& move = plan_.moves[slot.move];
    if (moved > 0 || move.kind != MoveKind::kRecompute) continue;
    return absl::StrCat("made anew by op ", graph_.ops[move.producer].name, " in ",
                        Us(graph_.ops[move.producer].microseconds),
                        ": cheaper than keeping it or a round trip of ", Us(2 * report.in_us));
  }
  return moved > 0 ? WhyMoved(report) : WhyNot(report);
}

std::string Explainer::WhyMoved(const StorageReport& report) const {
  std::string text;
  for (const GapReport& gap : report.gaps) {
    if (!gap.moved) continue;
    const GapFactors& f = gap.factors;
    absl::StrAppend(&text, text.empty() ? "moved " : "; and ", Between(gap), ": transfers of ",
                    Us(f.out_us + f.in_us), " beside ", Us(f.slack_us), " of compute, ",
                    gap.stall_us > 0 ? Us(gap.stall_us) + " of it exposed" : "all hidden");
  }
  return text;
}

std::string Explainer::WhyNot(const StorageReport& report) const {
  if (plan_.verdict == Verdict::kFits) return "not moved: the whole step fits the budget";
  if (plan_.verdict == Verdict::kInfeasible) return "not moved: there is no plan";
  if (report.pinned) return "not moved: it is pinned";
  if (report.gaps.empty()) {
    return "not moved: no op runs between its uses, so there is no gap to be away in";
  }
  const GapReport* best = nullptr;
  for (const GapReport& gap : report.gaps) {
    if (!gap.over_budget) continue;
    if (best == nullptr || Price(gap) < Price(*best)) best = &gap;
  }
  if (best == nullptr) {
    return "not moved: in none of its gaps does memory exceed the budget";
  }
  return absl::StrCat("not moved: what moves relieves the same moments; its best gap, ",
                      Between(*best), ", would expose ", Us(best->factors.exposed_us), " of ",
                      Us(best->factors.in_us + best->factors.out_us), " of transfers");
}

absl::StatusOr<StorageIndex> FindStorage(const Graph& graph, std::string_view name) {
  for (StorageIndex s = 0; s < graph.storages.size(); ++s) {
    const Storage& storage = graph.storages[s];
    if (storage.name == name ||
        std::find(storage.aliases.begin(), storage.aliases.end(), name) != storage.aliases.end()) {
      return s;
    }
  }
  const bool unknown =
      std::find(graph.unknown.begin(), graph.unknown.end(), name) != graph.unknown.end();
  return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
               absl::StrCat("the graph has no tensor \"", std::string(name), "\"",
                            unknown ? " of known size; bind its dimensions with --dim" : ""));
}

Order OrderOf(const Graph& graph, const Plan& plan) {
  if (plan.sequence.empty()) return GivenOrder(graph);
  Order order;
  for (const Task& task : plan.sequence) {
    if (!task.is_move) {
      order.steps.push_back({task.index, kNone});
    } else if (plan.moves[task.index].kind == MoveKind::kRecompute) {
      order.steps.push_back({plan.moves[task.index].producer, plan.moves[task.index].storage});
    }
  }
  order.offloaded.assign(graph.groups.size(), false);
  for (const std::uint32_t g : plan.offloaded_groups) order.offloaded[g] = true;
  return order;
}

StorageReport Explain(const Graph& graph, const Machine& machine, const Plan& plan,
                      StorageIndex storage) {
  return Explainer(graph, machine, plan).Explain(storage);
}

}  // namespace hmm::plan
