// SPDX-License-Identifier: Apache-2.0
//
// Pin, Timeline and Tensor: the part of the client that runs without an RPC.
#include <utility>

#include "base/status.h"
#include "client/lib/attachment.h"
#include "client/lib/fork_guard.h"
#include "hmm/client.h"

namespace hmm {

using client_internal::Attachment;

Pin::Pin(Pin&& other) noexcept
    : attachment_(other.attachment_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      slot_(other.slot_),
      tier_(other.tier_),
      found_tier_(other.found_tier_) {}

Pin& Pin::operator=(Pin&& other) noexcept {
  if (this != &other) {
    // The old pin goes with `old`, after the new one is in place.
    Pin old(std::move(*this));
    attachment_ = other.attachment_;
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    slot_ = other.slot_;
    tier_ = other.tier_;
    found_tier_ = other.found_tier_;
  }
  return *this;
}

Pin::~Pin() {
  if (data_ != nullptr && !attachment_->forked()) attachment_->Unpin(slot_);
}

std::string_view Pin::tier() const {
  return data_ == nullptr ? std::string_view() : attachment_->TierName(tier_);
}

std::string_view Pin::found_tier() const {
  return data_ == nullptr ? std::string_view() : attachment_->TierName(found_tier_);
}

absl::Status Pin::Release() {
  if (data_ == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kNotPinned,
                 "the pin was given back before");
  }
  if (attachment_->forked()) return client_internal::ForkedError();
  Pin dropped(std::move(*this));
  return absl::OkStatus();
}

absl::Status Pin::ReleaseAt(const Timeline& timeline, std::uint64_t value) {
  if (data_ == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kNotPinned,
                 "the pin was given back before");
  }
  if (attachment_->forked()) return client_internal::ForkedError();
  if (timeline.attachment_.get() != attachment_) {
    return Error(
        absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
        "the timeline is empty, another Client's, or older than the daemon's last restart");
  }
  // Ours until it is armed; timeline keeps the attachment alive meanwhile.
  const absl::Status armed = attachment_->UnpinAt(slot_, timeline.index_, value);
  if (armed.ok()) data_ = nullptr;
  return armed;
}

std::uint64_t Timeline::value() const {
  return attachment_ == nullptr || attachment_->forked() ? 0 : attachment_->TimelineValue(index_);
}

void Timeline::Signal(std::uint64_t value) {
  if (attachment_ != nullptr && !attachment_->forked()) attachment_->Signal(index_, value);
}

std::uint64_t* Timeline::word() const {
  return attachment_ == nullptr ? nullptr : attachment_->TimelineAddress(index_);
}

bool Tensor::lost() const { return attachment_ != nullptr && attachment_->lost(); }

std::optional<Pin> Tensor::TryPin() const {
  if (attachment_ == nullptr) return std::nullopt;
  return attachment_->TryPin(handle_);
}

}  // namespace hmm
