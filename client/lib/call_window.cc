// SPDX-License-Identifier: Apache-2.0
#include "client/lib/call_window.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/status.h"

namespace hmm::client_internal {

absl::StatusOr<CallWindow::Ids> CallWindow::Begin() {
  std::lock_guard lock(mutex_);
  if (outstanding_.size() >= limit_) {
    return WithRetry(Error(absl::StatusCode::kUnavailable, Reason::kQueueFull,
                           "too many pinning calls of this client are under way"),
                     std::chrono::milliseconds(10));
  }
  const std::uint64_t id = next_++;
  outstanding_.insert(outstanding_.end(), id);
  return Ids{id, OldestLocked()};
}

void CallWindow::End(std::uint64_t call_id, bool ok) {
  std::lock_guard lock(mutex_);
  HMM_CHECK(outstanding_.contains(call_id));
  if (ok) {
    outstanding_.erase(call_id);
    return;
  }
  owed_.push_back(call_id);
  changed_.notify_all();
}

std::optional<CallWindow::Ids> CallWindow::WaitForOwed() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !owed_.empty(); });
  if (closed_) return std::nullopt;
  return Ids{owed_.front(), OldestLocked()};
}

void CallWindow::Released(std::uint64_t call_id) {
  std::lock_guard lock(mutex_);
  const auto at = std::find(owed_.begin(), owed_.end(), call_id);
  HMM_CHECK(at != owed_.end());
  owed_.erase(at);
  outstanding_.erase(call_id);
  changed_.notify_all();
}

bool CallWindow::Pause(Duration pause) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, pause, [this] { return closed_; });
}

bool CallWindow::WaitUntilNoneOwed(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return owed_.empty(); });
}

bool CallWindow::owes() const {
  std::lock_guard lock(mutex_);
  return !owed_.empty();
}

void CallWindow::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace hmm::client_internal
