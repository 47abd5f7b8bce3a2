// SPDX-License-Identifier: Apache-2.0
#include "client/lib/outbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/lib/quiet_thread.h"

namespace hmm::client_internal {
namespace {

TimePoint Now() { return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()); }

}  // namespace

Outbox::Outbox(OutboxOptions options, Duration timeout, Send send, Upkeep upkeep)
    : options_(options), timeout_(timeout), send_(std::move(send)), upkeep_(std::move(upkeep)) {}

Outbox::~Outbox() { Stop(Duration(0)); }

void Outbox::Push(Item item) {
  std::unique_lock lock(mutex_);
  HMM_CHECK(!stopped_);
  if (queue_.size() >= options_.items_max) SendQueue(lock, timeout_);
  if (queue_.empty()) oldest_ = Now();
  queued_bytes_ += item.pin.size();
  queue_.push_back(std::move(item));
  pending_.fetch_add(1, std::memory_order_release);
  StartLocked();
  if (!thread_.joinable()) return SendQueue(lock, timeout_);
  // Woken when it would sleep too long, and when a batch is together: not at every push.
  if (DueLocked() < sleeps_until_) wake_.notify_one();
}

TimePoint Outbox::DueLocked() const {
  if (queue_.empty()) return TimePoint::max();
  if (queue_.size() >= options_.batch || queued_bytes_ >= options_.bytes) return TimePoint::min();
  return oldest_ + options_.delay;
}

void Outbox::SendAll() {
  std::unique_lock lock(mutex_);
  sent_.wait(lock, [this] { return !sending_; });
  SendQueue(lock, timeout_);
}

std::vector<Client::LateError> Outbox::TakeFailures() {
  std::lock_guard lock(mutex_);
  std::vector<Client::LateError> out = std::exchange(failures_, {});
  if (const std::uint64_t more = std::exchange(not_kept_, 0); more > 0) {
    out.push_back({0, "",
                   absl::ResourceExhaustedError(
                       absl::StrCat(more, " more calls failed than are kept; flush more often"))});
  }
  return out;
}

void Outbox::WakeBy(TimePoint when) {
  std::lock_guard lock(mutex_);
  if (stopped_ || when >= upkeep_due_) return;
  upkeep_due_ = when;
  StartLocked();
  if (when < sleeps_until_) wake_.notify_one();
}

void Outbox::StartLocked() {
  if (started_ || stopped_) return;
  started_ = true;
  thread_ = StartQuietThread([this] { Run(); });
}

void Outbox::Stop(Duration timeout) {
  std::unique_lock lock(mutex_);
  stopped_ = true;
  wake_.notify_one();
  if (thread_.joinable()) {
    lock.unlock();
    thread_.join();
    lock.lock();
  }
  SendQueue(lock, timeout);
}

void Outbox::Run() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    const TimePoint next = std::min(DueLocked(), upkeep_due_);
    if (const TimePoint now = Now(); next > now) {
      sleeps_until_ = next;
      if (next == TimePoint::max()) {
        wake_.wait(lock);
      } else {
        wake_.wait_until(lock, next);
      }
      sleeps_until_ = TimePoint::min();
      continue;
    }
    if (DueLocked() <= Now()) SendQueue(lock, timeout_);
    if (upkeep_due_ <= Now() && !stopped_) {
      upkeep_due_ = TimePoint::max();
      lock.unlock();
      const TimePoint again = upkeep_(Now());
      lock.lock();
      upkeep_due_ = std::min(upkeep_due_, again);
    }
  }
}

void Outbox::SendQueue(std::unique_lock<std::mutex>& lock, Duration timeout) {
  sent_.wait(lock, [this] { return !sending_; });
  if (queue_.empty()) return;
  sending_ = true;
  std::deque<Item> items = std::exchange(queue_, {});
  queued_bytes_ = 0;
  lock.unlock();
  const std::size_t count = items.size();
  std::vector<Client::LateError> failures;
  SendRuns(std::move(items), Now() + timeout, failures);
  lock.lock();
  KeepLocked(std::move(failures));
  pending_.fetch_sub(count, std::memory_order_release);
  sending_ = false;
  sent_.notify_all();
}

void Outbox::SendRuns(std::deque<Item> items, TimePoint deadline,
                      std::vector<Client::LateError>& failures) {
  std::vector<Item> run;
  for (auto at = items.begin(); at != items.end();) {
    run.clear();
    const bool free = at->free;
    for (; at != items.end() && at->free == free; ++at) run.push_back(std::move(*at));
    const std::vector<absl::Status> statuses = send_(run, deadline);
    HMM_CHECK(statuses.size() == run.size());
    for (std::size_t i = 0; i < run.size(); ++i) {
      if (statuses[i].ok()) continue;
      failures.push_back({run[i].tensor.handle(), std::move(run[i].key), statuses[i]});
    }
  }
}

void Outbox::KeepLocked(std::vector<Client::LateError> failures) {
  const std::size_t room =
      options_.failures_max - std::min(options_.failures_max, failures_.size());
  const std::size_t kept = std::min(room, failures.size());
  failures_.insert(failures_.end(), std::make_move_iterator(failures.begin()),
                   std::make_move_iterator(failures.begin() + static_cast<std::ptrdiff_t>(kept)));
  not_kept_ += failures.size() - kept;
}

}  // namespace hmm::client_internal
