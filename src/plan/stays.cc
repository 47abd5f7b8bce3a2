// SPDX-License-Identifier: Apache-2.0
#include "plan/stays.h"

#include <algorithm>
#include <numeric>

namespace hmm::plan {
namespace {

class Walker {
 public:
  Walker(const Graph& graph, const Plan& plan) : graph_(graph), plan_(plan) {}

  Stays Run() {
    Start();
    for (TaskIndex t = 0; t < plan_.sequence.size(); ++t) {
      const Task& task = plan_.sequence[t];
      if (task.is_move) {
        AtMove(t, plan_.moves[task.index]);
      } else {
        AtOp(t, graph_.ops[task.index]);
      }
    }
    End();
    return std::move(out_);
  }

 private:
  void Start() {
    current_.assign(graph_.storages.size(), kNone);
    existed_.assign(graph_.storages.size(), false);
    leaving_.assign(graph_.storages.size(), false);
    std::vector<bool> away(graph_.storages.size(), false);
    for (const Home& home : plan_.homes) away[home.storage] = !home.in_hbm_at_start;
    std::vector<bool> used(graph_.storages.size(), false);
    for (const Op& op : graph_.ops) {
      for (const StorageIndex s : op.reads) used[s] = true;
      for (const StorageIndex s : op.writes) used[s] = true;
    }
    offloaded_.assign(graph_.groups.size(), false);
    for (const std::uint32_t g : plan_.offloaded_groups) offloaded_[g] = true;
    for (StorageIndex s = 0; s < graph_.storages.size(); ++s) {
      const Storage& storage = graph_.storages[s];
      const bool there = storage.persistent || (storage.input && used[s]);
      existed_[s] = there;
      if (there && !away[s]) current_[s] = Open(s, storage.bytes, kNone);
    }
  }

  std::uint32_t Open(StorageIndex s, Bytes bytes, TaskIndex begin) {
    out_.stays.push_back({s, bytes, begin, false, 0, 0});
    return static_cast<std::uint32_t>(out_.stays.size() - 1);
  }
  void Use(std::uint32_t stay, TaskIndex task) { pairs_.emplace_back(stay, task); }
  void Reads(TaskIndex t, StorageIndex s) {
    if (current_[s] == kNone) {
      out_.absent_uses.push_back(t);
    } else {
      Use(current_[s], t);
    }
  }
  void Writes(TaskIndex t, StorageIndex s) {
    if (current_[s] == kNone && existed_[s]) {  // may write a part only: needs the rest there
      out_.absent_uses.push_back(t);
      return;
    }
    if (current_[s] == kNone) current_[s] = Open(s, graph_.storages[s].bytes, t);
    existed_[s] = true;
    Use(current_[s], t);
  }

  void AtOp(TaskIndex t, const Op& op) {
    for (const StorageIndex s : op.reads) Reads(t, s);
    for (const StorageIndex s : op.writes) {
      if (!std::binary_search(op.reads.begin(), op.reads.end(), s)) Writes(t, s);
    }
    if (op.group.has_value()) AtGroup(t, *op.group);
    Workspace(t, op);
  }
  void Workspace(TaskIndex t, const Op& op) {
    if (op.workspace > 0) Use(Open(kNone, op.workspace, t), t);
  }
  void AtGroup(TaskIndex t, std::uint32_t group) {
    if (!offloaded_[group]) {
      for (const StorageIndex s : graph_.groups[group].members) Reads(t, s);
    } else if (graph_.groups[group].k > 0) {
      if (fetched_ == kNone) {
        out_.absent_uses.push_back(t);
      } else {
        Use(fetched_, t);
      }
      fetched_ = kNone;
    }
  }

  void AtMove(TaskIndex t, const Move& move) {
    const bool out = move.kind == MoveKind::kSwapOut && move.from == TierKind::kHbm;
    const bool in = move.kind == MoveKind::kSwapIn && move.to == TierKind::kHbm;
    if (move.storage == kNone) {
      fetched_ = Open(kNone, move.bytes, t);
      Use(fetched_, t);
    } else if (out && current_[move.storage] != kNone) {
      Use(current_[move.storage], t);
      leaving_[move.storage] = true;
    } else if (move.kind == MoveKind::kDrop) {
      current_[move.storage] = kNone;
    } else if (in) {
      leaving_[move.storage] = false;
      current_[move.storage] = Open(move.storage, move.bytes, t);
      Use(current_[move.storage], t);
    } else if (move.kind == MoveKind::kRecompute) {
      const Op& op = graph_.ops[move.producer];
      for (const StorageIndex s : op.reads) Reads(t, s);
      current_[move.storage] = Open(move.storage, move.bytes, t);
      Use(current_[move.storage], t);
      Workspace(t, op);
    }
  }

  void End() {
    for (StorageIndex s = 0; s < graph_.storages.size(); ++s) {
      const Storage& storage = graph_.storages[s];
      if (current_[s] != kNone && (storage.persistent || storage.output) && !leaving_[s]) {
        out_.stays[current_[s]].kept = true;
      }
    }
    std::vector<std::uint32_t> count(out_.stays.size() + 1, 0);
    for (const auto& pair : pairs_) ++count[pair.first + 1];
    std::partial_sum(count.begin(), count.end(), count.begin());
    for (std::size_t i = 0; i < out_.stays.size(); ++i) {
      out_.stays[i].task_begin = count[i];
      out_.stays[i].task_end = count[i + 1];
    }
    out_.tasks.resize(pairs_.size());
    for (const auto& [stay, task] : pairs_) out_.tasks[count[stay]++] = task;
  }

  const Graph& graph_;
  const Plan& plan_;
  Stays out_;
  std::vector<std::uint32_t> current_;  // by storage: its stay, kNone: not in HBM
  std::vector<bool> leaving_;           // by storage: a SwapOut has begun
  std::vector<bool> existed_;           // by storage: made, or there from the start
  std::vector<bool> offloaded_;         // by group
  std::uint32_t fetched_ = kNone;
  std::vector<std::pair<std::uint32_t, TaskIndex>> pairs_;  // stay, a task that uses it
};

// For each channel, how many of its tasks are sure to have ended when task t starts.
class Clocks {
 public:
  Clocks(const Graph& graph, const Plan& plan)
      : channels_(ChannelCount(graph)),
        clock_(plan.sequence.size() * channels_, 0),
        place_(plan.sequence.size(), 0),
        channel_(plan.sequence.size(), kNone) {
    std::vector<std::uint32_t> count(channels_, 0);
    std::vector<TaskIndex> last(channels_, kNone);
    for (TaskIndex t = 0; t < plan.sequence.size(); ++t) {
      const std::uint32_t c = ChannelOf(graph, plan, plan.sequence[t]);
      channel_[t] = c;
      if (c == kNone) continue;
      if (last[c] != kNone) Follow(t, last[c]);
      for (std::uint32_t w = plan.wait_begin[t]; w < plan.wait_begin[t + 1]; ++w) {
        Follow(t, plan.waits[w]);
      }
      place_[t] = count[c]++;
      last[c] = t;
    }
  }
  std::uint32_t channels() const { return channels_; }
  std::uint32_t channel(TaskIndex t) const { return channel_[t]; }
  std::uint32_t place(TaskIndex t) const { return place_[t]; }
  std::uint32_t at(TaskIndex t, std::uint32_t c) const {
    return clock_[static_cast<std::size_t>(t) * channels_ + c];
  }

 private:
  void Follow(TaskIndex t, TaskIndex before) {
    std::uint32_t* mine = &clock_[static_cast<std::size_t>(t) * channels_];
    const std::uint32_t* theirs = &clock_[static_cast<std::size_t>(before) * channels_];
    for (std::uint32_t c = 0; c < channels_; ++c) mine[c] = std::max(mine[c], theirs[c]);
    const std::uint32_t c = channel_[before];
    if (c != kNone) mine[c] = std::max(mine[c], place_[before] + 1);
  }

  const std::uint32_t channels_;
  std::vector<std::uint32_t> clock_, place_, channel_;
};

}  // namespace

Stays FindStays(const Graph& graph, const Plan& plan) { return Walker(graph, plan).Run(); }

std::vector<HbmInterval> HbmIntervals(const Graph& graph, const Plan& plan) {
  const Stays stays = FindStays(graph, plan);
  const Clocks clocks(graph, plan);
  const auto n = static_cast<TaskIndex>(plan.sequence.size());
  std::vector<bool> takes(n, false);
  for (const Stay& stay : stays.stays) {
    if (stay.begin != kNone) takes[stay.begin] = true;
  }
  // sure[c][t]: tasks of channel c that have ended before any task at or after t takes bytes.
  std::vector<std::vector<std::uint32_t>> sure(clocks.channels());
  for (std::uint32_t c = 0; c < clocks.channels(); ++c) {
    sure[c].assign(n + 1, kNone);
    for (TaskIndex t = n; t-- > 0;) {
      sure[c][t] = takes[t] ? std::min(sure[c][t + 1], clocks.at(t, c)) : sure[c][t + 1];
    }
  }
  std::vector<HbmInterval> result;
  result.reserve(stays.stays.size());
  for (const Stay& stay : stays.stays) {
    HbmInterval interval{stay.storage, stay.bytes, stay.begin == kNone ? 0 : stay.begin, 0};
    interval.at_start = stay.begin == kNone;
    interval.kept = stay.kept;
    if (stay.kept) {
      interval.end = n;
    } else {
      for (std::uint32_t i = stay.task_begin; i < stay.task_end; ++i) {
        const TaskIndex task = stays.tasks[i];
        const std::vector<std::uint32_t>& line = sure[clocks.channel(task)];
        const auto at =
            std::lower_bound(line.begin() + interval.end, line.end(), clocks.place(task) + 1);
        interval.end = std::max(interval.end, static_cast<TaskIndex>(at - line.begin()));
      }
    }
    interval.end = std::max(interval.end, interval.begin + 1);
    result.push_back(interval);
  }
  return result;
}

}  // namespace hmm::plan
