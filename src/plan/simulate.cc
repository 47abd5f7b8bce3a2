// SPDX-License-Identifier: Apache-2.0
#include "plan/simulate.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "plan/stays.h"

namespace hmm::plan {
namespace {

constexpr std::size_t kFaultsMax = 16;
constexpr std::array<std::pair<TierKind, TierKind>, kLinkChannels> kDirections = {
    std::pair{TierKind::kHbm, TierKind::kDdr}, std::pair{TierKind::kDdr, TierKind::kHbm},
    std::pair{TierKind::kDdr, TierKind::kFlash}, std::pair{TierKind::kFlash, TierKind::kDdr}};

// The channels as servers of their queues.
class Engine {
 public:
  Engine(const Graph& graph, const Machine& machine, const Plan& plan,
         const std::vector<double>& task_us, Simulation& out)
      : plan_(plan), us_(task_us), out_(out), channels_(ChannelCount(graph)) {
    for (std::uint32_t c = 0; c < kLinkChannels; ++c) {
      const Link* link = FindLink(machine, kDirections[c].first, kDirections[c].second);
      if (link == nullptr) continue;
      channels_[c].factor = link->duplex_factor;
      channels_[c].group = link->contention_group;
    }
    for (TaskIndex t = 0; t < plan.sequence.size(); ++t) {
      const std::uint32_t c = ChannelOf(graph, plan, plan.sequence[t]);
      if (c != kNone) channels_[c].queue.push_back(t);
    }
    done_.assign(plan.sequence.size(), false);
    out_.start.assign(plan.sequence.size(), 0);
    out_.end.assign(plan.sequence.size(), 0);
  }

  void Run() {
    double now = 0;
    while (true) {
      StartReady(now);
      Contend(now);
      double next = std::numeric_limits<double>::infinity();
      for (const Channel& channel : channels_) {
        if (channel.busy) next = std::min(next, channel.finish);
      }
      if (next == std::numeric_limits<double>::infinity()) break;
      now = next;
      for (Channel& channel : channels_) {
        if (channel.busy && channel.finish <= now) End(channel, now);
      }
    }
    out_.step_us = now;
    for (const Channel& channel : channels_) {
      if (channel.head < channel.queue.size()) {
        out_.faults.push_back(absl::StrCat("task ", channel.queue[channel.head], " never starts"));
      }
    }
  }

 private:
  struct Channel {
    std::vector<TaskIndex> queue;
    std::size_t head = 0;
    std::uint32_t waited = 0;  // waits of the head found ended so far
    bool busy = false;
    double finish = 0;
    double rate = 1;
    double factor = 1;
    std::uint32_t group = 0;
  };

  void StartReady(double now) {
    for (Channel& channel : channels_) {
      if (channel.busy || channel.head == channel.queue.size()) continue;
      const TaskIndex t = channel.queue[channel.head];
      const std::uint32_t begin = plan_.wait_begin[t], end = plan_.wait_begin[t + 1];
      while (begin + channel.waited < end && done_[plan_.waits[begin + channel.waited]]) {
        ++channel.waited;
      }
      if (begin + channel.waited < end) continue;
      channel.busy = true;
      channel.rate = 1;
      channel.finish = now + us_[t];
      out_.start[t] = now;
    }
  }

  void Contend(double now) {
    for (std::uint32_t c = 0; c < kLinkChannels; ++c) {
      Channel& channel = channels_[c];
      if (!channel.busy || channel.factor >= 1) continue;
      bool contended = false;
      for (std::uint32_t o = 0; o < kLinkChannels; ++o) {
        contended =
            contended || (o != c && channels_[o].busy && channels_[o].group == channel.group);
      }
      const double rate = contended ? channel.factor : 1;
      if (rate == channel.rate) continue;
      channel.finish = now + (channel.finish - now) * channel.rate / rate;
      channel.rate = rate;
    }
  }

  void End(Channel& channel, double now) {
    const TaskIndex t = channel.queue[channel.head++];
    done_[t] = true;
    out_.end[t] = now;
    channel.busy = false;
    channel.waited = 0;
  }

  const Plan& plan_;
  const std::vector<double>& us_;
  Simulation& out_;
  std::vector<Channel> channels_;
  std::vector<bool> done_;
};

void Fault(Simulation& out, const std::string& what) {
  if (out.faults.size() < kFaultsMax) out.faults.push_back(what);
}

// What lay in HBM when: a stay from its task's start to the last end of its uses.
void Replay(const Graph& graph, const Plan& plan, Simulation& out) {
  struct Change {
    double at;
    bool takes;
    Bytes bytes;
  };
  const Stays stays = FindStays(graph, plan);
  std::vector<Change> changes;
  changes.reserve(2 * stays.stays.size());
  std::int64_t held = 0;  // below 0 for a moment where something begins and ends at one time
  std::int64_t peak = 0;
  for (const Stay& stay : stays.stays) {
    if (stay.begin == kNone) {
      held += static_cast<std::int64_t>(stay.bytes);
    } else {
      changes.push_back({out.start[stay.begin], true, stay.bytes});
    }
    const bool brought = stay.begin != kNone && plan.sequence[stay.begin].is_move;
    double gone = 0;
    for (std::uint32_t i = stay.task_begin; i < stay.task_end; ++i) {
      const TaskIndex use = stays.tasks[i];
      gone = std::max(gone, out.end[use]);
      if (brought && use != stay.begin && out.start[use] < out.end[stay.begin]) {
        Fault(out, absl::StrCat("task ", use, " uses what task ", stay.begin,
                                " has not brought in yet"));
      }
    }
    if (!stay.kept) changes.push_back({gone, false, stay.bytes});
  }
  for (const TaskIndex t : stays.absent_uses) {
    Fault(out, absl::StrCat("task ", t, " uses what is not in HBM"));
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::tie(a.at, a.takes) < std::tie(b.at, b.takes);
  });
  peak = held;
  out.memory.push_back({0, static_cast<Bytes>(held)});
  for (const Change& change : changes) {
    const auto bytes = static_cast<std::int64_t>(change.bytes);
    held += change.takes ? bytes : -bytes;
    peak = std::max(peak, held);
    // What goes at a moment goes before what comes, so its last value is its highest.
    if (out.memory.back().at_us != change.at) out.memory.push_back({change.at, 0});
    out.memory.back().bytes = static_cast<Bytes>(std::max<std::int64_t>(held, 0));
  }
  out.peak_bytes = static_cast<Bytes>(peak);
}

// A copy is read only when it is whole: leg after leg, of the same storage.
void CheckCopies(const Graph& graph, const Plan& plan, Simulation& out) {
  std::vector<TaskIndex> last(graph.storages.size(), kNone);
  for (TaskIndex t = 0; t < plan.sequence.size(); ++t) {
    const Task& task = plan.sequence[t];
    if (!task.is_move) continue;
    const Move& move = plan.moves[task.index];
    const bool copies = move.kind == MoveKind::kSwapIn || move.kind == MoveKind::kSwapOut;
    if (!copies || move.storage == kNone) continue;
    const TaskIndex before = last[move.storage];
    if (before != kNone && out.start[t] < out.end[before]) {
      Fault(out, absl::StrCat("task ", t, " copies what task ", before, " has not finished"));
    }
    last[move.storage] = t;
  }
}

}  // namespace

std::vector<double> PredictedUs(const Graph& graph, const Machine& machine, const Plan& plan) {
  std::vector<double> us;
  us.reserve(plan.sequence.size());
  for (const Task& task : plan.sequence) {
    if (!task.is_move) {
      us.push_back(graph.ops[task.index].microseconds);
      continue;
    }
    const Move& move = plan.moves[task.index];
    if (move.kind == MoveKind::kDrop) {
      us.push_back(0);
    } else if (move.kind == MoveKind::kRecompute) {
      us.push_back(graph.ops[move.producer].microseconds);
    } else {
      const Link* link = FindLink(machine, move.from, move.to);
      HMM_CHECK(link != nullptr);
      const std::uint32_t k = move.group == kNone ? 1 : std::max(1U, graph.groups[move.group].k);
      us.push_back(k * TransferUs(*link, move.bytes / k));
    }
  }
  return us;
}

Simulation Simulate(const Graph& graph, const Machine& machine, const Plan& plan,
                    const std::vector<double>& task_us) {
  HMM_CHECK(task_us.size() == plan.sequence.size());
  Simulation out;
  Engine(graph, machine, plan, task_us, out).Run();
  Replay(graph, plan, out);
  CheckCopies(graph, plan, out);
  return out;
}

double StepUs(const Graph& graph, const Machine& machine, const Plan& plan,
              const std::vector<double>& task_us) {
  HMM_CHECK(task_us.size() == plan.sequence.size());
  Simulation out;
  Engine(graph, machine, plan, task_us, out).Run();
  return out.step_us;
}

}  // namespace hmm::plan
