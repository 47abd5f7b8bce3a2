// SPDX-License-Identifier: Apache-2.0
//
// The outbox: seals and frees that a user need not wait for, sent in batches, in order.
//
//   Push -> queue -> [run of one kind] -> Send -> failures, kept for Flush
//
// What is queued is sent when `batch` items or `bytes` are together, when the oldest is `delay`
// old, or by SendAll. The first two and the last by one thread of its own, which is started at the
// first Push; where the system has no thread to give, by whoever pushes. One sender at a time, so
// that the order is kept. Past `items_max` Push sends itself, which bounds the queue and those who
// fill it.
//
// The thread also does the magazines' upkeep (WakeBy).
//
// Any thread. Send and Upkeep are called without the lock, by one thread at a time each.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/units.h"
#include "hmm/client.h"

namespace hmm::client_internal {

struct OutboxOptions {
  std::size_t batch = 64;
  Bytes bytes = 8 * kMiB;
  Duration delay = std::chrono::milliseconds(1);
  std::size_t items_max = 1024;     // queued
  std::size_t failures_max = 1024;  // kept; of those beyond only the number
};

class Outbox {
 public:
  struct Item {
    Tensor tensor;
    Pin pin;  // given back when the answer is there
    std::string key;
    bool free = false;  // else: seal
  };
  // Sends items that are all of one kind; one status each.
  using Send = std::function<std::vector<absl::Status>(std::vector<Item>& run, TimePoint deadline)>;
  // Does what is due and answers when to come again; max(): not before the next WakeBy.
  using Upkeep = std::function<TimePoint(TimePoint now)>;

  // `timeout`: of one Send.
  Outbox(OutboxOptions options, Duration timeout, Send send, Upkeep upkeep);
  ~Outbox();  // as Stop(zero), should nobody have called it
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  void Push(Item item);
  // Returns when all that was pushed before has been answered.
  void SendAll();
  // Nothing queued and nothing being sent, of what this thread pushed or knows to have been pushed.
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }
  // Failures since the last call, in order. The last may stand for those that were not kept.
  std::vector<Client::LateError> TakeFailures();
  // Upkeep is wanted by then.
  void WakeBy(TimePoint when);
  // No thread any more; what is queued is sent within `timeout`. Nobody may push any more.
  void Stop(Duration timeout);

 private:
  void StartLocked();
  void Run();
  void SendQueue(std::unique_lock<std::mutex>& lock, Duration timeout);
  // Everything in order, in runs of one kind.
  void SendRuns(std::deque<Item> items, TimePoint deadline,
                std::vector<Client::LateError>& failures);
  void KeepLocked(std::vector<Client::LateError> failures);
  TimePoint DueLocked() const;

  const OutboxOptions options_;
  const Duration timeout_;
  const Send send_;
  const Upkeep upkeep_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;  // the thread's
  std::condition_variable sent_;  // those who wait for a sender
  std::deque<Item> queue_;
  Bytes queued_bytes_ = 0;
  TimePoint oldest_{};
  bool sending_ = false;
  bool stopped_ = false;
  TimePoint upkeep_due_ = TimePoint::max();
  TimePoint sleeps_until_ = TimePoint::min();  // the thread; min(): it does not sleep
  std::vector<Client::LateError> failures_;
  std::uint64_t not_kept_ = 0;
  std::atomic<std::size_t> pending_{0};
  bool started_ = false;
  std::thread thread_;
};

}  // namespace hmm::client_internal
