// SPDX-License-Identifier: Apache-2.0
//
// Hands out offsets of an address range whose memory it never touches: all metadata is its own, and
// only *free* ranges have any, so a million allocated extents cost nothing here.
//
//   0        4        8        12       16   (units of granularity)
//   [ A      |  free  |   B    |  free   ]   free ranges: {4,4}, {12,4}
//
// Best fit: the shortest free range that is long enough, the lowest offset among equals; the rest
// of it stays free. Freeing coalesces with both neighbours. Two ordered trees hold the free ranges,
// by offset and by length, so every operation is O(log n) in their number and "no room" is exact.
// Deterministic: the same calls give the same offsets.
//
// One thread (the executor's).
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/units.h"

namespace hmm::tier {

struct Range {
  Bytes offset = 0;
  Bytes length = 0;
  Bytes end() const { return offset + length; }
  friend bool operator==(const Range&, const Range&) = default;
};

class ExtentAllocator {
 public:
  // Starts without any free range: AddFree gives it some. Offsets and lengths are multiples of
  // `granularity` (a power of two).
  explicit ExtentAllocator(Bytes granularity);

  // Adds [offset, offset + length) to the free ranges (new room, or an extent given back).
  // REQUIRES: disjoint from every free range. A caller that breaks this (frees twice) gets false,
  // nothing changes, and Validate reports it from then on.
  bool AddFree(Range range);

  // Takes a free range of exactly `length` (a multiple of the granularity, > 0). nullopt when no
  // free range is long enough (fragmentation included).
  std::optional<Range> Allocate(Bytes length);

  // As Allocate, but below `limit` and outside `avoid`: at the lowest place of a free range where
  // this is so, or else at its highest, whichever `accept` takes. O(free ranges) at worst.
  std::optional<Range> AllocateOutside(
      Bytes length, Bytes limit, const std::vector<Range>& avoid,
      absl::FunctionRef<bool(Range)> accept = [](Range) { return true; });

  // Carves out [offset, offset + length), so that it is no longer handed out. False, and nothing
  // changes, unless all of it is free.
  bool Carve(Range range);

  // The free range that contains `offset`, if any.
  std::optional<Range> FreeRangeAt(Bytes offset) const;

  // The range of `length` within [0, limit) that overlaps none of `skip` and has the least bytes in
  // use, but some: where to make room when all that is free is in pieces. The lowest among equals.
  std::optional<Range> EmptiestWindow(Bytes length, Bytes limit,
                                      const std::vector<Range>& skip) const;

  // A range of `length` that would be free if the first ones of `leaving`, as few of them as do,
  // were free too; the last of these lies in it. REQUIRES: disjoint, none of them free.
  std::optional<Range> FirstFit(Bytes length, const std::vector<Range>& leaving) const;

  // Calls `visit(range)` for each free range of at least `length`, tightest first, until it returns
  // false. The allocator must not be changed meanwhile.
  template <typename Visit>
  void VisitFits(Bytes length, Visit visit) const {
    for (auto it = by_length_.lower_bound({length, 0}); it != by_length_.end(); ++it) {
      if (!visit(Range{it->second, it->first})) return;
    }
  }
  // Calls `visit(range)` for each free range in the order of offsets.
  template <typename Visit>
  void VisitFree(Visit visit) const {
    for (const auto& [offset, length] : by_offset_) visit(Range{offset, length});
  }

  Bytes granularity() const { return granularity_; }
  Bytes free_bytes() const { return free_bytes_; }
  Bytes largest_free() const { return by_length_.empty() ? 0 : by_length_.rbegin()->first; }
  std::size_t free_ranges() const { return by_offset_.size(); }

  // The self check: ranges disjoint, coalesced, in both trees, sums right, nothing freed twice.
  // Says which rule broke.
  absl::Status Validate() const;

 private:
  using ByOffset = absl::btree_map<Bytes, Bytes>;  // offset -> length

  bool Overlaps(Range range) const;
  // Where `length` lies outside `avoid`, if it begins in [first, last].
  std::optional<Bytes> LowestOutside(Bytes first, Bytes last, Bytes length,
                                     const std::vector<Range>& avoid) const;
  std::optional<Bytes> HighestOutside(Bytes first, Bytes last, Bytes length,
                                      const std::vector<Range>& avoid) const;
  // The free range that holds all of `range`; end() if there is none.
  ByOffset::iterator Holder(Range range);
  void Insert(Range range);
  void Erase(ByOffset::iterator at);
  void Take(ByOffset::iterator from, Range range);

  Bytes granularity_;
  Bytes free_bytes_ = 0;
  ByOffset by_offset_;
  absl::btree_set<std::pair<Bytes, Bytes>> by_length_;  // {length, offset}
  std::optional<Range> freed_twice_;                    // the first one
};

}  // namespace hmm::tier
