// SPDX-License-Identifier: Apache-2.0
#include "plan/sequencer.h"

#include <algorithm>

namespace hmm::plan {

Sequencer::Sequencer(std::uint32_t channels, Bytes budget, Bytes held, std::size_t tasks_expected)
    : channels_(channels), budget_(budget), held_(held), peak_(held) {
  ok_ = held <= budget;
  free_.assign(channels_, 0);
  required_.assign(channels_, 0);
  known_.assign(static_cast<std::size_t>(channels_) * channels_, 0);
  start_.reserve(tasks_expected);
  end_.reserve(tasks_expected);
  channel_of_.reserve(tasks_expected);
  plan_.sequence.reserve(tasks_expected);
  plan_.wait_begin.reserve(tasks_expected + 1);
  plan_.wait_begin.push_back(0);
}

TaskIndex Sequencer::EmitOp(Task task, std::uint32_t channel, double us, Bytes takes, double base) {
  return Emit(task, channel, us, takes, base);
}

TaskIndex Sequencer::EmitMove(const Move& move, double us, Bytes takes) {
  const auto index = static_cast<std::uint32_t>(plan_.moves.size());
  plan_.moves.push_back(move);
  plan_.moved_bytes += move.bytes;
  return Emit({true, index}, LinkChannel(move.from, move.to), us, takes, 0);
}

void Sequencer::EmitDrop(Move move, double at_us) {
  move.kind = MoveKind::kDrop;
  move.from = move.to = TierKind::kHbm;
  move.start_us = move.end_us = at_us;
  plan_.sequence.push_back({true, static_cast<std::uint32_t>(plan_.moves.size())});
  plan_.moves.push_back(move);
  plan_.wait_begin.push_back(static_cast<TaskIndex>(plan_.waits.size()));
  start_.push_back(at_us);
  end_.push_back(at_us);
  channel_of_.push_back(kNone);
}

void Sequencer::Release(Bytes bytes, std::uint32_t begin, std::uint32_t end) {
  Freed freed{0, release_count_++, bytes, begin, end};
  for (std::uint32_t t = begin; t < end; ++t) {
    freed.end = std::max(freed.end, end_[release_tasks_[t]]);
  }
  releases_.push(freed);
}

// Demands releases until `takes` more bytes fit, and adds the waits the demands so far imply.
void Sequencer::DemandRoom(std::uint32_t channel, Bytes takes) {
  held_ += takes;
  while (held_ > budget_) {
    if (releases_.empty()) {
      ok_ = false;
      return;
    }
    const Freed freed = releases_.top();
    releases_.pop();
    held_ -= freed.bytes;
    for (std::uint32_t t = freed.task_begin; t < freed.task_end; ++t) {
      const TaskIndex task = release_tasks_[t];
      std::uint32_t& required = required_[channel_of_[task]];
      required = std::max(required, task + 1);
    }
  }
  peak_ = std::max(peak_, held_);
  for (std::uint32_t source = 0; source < channels_; ++source) {
    std::uint32_t& known = known_[static_cast<std::size_t>(channel) * channels_ + source];
    if (source == channel || required_[source] <= known) continue;
    known = required_[source];
    Wait(required_[source] - 1);
  }
}

TaskIndex Sequencer::Emit(Task task, std::uint32_t channel, double us, Bytes takes, double base) {
  if (takes > 0) DemandRoom(channel, takes);
  plan_.sequence.push_back(task);
  std::sort(waits_now_.begin(), waits_now_.end());
  waits_now_.erase(std::unique(waits_now_.begin(), waits_now_.end()), waits_now_.end());
  double start = free_[channel];
  TaskIndex latest = kNone;
  for (const TaskIndex wait : waits_now_) {
    plan_.waits.push_back(wait);
    if (end_[wait] > start) {
      start = end_[wait];
      latest = wait;
    }
  }
  waits_now_.clear();
  plan_.wait_begin.push_back(static_cast<TaskIndex>(plan_.waits.size()));
  start_.push_back(start);
  end_.push_back(start + us);
  channel_of_.push_back(channel);
  free_[channel] = start + us;
  if (task.is_move) {
    plan_.moves[task.index].start_us = start;
    plan_.moves[task.index].end_us = start + us;
  }
  const bool computes = channel >= kLinkChannels;
  if (computes && latest != kNone && start > base && plan_.sequence[latest].is_move) {
    plan_.moves[plan_.sequence[latest].index].stall_us += start - base;
  }
  return size() - 1;
}

void Sequencer::Finish(double compute_us) {
  double ops_end = 0, all_end = 0;
  TaskIndex last_move = kNone;
  for (TaskIndex t = 0; t < size(); ++t) {
    const Task& task = plan_.sequence[t];
    if (channel_of_[t] != kNone && channel_of_[t] >= kLinkChannels) {
      ops_end = std::max(ops_end, end_[t]);
    }
    if (end_[t] > all_end) {
      all_end = end_[t];
      last_move = task.is_move ? t : kNone;
    }
    for (std::uint32_t w = plan_.wait_begin[t]; w < plan_.wait_begin[t + 1]; ++w) {
      const Task& before = plan_.sequence[plan_.waits[w]];
      if (task.is_move && !before.is_move) plan_.moves[task.index].after_op = before.index;
      if (!task.is_move && before.is_move && plan_.moves[before.index].before_op == kNone) {
        plan_.moves[before.index].before_op = task.index;
      }
    }
  }
  if (last_move != kNone) {
    plan_.moves[plan_.sequence[last_move].index].stall_us += all_end - ops_end;
  }
  plan_.peak_bytes = peak_;
  plan_.step_us = all_end;
  plan_.compute_us = compute_us;
  plan_.stall_us = std::max(0.0, all_end - compute_us);
}

}  // namespace hmm::plan
