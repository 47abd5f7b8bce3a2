// SPDX-License-Identifier: Apache-2.0
//
// The reclaimer where bytes are free but lie in pieces: empties the window that holds least.
#include <algorithm>

#include "hmm/reclaimer.h"

namespace hmm::core {
namespace {

constexpr unsigned kWindowsMax = 4;
// Coldest ones of a bottom tier that are looked at for a window, one bound after the other.
constexpr std::size_t kColdMost[] = {64, 512, 4096};
constexpr std::size_t kWindowLooksMax = 1u << 16;  // over all windows of one attempt

bool Inside(const tier::Tier::Window& window, const tier::Extent& extent) {
  return extent.segment == window.segment && extent.offset < window.offset + window.length &&
         extent.offset + extent.length > window.offset;
}

}  // namespace

Bytes Reclaimer::ClearWindow(TierId tier, const tier::Tier::Window& window, std::size_t& looks,
                             std::vector<TensorIndex>& victims) {
  const auto inside = [&](const tier::Extent& extent) { return Inside(window, extent); };
  Bytes freed = 0;
  const policy::LruList& ahead = store_.ahead(tier);
  for (TensorIndex at = ahead.Coldest(); at != kNoIndex && looks > 0; --looks) {
    const TensorIndex next = ahead.NextHotter(at);
    const tier::Extent extent = store_.home(at).extent;
    if (inside(extent) && TakeBack(at)) freed += extent.length;
    at = next;
  }
  for (CopyIndex at = store_.OldestClean(tier); at != kNoIndex && looks > 0; --looks) {
    const CopyIndex next = store_.NextClean(tier, at);
    if (inside(store_.copy(at).extent)) {
      freed += store_.copy(at).extent.length;
      ++counters_.clean_drops;
      store_.FreeCopy(at);
    }
    at = next;
  }
  const policy::LruList& list = store_.lru(tier);
  for (TensorIndex at = list.Coldest(); at != kNoIndex && looks > 0; at = list.NextHotter(at)) {
    if (inside(store_.home(at).extent)) victims.push_back(at);
    --looks;
  }
  return freed;
}

bool Reclaimer::DropColdWindow(TierId tier, Bytes length, Progress& progress) {
  if (Below(tier).has_value() || tiers_[tier]->mappable()) return false;
  std::vector<CopyIndex> copies;
  std::vector<TensorIndex> cold;
  std::vector<tier::Extent> extents;  // of both, in this order
  std::optional<tier::Tier::Window> window;
  for (const std::size_t most : kColdMost) {
    copies.clear(), cold.clear(), extents.clear();
    for (CopyIndex at = store_.OldestClean(tier); at != kNoIndex && copies.size() < most;
         at = store_.NextClean(tier, at)) {
      copies.push_back(at);
      extents.push_back(store_.copy(at).extent);
    }
    const policy::LruList& list = store_.lru(tier);
    for (TensorIndex at = list.Coldest(); at != kNoIndex && extents.size() < most;
         at = list.NextHotter(at)) {
      const Tensor& tensor = store_[at];
      if (tensor.holds > 0 || tensor.chances > 0 || !tensor.droppable) continue;
      cold.push_back(at);
      extents.push_back(store_.home(at).extent);
    }
    window = tiers_[tier]->FirstWindow(length, extents);
    if (window.has_value() || extents.size() < most) break;
  }
  if (!window.has_value()) return false;
  for (const CopyIndex at : copies) {
    if (!Inside(*window, store_.copy(at).extent)) continue;
    progress.freed += store_.copy(at).extent.length;
    ++counters_.clean_drops;
    store_.FreeCopy(at);
  }
  for (const TensorIndex at : cold) {
    const tier::Extent extent = store_.home(at).extent;
    if (!Inside(*window, extent)) continue;
    const Outcome outcome = Drop(at);
    if (outcome == Outcome::kFreed) progress.freed += extent.length;
    if (outcome == Outcome::kPinned) progress.saw_pinned = true;
  }
  return progress.freed > 0;
}

Reclaimer::Progress Reclaimer::MakeWindow(TierId tier, Bytes length) {
  Progress progress;
  if (relocator_.leaving_bytes(tier) > 0) return progress;  // first see what that gives
  const MoveJournal::Because why(journal_, MoveCause::kRoom, journal_.session());
  if (DropColdWindow(tier, length, progress)) return progress;
  std::vector<tier::Tier::Window> skip = fixed_[tier];
  std::size_t looks = kWindowLooksMax;
  for (unsigned tries = 0; tries < kWindowsMax; ++tries) {
    const auto window = tiers_[tier]->EmptiestWindow(length, skip);
    if (!window.has_value()) break;
    std::vector<TensorIndex> victims;
    progress.freed += ClearWindow(tier, *window, looks, victims);
    const bool held = std::any_of(victims.begin(), victims.end(), [&](TensorIndex at) {
      return store_[at].holds > 0 || sessions_.Pinned(store_[at]);
    });
    if (held) {
      progress.saw_pinned = true;
      skip.push_back(*window);
      continue;
    }
    RefusedByTier refused(tiers_.size());
    for (const TensorIndex victim : victims) {
      const Bytes bytes = store_.home(victim).extent.length;
      const Outcome outcome = Evict(victim, copy::Priority::kMakeRoom, refused);
      if (outcome == Outcome::kFreed) progress.freed += bytes;
      if (outcome == Outcome::kLeaving) progress.leaving += bytes;
      if (outcome == Outcome::kBlocked) progress.blocked = true;
    }
    if (progress.freed + progress.leaving > 0 || progress.blocked) return progress;
    skip.push_back(*window);
  }
  // No window to be had: fall back on recency, which ends when nothing unpinned is left.
  if (progress.freed > 0) return progress;
  return MakeRoom(tier, length, copy::Priority::kMakeRoom);
}

void Reclaimer::AddFixed(const Room& room) {
  fixed_[room.tier].push_back({room.extent.segment, room.extent.offset, room.extent.length});
}

void Reclaimer::RemoveFixed(const Room& room) {
  std::erase_if(fixed_[room.tier], [&](const tier::Tier::Window& window) {
    return window.segment == room.extent.segment && window.offset == room.extent.offset;
  });
}

}  // namespace hmm::core
