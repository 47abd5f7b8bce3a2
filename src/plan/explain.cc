// SPDX-License-Identifier: Apache-2.0
#include "plan/explain.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"
#include "plan/assemble.h"

namespace hmm::plan {
namespace {

std::string Us(double us) { return absl::StrFormat("%.1f us", us); }

class Explainer {
 public:
  Explainer(const Graph& graph, const Machine& machine, const Plan& plan, StorageIndex storage)
      : graph_(graph),
        plan_(plan),
        storage_(graph.storages[storage]),
        problem_(MakeProblem(graph, machine, plan.budget_bytes, OrderOf(graph, plan))) {
    report_.storage = storage;
    report_.bytes = storage_.bytes;
    report_.pinned = storage_.pinned;
    const Link* in = FindLink(machine, TierKind::kDdr, TierKind::kHbm);
    if (in != nullptr) report_.in_us = TransferUs(*in, storage_.bytes);
  }

  StorageReport Run() {
    CountUses();
    ListMoves();
    ListGaps();
    report_.why = Why();
    return std::move(report_);
  }

 private:
  void CountUses() {
    for (const Op& op : graph_.ops) {
      const bool reads = std::binary_search(op.reads.begin(), op.reads.end(), report_.storage);
      const bool writes = std::binary_search(op.writes.begin(), op.writes.end(), report_.storage);
      report_.uses_per_step += reads || writes || InGroup(op) ? 1 : 0;
    }
  }
  bool InGroup(const Op& op) const {
    if (!op.group.has_value()) return false;
    const std::vector<StorageIndex>& members = graph_.groups[*op.group].members;
    return std::find(members.begin(), members.end(), report_.storage) != members.end();
  }

  // Its moves with their slots, and the boundary (position of the next op) at which each stands.
  void ListMoves() {
    const std::uint32_t channels = ChannelCount(graph_);
    std::vector<std::uint32_t> count(channels, 0), channel_of;
    std::vector<double> free(channels, 0);
    std::uint32_t position = 0;
    for (const Task& task : plan_.sequence) {
      const std::uint32_t channel = ChannelOf(graph_, plan_, task);
      const bool link = channel != kNone && channel < kLinkChannels;
      if (task.is_move) {
        const Move& move = plan_.moves[task.index];
        if (move.storage == report_.storage) {
          const std::uint32_t place = channel == kNone ? 0 : count[channel];
          const double idle = link ? std::max(0.0, move.start_us - free[channel]) : 0;
          report_.moves.push_back({task.index, place, 0, idle});
          channel_of.push_back(channel);
          boundaries_.push_back(position);
        }
        if (link) free[channel] = move.end_us;
      }
      if (channel != kNone) ++count[channel];
      position += channel == kNone || link ? 0U : 1U;
    }
    for (std::size_t i = 0; i < report_.moves.size(); ++i) {
      if (channel_of[i] != kNone) report_.moves[i].of = count[channel_of[i]];
    }
  }

  OpIndex OpAt(std::uint32_t position) const { return problem_.order.steps[position].op; }

  void ListGaps() {
    const std::vector<Bytes> target(problem_.lifetimes.positions, plan_.budget_bytes);
    const std::vector<GapFactors> factors = ComputeFactors(problem_, target);
    for (std::size_t g = 0; g < problem_.gaps.size(); ++g) {
      const Gap& gap = problem_.gaps[g];
      if (problem_.lifetimes.lives[gap.life].storage != report_.storage) continue;
      GapReport r;
      r.kind = gap.kind;
      const bool from = gap.kind != GapKind::kHead && gap.kind != GapKind::kAll;
      const bool to = gap.kind != GapKind::kTail && gap.kind != GapKind::kAll;
      if (from) r.after_op = OpAt(gap.from);
      if (to) r.before_op = OpAt(gap.to);
      r.factors = factors[g];
      r.cost_us = EvictionCost(factors[g]);
      r.over_budget = factors[g].relief > 0;
      if (factors[g].recompute_us >= 0) report_.recompute_us = factors[g].recompute_us;
      Attribute(gap, r);
      report_.gaps.push_back(r);
    }
  }

  // The moves that end and begin its stays at this gap. A SwapOut may stand long before, after the
  // last write: it belongs to the first moved gap after it.
  void Attribute(const Gap& gap, GapReport& r) {
    const std::uint32_t n = problem_.lifetimes.positions;
    const bool to_end = gap.kind == GapKind::kTail || gap.kind == GapKind::kWrap;
    const std::uint32_t until = to_end ? n : gap.to;
    std::vector<std::size_t> outs;
    bool comes = false, drops = false;
    double stall = 0;
    for (std::size_t i = 0; i < report_.moves.size(); ++i) {
      const Move& move = plan_.moves[report_.moves[i].move];
      if (move.kind == MoveKind::kSwapOut) {
        if (i >= outs_taken_ && boundaries_[i] <= until) outs.push_back(i);
        continue;
      }
      bool inside = false;
      ForAbsent(gap, n, [&](std::uint32_t first, std::uint32_t last) {
        inside = inside || (first <= boundaries_[i] && boundaries_[i] <= last);
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
        r.moved = std::any_of(plan_.homes.begin(), plan_.homes.end(), [&](const Home& home) {
          return home.storage == report_.storage && !home.in_hbm_at_start;
        });
        break;
    }
    if (!r.moved) return;
    for (const std::size_t i : outs) stall += plan_.moves[report_.moves[i].move].stall_us;
    if (!outs.empty()) outs_taken_ = outs.back() + 1;
    r.stall_us = stall;
  }

  std::string Between(const GapReport& gap) const {
    const std::string after = gap.after_op == kNone
                                  ? std::string("the start of the step")
                                  : absl::StrCat("op ", graph_.ops[gap.after_op].name);
    if (gap.before_op == kNone) return absl::StrCat("from ", after, " to the end of the step");
    return absl::StrCat("between ", after, " and op ", graph_.ops[gap.before_op].name,
                        gap.kind == GapKind::kWrap ? " of the next step" : "");
  }

  std::string Why() const {
    for (const std::uint32_t g : plan_.offloaded_groups) {
      const std::vector<StorageIndex>& members = graph_.groups[g].members;
      if (std::find(members.begin(), members.end(), report_.storage) == members.end()) continue;
      return absl::StrCat("lies in DDR with group ", graph_.groups[g].name,
                          ": which members are read is known only when the router has run, and a "
                          "fetch is never counted as hidden");
    }
    const auto moved = std::count_if(report_.gaps.begin(), report_.gaps.end(),
                                     [](const GapReport& gap) { return gap.moved; });
    for (const MoveSlot& slot : report_.moves) {
      const Move& move = plan_.moves[slot.move];
      if (moved > 0 || move.kind != MoveKind::kRecompute) continue;
      return absl::StrCat("made anew by op ", graph_.ops[move.producer].name, " in ",
                          Us(graph_.ops[move.producer].microseconds),
                          ": cheaper than keeping it or a round trip of ", Us(2 * report_.in_us));
    }
    return moved > 0 ? WhyMoved() : WhyNot();
  }

  std::string WhyMoved() const {
    std::string text;
    for (const GapReport& gap : report_.gaps) {
      if (!gap.moved) continue;
      const GapFactors& f = gap.factors;
      absl::StrAppend(&text, text.empty() ? "moved " : "; and ", Between(gap), ": transfers of ",
                      Us(f.out_us + f.in_us), " beside ", Us(f.slack_us), " of compute, ",
                      gap.stall_us > 0 ? Us(gap.stall_us) + " of it exposed" : "all hidden");
    }
    return text;
  }

  std::string WhyNot() const {
    if (plan_.verdict == Verdict::kFits) return "not moved: the whole step fits the budget";
    if (plan_.verdict == Verdict::kInfeasible) return "not moved: there is no plan";
    if (report_.pinned) return "not moved: it is pinned";
    if (report_.gaps.empty()) {
      return "not moved: no op runs between its uses, so there is no gap to be away in";
    }
    const GapReport* best = nullptr;
    for (const GapReport& gap : report_.gaps) {
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
  static double Price(const GapReport& gap) { return gap.cost_us / gap.factors.relief; }

  const Graph& graph_;
  const Plan& plan_;
  const Storage& storage_;
  const Problem problem_;
  StorageReport report_;
  std::vector<std::uint32_t> boundaries_;  // of report_.moves
  std::size_t outs_taken_ = 0;             // those before are attributed
};

}  // namespace

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
  HMM_CHECK(storage < graph.storages.size());
  return Explainer(graph, machine, plan, storage).Run();
}

}  // namespace hmm::plan
