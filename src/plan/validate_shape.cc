// SPDX-License-Identifier: Apache-2.0
//
// The parts of validate that need no states: shape, and what ops wait for.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "plan/validate_internal.h"

namespace hmm::plan::internal {
namespace {

class Shape {
 public:
  Shape(const Graph& graph, const Machine& machine, const Plan& plan, FaultList& faults)
      : graph_(graph), machine_(machine), plan_(plan), faults_(faults) {}

  bool Check() {
    CheckSequence();
    CheckWaits();
    CheckHomes();
    for (TaskIndex t = 0; ok_ && t < plan_.sequence.size(); ++t) {
      if (plan_.sequence[t].is_move) CheckMove(t, plan_.moves[plan_.sequence[t].index]);
    }
    return ok_;
  }

 private:
  void Bad(TaskIndex task, std::string text, Rule rule = Rule::kShape) {
    ok_ = false;
    faults_.Add(rule, task, kNone, std::move(text));
  }

  void CheckSequence() {
    std::vector<bool> ops(graph_.ops.size(), false), moves(plan_.moves.size(), false);
    for (TaskIndex t = 0; t < plan_.sequence.size(); ++t) {
      const Task& task = plan_.sequence[t];
      std::vector<bool>& seen = task.is_move ? moves : ops;
      if (task.index >= seen.size()) return Bad(t, "no such op or move");
      if (seen[task.index]) Bad(t, "stands in the sequence twice");
      seen[task.index] = true;
    }
    if (std::find(ops.begin(), ops.end(), false) != ops.end()) Bad(kNone, "an op is missing");
    if (std::find(moves.begin(), moves.end(), false) != moves.end()) {
      Bad(kNone, "a move is missing");
    }
  }

  void CheckWaits() {
    const std::size_t n = plan_.sequence.size();
    if (plan_.wait_begin.size() != n + 1 || plan_.wait_begin.front() != 0 ||
        plan_.wait_begin.back() != plan_.waits.size()) {
      return Bad(kNone, "the lists of waits do not match the sequence");
    }
    for (TaskIndex t = 0; t < n; ++t) {
      if (plan_.wait_begin[t] > plan_.wait_begin[t + 1]) return Bad(t, "waits out of order");
      for (TaskIndex w = plan_.wait_begin[t]; w < plan_.wait_begin[t + 1]; ++w) {
        if (plan_.waits[w] >= t) return Bad(t, "waits for itself or for a later task");
      }
    }
  }

  void CheckHomes() {
    home_.assign(graph_.storages.size(), kNone);
    for (std::uint32_t h = 0; h < plan_.homes.size(); ++h) {
      const Home& home = plan_.homes[h];
      if (home.storage >= graph_.storages.size() || home.tier == TierKind::kHbm) {
        return Bad(kNone, "a home of no storage, or in HBM");
      }
      if (home_[home.storage] != kNone) return Bad(kNone, "two homes of one storage");
      home_[home.storage] = h;
      const Storage& storage = graph_.storages[home.storage];
      const bool exists = storage.persistent || storage.input;
      if (!exists && (home.in_hbm_at_start || home.valid_at_start)) {
        Bad(kNone, absl::StrCat(storage.name, " is said to be there before it is made"));
      }
      if (exists && !home.in_hbm_at_start && !home.valid_at_start) {
        Bad(kNone, absl::StrCat(storage.name, " is nowhere at the start"), Rule::kLost);
      }
      if (storage.input && !storage.persistent && home.in_hbm_at_start && home.valid_at_start) {
        Bad(kNone, absl::StrCat(storage.name, " is given once, but said to be in two places"));
      }
      if (storage.pinned) Bad(kNone, storage.name, Rule::kPinned);
    }
  }

  void CheckMove(TaskIndex t, const Move& move) {
    if (move.kind == MoveKind::kRecompute && move.producer >= graph_.ops.size()) {
      return Bad(t, "recomputes by no op");
    }
    if (move.storage == kNone) return CheckFetch(t, move);
    if (move.storage >= graph_.storages.size() || move.group != kNone) {
      return Bad(t, "moves no storage");
    }
    if (move.bytes != graph_.storages[move.storage].bytes) return Bad(t, "moves another size");
    if (graph_.storages[move.storage].pinned) return Bad(t, "moves what is pinned", Rule::kPinned);
    if (move.kind == MoveKind::kDrop || move.kind == MoveKind::kRecompute) return;
    const bool down = move.kind == MoveKind::kSwapOut;
    const int step = static_cast<int>(move.to) - static_cast<int>(move.from);
    if (step != (down ? 1 : -1)) return Bad(t, "not between neighbouring tiers", Rule::kPath);
    if (FindLink(machine_, move.from, move.to) == nullptr) return Bad(t, "no link", Rule::kPath);
    if (home_[move.storage] == kNone) return Bad(t, "the storage has no home below", Rule::kPath);
    const bool flash = move.from == TierKind::kFlash || move.to == TierKind::kFlash;
    if (flash && plan_.homes[home_[move.storage]].tier != TierKind::kFlash) {
      Bad(t, "the storage has no home in flash", Rule::kPath);
    }
  }

  void CheckFetch(TaskIndex t, const Move& move) {
    if (move.group >= graph_.groups.size() || move.kind != MoveKind::kSwapIn ||
        move.from != TierKind::kDdr || move.to != TierKind::kHbm) {
      return Bad(t, "fetches no group");
    }
    Bytes largest = 0;
    for (const StorageIndex s : graph_.groups[move.group].members) {
      largest = std::max(largest, graph_.storages[s].bytes);
    }
    if (move.bytes != largest * graph_.groups[move.group].k) Bad(t, "fetches another size");
  }

  const Graph& graph_;
  const Machine& machine_;
  const Plan& plan_;
  FaultList& faults_;
  std::vector<std::uint32_t> home_;  // by storage
  bool ok_ = true;
};

// One op's dependencies in the order the graph gives, told one by one.
template <typename Fn>
void ForDependencies(const Graph& graph, Fn fn) {
  std::vector<OpIndex> writer(graph.storages.size(), kNone);
  std::vector<std::vector<OpIndex>> readers(graph.storages.size());  // since the last write
  for (OpIndex op = 0; op < graph.ops.size(); ++op) {
    const Op& o = graph.ops[op];
    for (const OpIndex before : o.after) fn(op, before, kNone);
    const auto read = [&](StorageIndex s) {
      if (writer[s] != kNone) fn(op, writer[s], s);
      readers[s].push_back(op);
    };
    for (const StorageIndex s : o.reads) read(s);
    if (o.group.has_value()) {
      for (const StorageIndex s : graph.groups[*o.group].members) {
        if (!std::binary_search(o.reads.begin(), o.reads.end(), s)) read(s);
      }
    }
    for (const StorageIndex s : o.writes) {
      if (writer[s] != kNone) fn(op, writer[s], s);
      for (const OpIndex reader : readers[s]) {
        if (reader != op) fn(op, reader, s);
      }
      readers[s].clear();
      writer[s] = op;
    }
  }
}

}  // namespace

bool CheckShape(const Graph& graph, const Machine& machine, const Plan& plan, FaultList& faults) {
  return Shape(graph, machine, plan, faults).Check();
}

void CheckDependencies(const Graph& graph, const Plan& plan, const Before& before,
                       FaultList& faults) {
  std::vector<TaskIndex> task_of(graph.ops.size(), kNone);
  std::vector<TaskIndex> fetch_of(graph.ops.size(), kNone);
  std::vector<TaskIndex> waiting(graph.groups.size(), kNone);  // fetched, not used yet
  for (TaskIndex t = 0; t < plan.sequence.size(); ++t) {
    const Task& task = plan.sequence[t];
    if (task.is_move) {
      const Move& move = plan.moves[task.index];
      if (move.storage == kNone) waiting[move.group] = t;
      continue;
    }
    task_of[task.index] = t;
    const Op& op = graph.ops[task.index];
    if (op.group.has_value()) std::swap(fetch_of[task.index], waiting[*op.group]);
  }
  ForDependencies(graph, [&](OpIndex op, OpIndex needs, StorageIndex s) {
    if (!before(task_of[needs], task_of[op])) {
      faults.Add(
          Rule::kOrder, task_of[op], s,
          absl::StrCat("op ", graph.ops[op].name, " does not wait for op ", graph.ops[needs].name));
    }
    const TaskIndex fetch = fetch_of[op];
    if (fetch != kNone && !before(task_of[needs], fetch)) {
      faults.Add(Rule::kFetch, fetch, s,
                 absl::StrCat("the fetch for op ", graph.ops[op].name, " does not wait for op ",
                              graph.ops[needs].name));
    }
  });
}

}  // namespace hmm::plan::internal
