// SPDX-License-Identifier: Apache-2.0
//
// Builds a plan's sequence task by task: settles each task's waits when it is emitted, all earlier
// tasks and their predicted times being known, so that the plan and its timeline come at once. The
// memory argument is in plan/assemble.h. Not shared between threads.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace hmm::plan {

class Sequencer {
 public:
  // `held` bytes lie in HBM when the step starts.
  Sequencer(std::uint32_t channels, Bytes budget, Bytes held, std::size_t tasks_expected);

  bool ok() const { return ok_; }  // false: bytes did not fit, and nothing more is worth emitting
  Bytes peak_bytes() const { return peak_; }
  double start(TaskIndex task) const { return start_[task]; }
  double end(TaskIndex task) const { return end_[task]; }
  double free_at(std::uint32_t channel) const { return free_[channel]; }
  TaskIndex size() const { return static_cast<TaskIndex>(end_.size()); }
  Plan& plan() { return plan_; }

  // The next task emitted waits for `task`.
  void Wait(TaskIndex task) { waits_now_.push_back(task); }
  // `takes` bytes of HBM when it starts. What an op starts later than `base` is blamed on the move
  // it waited for.
  TaskIndex EmitOp(Task task, std::uint32_t channel, double us, Bytes takes, double base);
  TaskIndex EmitMove(const Move& move, double us, Bytes takes);
  // A drop: a mark at time `at_us`.
  void EmitDrop(Move move, double at_us);

  // Bytes go when all these tasks have ended: a range collected by Collect. REQUIRES: all emitted.
  std::uint32_t collected() const { return static_cast<std::uint32_t>(release_tasks_.size()); }
  void Collect(TaskIndex task) { release_tasks_.push_back(task); }
  TaskIndex collected_at(std::uint32_t i) const { return release_tasks_[i]; }
  void Release(Bytes bytes, std::uint32_t begin, std::uint32_t end);

  // Step end, stall at the end, after_op and before_op of the moves.
  void Finish(double compute_us);

 private:
  struct Freed {  // bytes that go when all of its tasks have ended
    double end = 0;
    std::uint32_t number = 0;  // order of closing: ties
    Bytes bytes = 0;
    std::uint32_t task_begin = 0;
    std::uint32_t task_end = 0;
    bool operator>(const Freed& o) const {
      return std::tie(end, number) > std::tie(o.end, o.number);
    }
  };

  TaskIndex Emit(Task task, std::uint32_t channel, double us, Bytes takes, double base);
  void DemandRoom(std::uint32_t channel, Bytes takes);

  const std::uint32_t channels_;
  const Bytes budget_;
  Plan plan_;
  bool ok_ = true;
  Bytes held_ = 0;  // taken so far, less the releases demanded
  Bytes peak_ = 0;
  std::vector<TaskIndex> waits_now_;
  std::vector<double> start_, end_;        // by task
  std::vector<std::uint32_t> channel_of_;  // by task
  std::vector<double> free_;               // by channel
  std::vector<TaskIndex> release_tasks_;
  std::priority_queue<Freed, std::vector<Freed>, std::greater<>> releases_;
  std::uint32_t release_count_ = 0;
  std::vector<std::uint32_t> required_;  // by source channel: 1 + task, 0 none
  std::vector<std::uint32_t> known_;     // by (channel, source)
};

}  // namespace hmm::plan
