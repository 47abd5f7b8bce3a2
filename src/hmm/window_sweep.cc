// SPDX-License-Identifier: Apache-2.0
#include "hmm/window_sweep.h"

#include <algorithm>

#include "base/status.h"

namespace hmm::core {
namespace {

constexpr std::size_t kCopiesPerLook = 8192;  // some nanoseconds each
constexpr std::size_t kMovesAtOnce = 32;
constexpr std::size_t kStartsPerLook = 16;

bool Before(const tier::Tier::Window& a, const tier::Tier::Window& b) {
  return a.segment != b.segment ? a.segment < b.segment : a.offset < b.offset;
}

WindowSweep::Windows Sorted(WindowSweep::Windows windows) {
  std::sort(windows.begin(), windows.end(), Before);
  return windows;
}

}  // namespace

WindowSweep::WindowSweep(Core& core, TierId tier, Windows windows, bool may_demote)
    : core_(core),
      tier_(tier),
      windows_(Sorted(std::move(windows))),
      may_demote_(may_demote),
      kept_(windows_.size(), false) {}

std::size_t WindowSweep::WindowOf(const tier::Extent& extent) const {
  // The last that begins before the extent ends.
  const tier::Tier::Window end{extent.segment, extent.offset + extent.length, 0};
  const auto it = std::lower_bound(windows_.begin(), windows_.end(), end, Before);
  if (it == windows_.begin()) return windows_.size();
  const auto& last = *std::prev(it);
  const bool inside = last.segment == extent.segment && last.offset + last.length > extent.offset;
  return inside ? static_cast<std::size_t>(std::prev(it) - windows_.begin()) : windows_.size();
}

bool WindowSweep::ListSome() {
  const std::size_t end = std::min(core_.store.copy_count(), listed_ + kCopiesPerLook);
  for (; listed_ < end; ++listed_) {
    const Copy& copy = core_.store.copy(static_cast<CopyIndex>(listed_));
    if (copy.role == Copy::Role::kNone || copy.tier != tier_) continue;
    const std::size_t window = WindowOf(copy.extent);
    if (window == windows_.size()) continue;
    found_any_ = true;
    entries_.push_back({static_cast<CopyIndex>(listed_), window, false});
  }
  return listed_ >= core_.store.copy_count();
}

WindowSweep::Fate WindowSweep::Relocate(TensorIndex index, const tier::Extent& from) {
  tier::Tier& medium = *core_.tiers[tier_];
  const Tensor& tensor = core_.store[index];
  if (core_.sessions.Pinned(tensor)) {
    saw_pinned_ = true;
    return Fate::kKept;
  }
  auto extent = medium.AllocateOutside(tensor.tenant, from, tier::ByteState::kReserved, windows_);
  if (!extent.ok()) {
    return may_demote_ && core_.reclaimer.Demote(index) ? Fate::kStarted : Fate::kKept;
  }
  const Bytes bytes = tensor.bytes;
  const absl::Status started = core_.relocator.Start(index, {Room{tier_, tensor.tenant, *extent}},
                                                     copy::Priority::kBackground);
  if (started.ok()) {
    ++moved_;
    moved_bytes_ += bytes;
    return Fate::kStarted;
  }
  if (ReasonOf(started) == Reason::kPinned) {
    saw_pinned_ = true;
    return Fate::kKept;
  }
  return Fate::kWait;  // the queue is full
}

WindowSweep::Fate WindowSweep::Look(Entry& entry) {
  const Copy& copy = core_.store.copy(entry.copy);
  // A record is used again once its copy is gone: then it may be anything, anywhere.
  if (copy.role == Copy::Role::kNone || copy.tier != tier_ ||
      WindowOf(copy.extent) != entry.window) {
    return Fate::kGone;
  }
  if (copy.role == Copy::Role::kClean) {
    core_.store.FreeCopy(entry.copy);
    ++core_.counters.clean_drops;
    return Fate::kGone;
  }
  if (copy.role != Copy::Role::kHome) return Fate::kWait;  // with a copier; it ends
  const Tensor& tensor = core_.store[copy.tensor];
  switch (tensor.state) {
    case TensorState::kMoving:
      return Fate::kWait;
    case TensorState::kDoomed:
      saw_pinned_ = true;
      return Fate::kKept;
    case TensorState::kCreating:  // its writer pins it, or put it down
    case TensorState::kResident:
    case TensorState::kAbsent:
      break;
    case TensorState::kGone:
      return Fate::kGone;
  }
  if (tensor.ahead && core_.reclaimer.TakeBack(copy.tensor)) return Fate::kGone;
  if (tensor.lost) return Fate::kKept;
  if (tensor.holds > 0) return Fate::kWait;
  return Relocate(copy.tensor, copy.extent);
}

bool WindowSweep::Step() {
  if (listing_) {
    listing_ = !ListSome();
    core_.Kick();
    return false;
  }
  std::size_t starts = 0;
  std::size_t under_way = 0;
  for (std::size_t i = 0; i < entries_.size();) {
    Entry& entry = entries_[i];
    const bool may_start = starts < kStartsPerLook && under_way < kMovesAtOnce;
    Fate fate = Fate::kGone;
    if (!kept_[entry.window]) fate = may_start ? Look(entry) : Fate::kWait;
    if (fate == Fate::kKept) {
      // One that stays keeps the whole range from being given back: leave the others in it alone.
      kept_[entry.window] = true;
      given_up_.push_back(windows_[entry.window]);
      fate = Fate::kGone;
    }
    starts += fate == Fate::kStarted;
    under_way += fate == Fate::kStarted || fate == Fate::kWait;
    if (fate == Fate::kGone) {
      entries_[i] = entries_.back();
      entries_.pop_back();
    } else {
      ++i;
    }
    if (!may_start && i >= kMovesAtOnce) break;  // the rest has its turn
  }
  return entries_.empty();
}

}  // namespace hmm::core
