// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/plan_moved.h"

#include <array>
#include <map>

#include "absl/strings/str_cat.h"
#include "plan/explain.h"

namespace hmm::ctl {
namespace {

// Moves of one storage or group.
struct Tally {
  std::array<std::uint32_t, 4> kinds{};  // by MoveKind
  double exposed_us = 0;
  Bytes bytes_max = 0;
  double longest_us = 0;
};

void Count(const plan::Move& move, Tally& tally) {
  ++tally.kinds[static_cast<std::size_t>(move.kind)];
  tally.exposed_us += move.stall_us;
  tally.bytes_max = std::max(tally.bytes_max, move.bytes);
  tally.longest_us = std::max(tally.longest_us, move.end_us - move.start_us);
}

std::string HowText(const Tally& tally) {
  std::string out;
  for (const plan::MoveKind kind : {plan::MoveKind::kSwapOut, plan::MoveKind::kDrop,
                                    plan::MoveKind::kSwapIn, plan::MoveKind::kRecompute}) {
    const std::uint32_t n = tally.kinds[static_cast<std::size_t>(kind)];
    if (n == 0) continue;
    absl::StrAppend(&out, out.empty() ? "" : ", ", n > 1 ? absl::StrCat(n, " ") : "",
                    std::string(plan::MoveKindName(kind)));
  }
  return out;
}

MovedTensor OfStorage(const plan::StorageReport& report, const Tally& tally) {
  MovedTensor out;
  out.storage = report.storage;
  out.bytes = report.bytes;
  out.uses_per_step = report.uses_per_step;
  out.recompute_us = report.recompute_us;
  out.in_us = report.in_us;
  out.exposed_us = tally.exposed_us;
  out.how = HowText(tally);
  for (const plan::GapReport& gap : report.gaps) {
    if (!gap.moved) continue;
    if (out.gaps++ == 0) {
      out.after_op = gap.after_op;
      out.before_op = gap.before_op;
    }
    out.slack_us += gap.factors.slack_us;
  }
  return out;
}

MovedTensor OfGroup(const plan::Graph& graph, const plan::Plan& plan, std::uint32_t group,
                    const Tally& tally) {
  MovedTensor out;
  out.group = group;
  out.bytes = tally.bytes_max;
  for (const plan::Op& op : graph.ops) out.uses_per_step += op.group == group ? 1 : 0;
  out.in_us = tally.longest_us;
  out.exposed_us = tally.exposed_us;
  out.how = absl::StrCat(graph.groups[group].members.size(), " members in ddr, ",
                         graph.groups[group].k, " fetched a use");
  for (const plan::Move& move : plan.moves) {
    if (move.group != group || move.storage != plan::kNone) continue;
    out.after_op = move.after_op;
    out.before_op = move.before_op;
    break;
  }
  return out;
}

}  // namespace

std::vector<MovedTensor> MovedTensors(const plan::Graph& graph, const plan::Machine& machine,
                                      const plan::Plan& plan) {
  if (plan.moves.empty() && plan.homes.empty()) return {};
  std::map<plan::StorageIndex, Tally> storages;
  std::map<std::uint32_t, Tally> groups;
  for (const plan::Move& move : plan.moves) {
    if (move.storage != plan::kNone) {
      Count(move, storages[move.storage]);
    } else {
      Count(move, groups[move.group]);
    }
  }
  // Members of groups in DDR are told of by their group.
  std::vector<bool> of_group(graph.storages.size(), false);
  for (const std::uint32_t g : plan.offloaded_groups) {
    groups.try_emplace(g);
    for (const plan::StorageIndex s : graph.groups[g].members) of_group[s] = true;
  }
  std::map<plan::StorageIndex, TierKind> homes;
  for (const plan::Home& home : plan.homes) {
    if (of_group[home.storage]) continue;
    homes[home.storage] = home.tier;
    storages.try_emplace(home.storage);
  }
  const plan::Explainer explainer(graph, machine, plan);
  std::vector<MovedTensor> out;
  out.reserve(storages.size() + groups.size());
  for (const auto& [storage, tally] : storages) {
    out.push_back(OfStorage(explainer.Explain(storage), tally));
    if (out.back().how.empty()) {
      out.back().how = absl::StrCat("stays in ", std::string(TierKindName(homes[storage])));
    }
  }
  for (const auto& [group, tally] : groups) out.push_back(OfGroup(graph, plan, group, tally));
  return out;
}

}  // namespace hmm::ctl
