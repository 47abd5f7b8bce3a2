// SPDX-License-Identifier: Apache-2.0
//
// The part of validate that follows each storage through the sequence: where its bytes are, which
// copy of them is good, and what each use and each copy must have waited for.
#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "plan/validate_internal.h"

namespace hmm::plan::internal {
namespace {

struct Where {
  bool exists = false;  // has bytes at all by now
  bool here = false;    // in HBM, or on the way there
  bool has_home = false;
  TierKind home = TierKind::kDdr;
  bool home_good = false;           // the copy below equals the bytes, once `copied_by` has ended
  bool lost = false;                // given up without a good copy
  TaskIndex brought_by = kNone;     // SwapIn or recomputation that began this stay
  TaskIndex leaving = kNone;        // SwapOut that ends this stay
  TaskIndex written_by = kNone;     // last write ever
  TaskIndex copied_by = kNone;      // last leg that wrote the home
  TaskIndex staged_by = kNone;      // leg flash -> DDR waiting for its second
  std::uint32_t holding = kNone;    // in Held::hbm
  std::uint32_t stage_out = kNone;  // in Held::ddr_out
  std::uint32_t stage_in = kNone;   // in Held::ddr_in
};

class States {
 public:
  States(const Graph& graph, const Plan& plan, const Before& before, FaultList& faults)
      : graph_(graph), plan_(plan), before_(before), faults_(faults) {}

  Held Run() {
    Start();
    for (now_ = 0; now_ < plan_.sequence.size(); ++now_) {
      const Task& task = plan_.sequence[now_];
      if (task.is_move) {
        AtMove(plan_.moves[task.index]);
      } else {
        AtOp(task.index);
      }
    }
    End();
    return std::move(held_);
  }

 private:
  void Add(Rule rule, StorageIndex s, std::string_view what) {
    const std::string whose = s == kNone ? std::string() : graph_.storages[s].name + ": ";
    faults_.Add(rule, now_, s, whose + std::string(what));
  }

  void Start() {
    where_.resize(graph_.storages.size());
    remaining_.assign(graph_.storages.size(), 0);
    offloaded_.assign(graph_.groups.size(), false);
    std::vector<bool> hidden(graph_.storages.size(), false);
    for (const std::uint32_t g : plan_.offloaded_groups) {
      if (g >= graph_.groups.size())
        return faults_.Add(Rule::kShape, kNone, kNone, "no such group");
      offloaded_[g] = true;
      for (const StorageIndex s : graph_.groups[g].members) hidden[s] = true;
    }
    writers_.assign(graph_.storages.size(), 0);
    last_writer_.assign(graph_.storages.size(), kNone);
    for (OpIndex index = 0; index < graph_.ops.size(); ++index) {
      const Op& op = graph_.ops[index];
      for (const StorageIndex s : op.reads) ++remaining_[s];
      for (const StorageIndex s : op.writes) {
        ++writers_[s];
        last_writer_[s] = index;
        if (!std::binary_search(op.reads.begin(), op.reads.end(), s)) ++remaining_[s];
      }
    }
    for (const Home& home : plan_.homes) {
      Where& w = where_[home.storage];
      w.has_home = true;
      w.home = home.tier;
      w.home_good = home.valid_at_start;
      w.here = home.in_hbm_at_start;
    }
    for (StorageIndex s = 0; s < graph_.storages.size(); ++s) {
      const Storage& storage = graph_.storages[s];
      Where& w = where_[s];
      w.exists = storage.persistent || storage.input;
      if (!w.has_home) w.here = storage.persistent || (storage.input && remaining_[s] > 0);
      if (hidden[s] && (w.here || !w.home_good || w.home != TierKind::kDdr)) {
        Add(Rule::kFetch, s, "is offloaded with its group, but does not lie in DDR");
      }
      if (w.here) w.holding = Hold(kNone, storage.bytes, s);
    }
  }

  std::uint32_t Hold(TaskIndex begin, Bytes bytes, StorageIndex s) {
    held_.hbm.push_back({begin, bytes, false, {}, s});
    return static_cast<std::uint32_t>(held_.hbm.size() - 1);
  }

  // `now_` uses s, which must be here and have arrived.
  void Use(StorageIndex s) {
    Where& w = where_[s];
    if (!w.here) return Add(Rule::kAbsent, s, "is used while it is not in HBM");
    if (w.brought_by != kNone && !before_(w.brought_by, now_)) {
      Add(Rule::kEarlyUse, s, "is used without waiting for what brings it");
    }
    held_.hbm[w.holding].until.push_back(now_);
  }

  void Write(StorageIndex s, bool also_read) {
    Where& w = where_[s];
    if (!w.exists) {
      w.exists = w.here = true;
      w.holding = Hold(now_, graph_.storages[s].bytes, s);
    }
    if (!also_read) Use(s);
    if (w.leaving != kNone) Add(Rule::kLateWrite, s, "is written after its copy out has begun");
    w.written_by = now_;
    w.home_good = false;
  }

  void AtOp(OpIndex index) {
    const Op& op = graph_.ops[index];
    for (const StorageIndex s : op.reads) Use(s);
    for (const StorageIndex s : op.writes) {
      Write(s, std::binary_search(op.reads.begin(), op.reads.end(), s));
    }
    if (op.group.has_value()) AtGroup(*op.group, op);
    Scratch(op);
  }
  void Scratch(const Op& op) {
    if (op.workspace == 0) return;
    held_.hbm[Hold(now_, op.workspace, kNone)].until.push_back(now_);
  }
  void AtGroup(std::uint32_t g, const Op& op) {
    if (!offloaded_[g]) {
      for (const StorageIndex s : graph_.groups[g].members) {
        if (!std::binary_search(op.reads.begin(), op.reads.end(), s)) Use(s);
      }
      return;
    }
    if (graph_.groups[g].k == 0) return;
    if (fetch_ == kNone || fetched_ != g || !before_(fetch_, now_)) {
      return Add(Rule::kFetch, kNone, absl::StrCat("op ", op.name, " has no fetch to wait for"));
    }
    held_.hbm[fetch_holding_].until.push_back(now_);
    fetch_ = kNone;
  }

  void AtMove(const Move& move) {
    if (move.storage == kNone) return Fetch(move);
    switch (move.kind) {
      case MoveKind::kSwapOut:
        if (move.from == TierKind::kHbm) return OutOfHbm(move.storage);
        return OutToFlash(move.storage);
      case MoveKind::kSwapIn:
        if (move.to == TierKind::kHbm) return IntoHbm(move.storage);
        return InFromFlash(move.storage);
      case MoveKind::kDrop:
        return Drop(move.storage);
      case MoveKind::kRecompute:
        return Recompute(move);
    }
  }

  void Fetch(const Move& move) {
    if (!offloaded_[move.group]) Add(Rule::kFetch, kNone, "fetches from a group that lies in HBM");
    if (fetch_ != kNone) Add(Rule::kFetch, kNone, "fetches while another fetch is not used yet");
    fetch_ = now_;
    fetched_ = move.group;
    fetch_holding_ = Hold(now_, move.bytes, kNone);
    held_.hbm[fetch_holding_].until.push_back(now_);
  }

  void OutOfHbm(StorageIndex s) {
    Where& w = where_[s];
    if (!w.exists || !w.here) return Add(Rule::kAbsent, s, "is copied out but not in HBM");
    if (w.leaving != kNone) return Add(Rule::kTwice, s, "is copied out twice");
    const bool written_first = w.written_by == kNone || before_(w.written_by, now_);
    const bool brought_first = w.brought_by == kNone || before_(w.brought_by, now_);
    const bool read_first = w.copied_by == kNone || before_(w.copied_by, now_);
    if (!written_first || !brought_first || !read_first) {
      Add(Rule::kEarlyCopy, s, "is copied out without waiting for its last write");
    }
    w.leaving = w.copied_by = now_;
    held_.hbm[w.holding].until.push_back(now_);
    w.home_good = w.home == TierKind::kDdr;
    if (w.home == TierKind::kFlash) {
      w.stage_out = Stage(held_.ddr_out, s);
    }
  }

  void OutToFlash(StorageIndex s) {
    Where& w = where_[s];
    if (w.stage_out == kNone || w.leaving == kNone || !before_(w.leaving, now_)) {
      return Add(Rule::kEarlyCopy, s, "goes to flash before it is in DDR");
    }
    EndStage(held_.ddr_out, w.stage_out);
    w.copied_by = now_;
    w.home_good = w.written_by == kNone || before_(w.written_by, w.leaving);
  }
  std::uint32_t Stage(std::vector<Holding>& slots, StorageIndex s) {
    slots.push_back({now_, graph_.storages[s].bytes, true, {}, s});
    return static_cast<std::uint32_t>(slots.size() - 1);
  }
  void EndStage(std::vector<Holding>& slots, std::uint32_t& stage) {
    slots[stage].forever = false;
    slots[stage].until.push_back(now_);
    stage = kNone;
  }

  // The copy below is whole and good, and `now_` waits for what made it.
  bool GoodCopy(StorageIndex s) {
    const Where& w = where_[s];
    if (!w.exists || !w.home_good) {
      Add(Rule::kLost, s, "is brought back from a copy that is not good");
      return false;
    }
    if (w.copied_by != kNone && !before_(w.copied_by, now_)) {
      Add(Rule::kEarlyCopy, s, "is brought back without waiting for the copy");
      return false;
    }
    return true;
  }

  void InFromFlash(StorageIndex s) {
    Where& w = where_[s];
    if (w.staged_by != kNone) return Add(Rule::kTwice, s, "is staged twice");
    if (!GoodCopy(s)) return;
    w.staged_by = now_;
    w.stage_in = Stage(held_.ddr_in, s);
  }

  void IntoHbm(StorageIndex s) {
    Where& w = where_[s];
    if (w.here && w.leaving == kNone) return Add(Rule::kTwice, s, "is brought in but is there");
    if (!GoodCopy(s)) return;
    if (w.home == TierKind::kFlash) {
      if (w.staged_by == kNone || !before_(w.staged_by, now_)) {
        return Add(Rule::kEarlyCopy, s, "is brought in before it is staged in DDR");
      }
      EndStage(held_.ddr_in, w.stage_in);
      w.staged_by = kNone;
    }
    Begin(s);
  }
  void Begin(StorageIndex s) {
    Where& w = where_[s];
    w.here = true;
    w.lost = false;
    w.leaving = kNone;
    w.brought_by = now_;
    w.holding = Hold(now_, graph_.storages[s].bytes, s);
    held_.hbm[w.holding].until.push_back(now_);
  }

  void Drop(StorageIndex s) {
    Where& w = where_[s];
    if (!w.here || w.leaving != kNone) return Add(Rule::kAbsent, s, "is dropped but not in HBM");
    w.here = false;
    w.lost = !w.home_good;
    w.holding = kNone;
  }

  void Recompute(const Move& move) {
    const StorageIndex s = move.storage;
    Where& w = where_[s];
    const Op& op = graph_.ops[move.producer];
    if (w.here || !w.exists) Add(Rule::kTwice, s, "is made anew but is there, or never was");
    const bool makes_it = op.writes.size() == 1 && op.writes.front() == s &&
                          !op.group.has_value() && graph_.storages[s].recomputable;
    const bool only = writers_[s] == 1;
    const bool from_itself = std::binary_search(op.reads.begin(), op.reads.end(), s);
    if (!makes_it || !only || from_itself) {
      Add(Rule::kRemake, s, "is made anew by an op that does not make it alone");
    }
    for (const StorageIndex read : op.reads) {
      Use(read);
      // Its inputs are as they were: not written after the first making, in any order of ops.
      if (last_writer_[read] != kNone && last_writer_[read] > move.producer) {
        Add(Rule::kRemake, s, "is made anew from what has changed since");
      }
    }
    if (w.written_by == kNone || !before_(w.written_by, now_)) {
      Add(Rule::kRemake, s, "is made anew before it was made");
    }
    Begin(s);
    w.written_by = now_;
    w.home_good = false;
    Scratch(op);
  }

  void End() {
    for (const Home& home : plan_.homes) {
      const Where& w = where_[home.storage];
      if (!graph_.storages[home.storage].persistent) continue;
      const bool stays = w.here && w.leaving == kNone;
      if (stays != home.in_hbm_at_start || (home.valid_at_start && !w.home_good)) {
        Add(Rule::kCycle, home.storage, "does not end the step as it began");
      }
    }
    for (StorageIndex s = 0; s < graph_.storages.size(); ++s) {
      const Storage& storage = graph_.storages[s];
      const Where& w = where_[s];
      const bool stays = w.here && w.leaving == kNone;
      const bool passes_through = storage.input && remaining_[s] == 0;  // never the planner's
      if (storage.output && w.exists && !passes_through && !stays && !w.home_good) {
        Add(Rule::kCycle, s, "is an output, but gone at the end");
      }
      if (stays && (storage.persistent || storage.output)) held_.hbm[w.holding].forever = true;
    }
  }

  const Graph& graph_;
  const Plan& plan_;
  const Before& before_;
  FaultList& faults_;
  TaskIndex now_ = 0;
  std::vector<Where> where_;
  std::vector<std::uint32_t> remaining_;  // uses by ops
  std::vector<std::uint32_t> writers_;    // ops that write it
  std::vector<OpIndex> last_writer_;      // in the graph's order
  std::vector<bool> offloaded_;
  TaskIndex fetch_ = kNone;
  std::uint32_t fetched_ = kNone;
  std::uint32_t fetch_holding_ = kNone;
  Held held_;
};

}  // namespace

Held CheckStates(const Graph& graph, const Plan& plan, const Before& before, FaultList& faults) {
  return States(graph, plan, before, faults).Run();
}

}  // namespace hmm::plan::internal
