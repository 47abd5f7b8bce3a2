// SPDX-License-Identifier: Apache-2.0
// An executor whose tasks one thread of the program runs; posted from any.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/executor.h"

namespace hmm::testing {

class BlockingExecutor final : public Executor {
 public:
  void Post(Task task) override {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    posted_.notify_one();
  }
  void PostAfter(Duration, Task) override { HMM_CHECK(false); }

  // Waits for the next task and runs it.
  void RunOne() {
    std::unique_lock lock(mutex_);
    posted_.wait(lock, [this] { return !tasks_.empty(); });
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
  }
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return tasks_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<Task> tasks_;
};

}  // namespace hmm::testing
