// SPDX-License-Identifier: Apache-2.0
//
// Empties ranges of a tier: what lies there moves within the tier, out of all of these ranges;
// clean copies are dropped. Resizing and compaction do this; they choose the ranges.
//
//   List (some copies a call) -> Move (some tensors a call) -> settled
//
// What comes into a range after its copies were listed is not seen: whoever chose it looks again.
// One thread (the executor's).
#pragma once

#include <vector>

#include "hmm/core.h"

namespace hmm::core {

class WindowSweep {
 public:
  using Windows = std::vector<tier::Tier::Window>;

  WindowSweep(Core& core, TierId tier, Windows windows, bool may_demote);

  // True: nothing is left to do; each range is empty as far as it was listed, or given up. Kicks
  // the core where it could go on at once.
  bool Step();

  const Windows& windows() const { return windows_; }
  // Still looking for what lies in them.
  bool listing() const { return listing_; }
  // Ranges that pins (or what has no other place) keep from being emptied.
  const Windows& given_up() const { return given_up_; }
  // Whether anything lay in them: else what is in the way is nobody's copy, and one has to wait.
  bool found_any() const { return found_any_; }
  bool saw_pinned() const { return saw_pinned_; }
  std::uint64_t moved_tensors() const { return moved_; }
  Bytes moved_bytes() const { return moved_bytes_; }

 private:
  enum class Fate { kGone, kWait, kStarted, kKept };
  struct Entry {
    CopyIndex copy = kNoIndex;
    std::size_t window = 0;
    bool started = false;
  };
  // Index into windows_, windows_.size() when it lies in none.
  std::size_t WindowOf(const tier::Extent& extent) const;
  bool ListSome();
  Fate Look(Entry& entry);
  Fate Relocate(TensorIndex index, const tier::Extent& from);

  Core& core_;
  const TierId tier_;
  const Windows windows_;  // by segment and offset
  const bool may_demote_;
  bool listing_ = true;
  std::size_t listed_ = 0;  // copies looked at
  std::vector<Entry> entries_;
  std::vector<bool> kept_;  // by window: given up
  Windows given_up_;
  bool found_any_ = false;
  bool saw_pinned_ = false;
  std::uint64_t moved_ = 0;
  Bytes moved_bytes_ = 0;
};

}  // namespace hmm::core
