// SPDX-License-Identifier: Apache-2.0
#include "client/lib/magazine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "client/lib/attachment.h"

namespace hmm::client_internal {

Magazines::Shape Magazines::ShapeOf(const AllocateOptions& what) {
  return {what.bytes, what.kind, what.priority, what.recompute_cost.count(), what.droppable};
}

std::optional<Held> Magazines::Take(const Shape& shape, const AttachmentPtr& current,
                                    TimePoint now) {
  for (;;) {
    std::uint64_t handle = 0;
    {
      Debris debris;
      std::lock_guard lock(mutex_);
      if (home_ != nullptr && home_->lost()) debris = ClearLocked();
      auto found = magazines_.find(shape);
      if (found == magazines_.end()) {
        if (magazines_.size() >= options_.shapes_max) {
          const auto oldest = std::min_element(
              magazines_.begin(), magazines_.end(),
              [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
          if (oldest->second.asked > 0) return std::nullopt;
          ReturnLocked(oldest->first, oldest->second);
          magazines_.erase(oldest);
        }
        found = magazines_.emplace(shape, Magazine{}).first;
      }
      Magazine& magazine = found->second;
      ++magazine.asks;
      magazine.used = now;
      if (magazine.handles.empty() || home_ != current) return std::nullopt;
      if (keepers_.size() >= options_.untold_max) return std::nullopt;
      handle = magazine.handles.back();
      magazine.handles.pop_back();
      magazine.exhausted = magazine.handles.empty();
      bytes_ -= shape.bytes;
      if (magazine.asked == 0 && !magazine.low && !magazine.scarce &&
          magazine.handles.size() <= magazine.want / 2) {
        magazine.low = true;
        low_ = true;
        upkeep_wanted_.store(true, std::memory_order_relaxed);
      }
    }
    std::optional<Pin> pin = current->TryPin(handle);
    Pin keeper;
    if (pin.has_value()) keeper = current->Another(*pin);
    std::lock_guard lock(mutex_);
    if (home_ != current) return std::nullopt;  // lost meanwhile
    if (!pin.has_value()) {
      if (returned_.empty()) returned_since_ = now;
      returned_.push_back(handle);
      upkeep_wanted_.store(true, std::memory_order_relaxed);
      continue;
    }
    if (keepers_.empty()) {
      untold_since_ = now;
      upkeep_wanted_.store(true, std::memory_order_relaxed);
    }
    keepers_.insert_or_assign(handle, std::move(keeper));
    Held held;
    held.tensor = Attachment::MakeTensor(current, handle, shape.bytes);
    held.pin = *std::move(pin);
    return held;
  }
}

std::size_t Magazines::Want(const Shape& shape) {
  std::lock_guard lock(mutex_);
  const auto found = magazines_.find(shape);
  if (found == magazines_.end() || shape.bytes == 0) return 0;
  Magazine& magazine = found->second;
  if (magazine.asks < options_.asks_min || magazine.asked > 0 || !magazine.handles.empty()) {
    return 0;
  }
  return WantLocked(shape, magazine);
}

std::vector<Magazines::Wanted> Magazines::Low(const AttachmentPtr& attachment) {
  std::lock_guard lock(mutex_);
  std::vector<Wanted> out;
  if (home_ != attachment || !std::exchange(low_, false)) return out;
  for (auto& [shape, magazine] : magazines_) {
    if (!std::exchange(magazine.low, false)) continue;
    magazine.exhausted = true;  // as good as: it is used
    if (const std::size_t count = WantLocked(shape, magazine); count > 0) {
      out.push_back({shape, count});
    }
  }
  return out;
}

std::size_t Magazines::WantLocked(const Shape& shape, Magazine& magazine) {
  const Bytes used = bytes_ + wanted_;
  const Bytes fits = used >= options_.bytes_max ? 0 : (options_.bytes_max - used) / shape.bytes;
  if (magazine.want == 0) {
    magazine.want = options_.tensors_min;
  } else if (std::exchange(magazine.exhausted, false)) {
    magazine.want *= 2;
  }
  magazine.want = std::min(magazine.want, options_.tensors_max);
  const std::size_t lacks = magazine.want - std::min(magazine.want, magazine.handles.size());
  magazine.asked = static_cast<std::size_t>(std::min<Bytes>(lacks, fits));
  magazine.low = false;
  wanted_ += magazine.asked * shape.bytes;
  return magazine.asked;
}

void Magazines::Filled(const Shape& shape, const AttachmentPtr& attachment,
                       std::vector<std::uint64_t> handles, TimePoint now) {
  Debris debris;
  std::lock_guard lock(mutex_);
  const auto found = magazines_.find(shape);
  HMM_CHECK(found != magazines_.end() && found->second.asked > 0);
  Magazine& magazine = found->second;
  const std::size_t asked = std::exchange(magazine.asked, 0);
  wanted_ -= asked * shape.bytes;
  magazine.scarce = handles.size() < asked;
  if (attachment == nullptr || attachment->lost()) return;
  if (home_ != attachment) {
    // The daemon of the other is gone, or this answer came late and its own is.
    if (home_ != nullptr && !home_->lost()) return;
    if (home_ != nullptr) debris = ClearLocked();
    home_ = attachment;
  }
  magazine.used = now;
  bytes_ += handles.size() * shape.bytes;
  // Taken from the back; the daemon takes back the oldest first, so they are used up first too.
  std::reverse(handles.begin(), handles.end());
  handles.insert(handles.end(), magazine.handles.begin(), magazine.handles.end());
  magazine.handles = std::move(handles);
  if (!magazine.handles.empty()) upkeep_wanted_.store(true, std::memory_order_relaxed);
}

std::vector<std::uint64_t> Magazines::Untold(const AttachmentPtr& attachment) const {
  std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> handles;
  if (home_ != attachment) return handles;
  handles.reserve(keepers_.size());
  for (const auto& [handle, keeper] : keepers_) handles.push_back(handle);
  return handles;
}

bool Magazines::AnyUntold(std::span<const Tensor> tensors) const {
  std::lock_guard lock(mutex_);
  if (keepers_.empty()) return false;
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const Tensor& tensor) { return keepers_.contains(tensor.handle()); });
}

void Magazines::Told(std::span<const std::uint64_t> handles) {
  std::vector<Pin> going;
  std::lock_guard lock(mutex_);
  for (const std::uint64_t handle : handles) {
    const auto found = keepers_.find(handle);
    if (found == keepers_.end()) continue;
    going.push_back(std::move(found->second));
    keepers_.erase(found);
  }
}

std::vector<std::uint64_t> Magazines::Returned(const AttachmentPtr& attachment, TimePoint now) {
  std::lock_guard lock(mutex_);
  if (home_ != attachment) return {};
  for (auto& [shape, magazine] : magazines_) {
    if (!magazine.handles.empty() && now - magazine.used >= options_.idle) {
      ReturnLocked(shape, magazine);
    }
  }
  return std::exchange(returned_, {});
}

void Magazines::ReturnLocked(const Shape& shape, Magazine& magazine) {
  bytes_ -= magazine.handles.size() * shape.bytes;
  returned_.insert(returned_.end(), magazine.handles.begin(), magazine.handles.end());
  magazine.handles.clear();
  magazine.low = false;
  magazine.want = 0;
  magazine.asks = 0;
}

TimePoint Magazines::NextUpkeep() const {
  std::lock_guard lock(mutex_);
  TimePoint next = TimePoint::max();
  if (home_ == nullptr) return next;
  if (low_) return TimePoint::min();
  if (!keepers_.empty()) next = untold_since_ + options_.tell_after;
  if (!returned_.empty()) next = std::min(next, TimePoint(returned_since_ + options_.tell_after));
  for (const auto& [shape, magazine] : magazines_) {
    if (!magazine.handles.empty()) next = std::min(next, TimePoint(magazine.used + options_.idle));
  }
  return next;
}

bool Magazines::TellDue(TimePoint now) const {
  std::lock_guard lock(mutex_);
  return !keepers_.empty() && now - untold_since_ >= options_.tell_after;
}

Magazines::Debris Magazines::ClearLocked() {
  Debris debris{std::move(home_), {}};
  home_ = nullptr;
  for (auto& [handle, keeper] : keepers_) debris.keepers.push_back(std::move(keeper));
  keepers_.clear();
  returned_.clear();
  bytes_ = 0;
  for (auto& [shape, magazine] : magazines_) {
    magazine.handles.clear();
    magazine.low = false;
    magazine.asks = 0;
    magazine.want = 0;
  }
  low_ = false;
  return debris;
}

void Magazines::Clear() {
  Debris debris;
  std::lock_guard lock(mutex_);
  debris = ClearLocked();
}

}  // namespace hmm::client_internal
