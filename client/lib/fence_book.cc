// SPDX-License-Identifier: Apache-2.0
#include "client/lib/fence_book.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "share/pin.h"

namespace hmm::client_internal {

absl::StatusOr<std::uint32_t> FenceBook::NewTimeline() {
  std::lock_guard lock(mutex_);
  if (timelines_ < share::kTimelines) return timelines_++;
  return Error(absl::StatusCode::kResourceExhausted, Reason::kQuota,
               absl::StrCat("the session has all of its ", share::kTimelines, " timelines"));
}

absl::Status FenceBook::Arm(std::uint32_t slot, std::uint32_t timeline, std::uint64_t value) {
  std::lock_guard lock(mutex_);
  const auto ticket = share::ArmFence(area_, slot, timeline, value);
  if (!ticket.has_value()) {
    return WithRetry(
        Error(absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
              absl::StrCat("all ", share::kFences, " fences of the session wait for their values")),
        std::chrono::milliseconds(1));
  }
  armed_.push_back(*ticket);
  return absl::OkStatus();
}

std::size_t FenceBook::Sweep(bool daemon_gone) {
  std::lock_guard lock(mutex_);
  return std::erase_if(armed_, [this, daemon_gone](const share::FenceTicket& ticket) {
    share::FenceEntry& entry = area_.entries[ticket.entry];
    const std::uint64_t word = entry.state.load(std::memory_order_acquire);
    if (share::SequenceOf(word) != ticket.sequence) return true;  // the daemon ended it
    // It died between the two; nobody but us looks at the pin any more.
    if (daemon_gone && share::StateOf(word) == share::FenceState::kTaken) return true;
    const std::optional<std::uint32_t> slot = share::TakeFence(area_, entry);
    if (!slot.has_value()) return false;  // or the daemon is about to
    share::Unpin(words_[*slot]);
    share::FreeFence(entry);
    return true;
  });
}

}  // namespace hmm::client_internal
