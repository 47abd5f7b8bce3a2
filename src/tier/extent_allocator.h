// SPDX-License-Identifier: Apache-2.0
//
// Hands out offsets of an address range whose memory it never touches: all metadata is its own, and
// only *free* ranges have any, so a million allocated extents cost nothing here.
//
//   0        4        8        12       16   (units of granularity)
//   [ A      |  free  |   B    |  free   ]   free ranges: {4,4}, {12,4}
//
// Good fit: free ranges lie in size classes (8 per power of two, found by bitmap); an allocation
// takes from the first class whose every range fits, and among the first few ranges of its own class
// one that fits exactly. Freeing coalesces with both neighbours. All operations are O(1) but for the
// hash lookups of neighbours. Deterministic: the same calls give the same offsets.
//
// One thread (the executor's).
#pragma once

#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/units.h"

namespace hmm::tier {

struct Range {
  Bytes offset = 0;
  Bytes length = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

class ExtentAllocator {
 public:
  // Starts without any free range: AddFree gives it some. Offsets and lengths are multiples of
  // `granularity` (a power of two).
  explicit ExtentAllocator(Bytes granularity);

  // Adds [offset, offset + length) to the free ranges (new room, or an extent given back).
  // REQUIRES: disjoint from every free range.
  void AddFree(Range range);

  // Takes a free range of exactly `length` (a multiple of the granularity, > 0). nullopt when no
  // free range is long enough (fragmentation included).
  std::optional<Range> Allocate(Bytes length);

  // Carves out [offset, offset + length), so that it is no longer handed out. False, and nothing
  // changes, unless all of it is free.
  bool Carve(Range range);

  // The free range that contains `offset`, if any. O(number of free ranges); for audits and tests.
  std::optional<Range> FreeRangeAt(Bytes offset) const;

  Bytes free_bytes() const { return free_bytes_; }
  Bytes largest_free() const;
  std::size_t free_ranges() const;

  // The self check: ranges disjoint, coalesced, in their class, sums right. Says which rule broke.
  absl::Status Validate() const;

 private:
  // The builder of this class decides what stands here.
};

}  // namespace hmm::tier
