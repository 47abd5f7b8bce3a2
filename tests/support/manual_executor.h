// SPDX-License-Identifier: Apache-2.0
// An executor the test drains by hand: tasks in the order posted, timers when the manual clock has
// passed their time, earliest first (ties in the order set).
#pragma once

#include <deque>
#include <map>
#include <utility>

#include "base/executor.h"
#include "support/manual_clock.h"

namespace hmm::testing {

class ManualExecutor final : public Executor {
 public:
  explicit ManualExecutor(ManualClock& clock) : clock_(clock) {}

  void Post(Task task) override { ready_.push_back(std::move(task)); }
  void PostAfter(Duration delay, Task task) override {
    timers_.emplace(std::make_pair(clock_.Now() + delay, next_++), std::move(task));
  }

  std::size_t ready() const { return ready_.size(); }

  // Runs one ready task (timers that are due count as ready). False when there is none.
  bool RunOne() {
    while (!timers_.empty() && timers_.begin()->first.first <= clock_.Now()) {
      ready_.push_back(std::move(timers_.begin()->second));
      timers_.erase(timers_.begin());
    }
    if (ready_.empty()) return false;
    Task task = std::move(ready_.front());
    ready_.pop_front();
    task();
    return true;
  }

  // Runs until nothing is ready, at most `limit` tasks. Returns how many ran.
  std::size_t RunReady(std::size_t limit = 1'000'000) {
    std::size_t ran = 0;
    while (ran < limit && RunOne()) ++ran;
    return ran;
  }

  // Lets `by` pass, then runs what is due, at most `limit` tasks. Returns how many ran.
  std::size_t Advance(Duration by, std::size_t limit = 1'000'000) {
    clock_.Advance(by);
    return RunReady(limit);
  }

 private:
  ManualClock& clock_;
  std::deque<Task> ready_;
  std::map<std::pair<TimePoint, std::uint64_t>, Task> timers_;
  std::uint64_t next_ = 0;
};

}  // namespace hmm::testing
