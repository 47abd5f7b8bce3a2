// SPDX-License-Identifier: Apache-2.0
#include "tier/extent_allocator.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace hmm::tier {
namespace {

absl::Status Broken(const char* rule, Range range) {
  return Error(
      absl::StatusCode::kInternal, Reason::kInternal,
      absl::StrCat("extent allocator: range {", range.offset, ", ", range.length, "} ", rule));
}

// In order of offsets, overlapping and adjacent ones made one, empty and wrapping ones left out.
std::vector<Range> Merged(std::vector<Range> ranges) {
  std::erase_if(ranges, [](const Range& range) {
    return range.length == 0 || range.length > std::numeric_limits<Bytes>::max() - range.offset;
  });
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.offset < b.offset; });
  std::vector<Range> merged;
  for (const Range& range : ranges) {
    if (merged.empty() || merged.back().end() < range.offset) {
      merged.push_back(range);
    } else {
      merged.back().length = std::max(merged.back().end(), range.end()) - merged.back().offset;
    }
  }
  return merged;
}

}  // namespace

ExtentAllocator::ExtentAllocator(Bytes granularity) : granularity_(granularity) {
  HMM_CHECK(std::has_single_bit(granularity));
}

bool ExtentAllocator::AddFree(Range range) {
  HMM_CHECK(range.length > 0 && range.offset % granularity_ == 0 &&
            range.length % granularity_ == 0);
  HMM_CHECK(range.length <= std::numeric_limits<Bytes>::max() - range.offset);
  if (Overlaps(range)) {
    if (!freed_twice_.has_value()) freed_twice_ = range;
    return false;
  }
  const auto after = by_offset_.find(range.end());
  if (after != by_offset_.end()) {
    range.length += after->second;
    Erase(after);
  }
  auto before = by_offset_.lower_bound(range.offset);
  if (before != by_offset_.begin()) {
    --before;
    if (before->first + before->second == range.offset) {
      range = {before->first, before->second + range.length};
      Erase(before);
    }
  }
  Insert(range);
  return true;
}

std::optional<Range> ExtentAllocator::Allocate(Bytes length) {
  HMM_CHECK(length > 0 && length % granularity_ == 0);
  const auto fit = by_length_.lower_bound({length, 0});
  if (fit == by_length_.end()) return std::nullopt;
  const Range range{fit->second, length};
  Take(by_offset_.find(range.offset), range);
  return range;
}

bool ExtentAllocator::Carve(Range range) {
  if (range.length == 0 || range.offset % granularity_ != 0 || range.length % granularity_ != 0 ||
      range.length > std::numeric_limits<Bytes>::max() - range.offset) {
    return false;
  }
  const auto holder = Holder(range);
  if (holder == by_offset_.end()) return false;
  Take(holder, range);
  return true;
}

std::optional<Range> ExtentAllocator::AllocateOutside(Bytes length, Bytes limit,
                                                      const std::vector<Range>& avoid,
                                                      absl::FunctionRef<bool(Range)> accept) {
  std::optional<Range> found;
  VisitFits(length, [&](Range free) {
    const Bytes end = std::min(free.end(), limit);
    if (end < free.offset + length) return true;
    auto take = [&](std::optional<Bytes> at) {
      if (!at.has_value() || !accept({*at, length})) return false;
      found = Range{*at, length};
      return true;
    };
    const Bytes last = end - length;
    return !take(LowestOutside(free.offset, last, length, avoid)) &&
           !take(HighestOutside(free.offset, last, length, avoid));
  });
  if (found.has_value()) HMM_CHECK(Carve(*found));
  return found;
}

// Past each range in the way, again.
std::optional<Bytes> ExtentAllocator::LowestOutside(Bytes first, Bytes last, Bytes length,
                                                    const std::vector<Range>& avoid) const {
  for (bool moved = true; moved;) {
    moved = false;
    for (const Range& range : avoid) {
      if (first >= range.end() || range.offset >= first + length) continue;
      first = RoundUp(range.end(), granularity_);
      if (first > last) return std::nullopt;
      moved = true;
    }
  }
  return first;
}

std::optional<Bytes> ExtentAllocator::HighestOutside(Bytes first, Bytes last, Bytes length,
                                                     const std::vector<Range>& avoid) const {
  last = RoundDown(last, granularity_);  // a limit may lie anywhere
  for (bool moved = true; moved;) {
    moved = false;
    for (const Range& range : avoid) {
      if (last >= range.end() || range.offset >= last + length) continue;
      if (range.offset < first + length) return std::nullopt;
      last = RoundDown(range.offset - length, granularity_);
      moved = true;
    }
  }
  return last;
}

std::optional<Range> ExtentAllocator::FreeRangeAt(Bytes offset) const {
  auto at = by_offset_.upper_bound(offset);
  if (at == by_offset_.begin()) return std::nullopt;
  --at;
  const Range range{at->first, at->second};
  if (offset >= range.end()) return std::nullopt;
  return range;
}

std::optional<Range> ExtentAllocator::EmptiestWindow(Bytes length, Bytes limit,
                                                     const std::vector<Range>& skip) const {
  if (length == 0 || length > limit) return std::nullopt;
  // As a window slides, its free bytes change slope only where one of its ends meets an edge of a
  // free range, and it is stopped only by edges of what is skipped: the best one touches an edge.
  std::vector<Bytes> starts = {0, limit - length};
  auto add = [&](Bytes edge) {
    if (edge <= limit - length) starts.push_back(edge);
    if (edge >= length && edge <= limit) starts.push_back(edge - length);
  };
  std::vector<Range> free;
  std::vector<Bytes> free_before;  // sum of the ranges before each one
  Bytes sum = 0;
  VisitFree([&](Range range) {
    add(range.offset);
    add(range.end());
    free.push_back(range);
    free_before.push_back(sum);
    sum += range.length;
  });
  for (const Range& range : skip) {
    if (range.length > std::numeric_limits<Bytes>::max() - range.offset) continue;
    add(RoundDown(range.offset, granularity_));
    if (range.end() <= limit) add(RoundUp(range.end(), granularity_));
  }
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());

  // Free bytes below `at`.
  auto free_below = [&](Bytes at) -> Bytes {
    const auto it = std::upper_bound(free.begin(), free.end(), at,
                                     [](Bytes value, Range range) { return value < range.offset; });
    if (it == free.begin()) return 0;
    const auto index = static_cast<std::size_t>(it - free.begin()) - 1;
    return free_before[index] + std::min(at - free[index].offset, free[index].length);
  };
  const auto blocked = Merged(skip);
  auto overlaps = [&](Bytes start) {
    const auto it = std::lower_bound(blocked.begin(), blocked.end(), start,
                                     [](Range range, Bytes value) { return range.end() <= value; });
    return it != blocked.end() && it->offset < start + length;
  };
  std::optional<Range> best;
  Bytes best_used = 0;
  for (const Bytes start : starts) {
    const Bytes used = length - (free_below(start + length) - free_below(start));
    if (used == 0 || (best.has_value() && used >= best_used) || overlaps(start)) continue;
    best = Range{start, length};
    best_used = used;
  }
  return best;
}

std::optional<Range> ExtentAllocator::FirstFit(Bytes length,
                                               const std::vector<Range>& leaving) const {
  // What leaves, joined with the free ranges beside it: end by offset. A free range beside two of
  // them went to the first, so that they meet.
  absl::btree_map<Bytes, Bytes> runs;
  for (const Range& range : leaving) {
    Bytes begin = range.offset;
    Bytes end = range.end();
    auto next = runs.lower_bound(begin);
    if (next != runs.begin() && std::prev(next)->second == begin) {
      begin = std::prev(next)->first;
      runs.erase(begin);
    } else if (begin > 0) {
      if (const auto free = FreeRangeAt(begin - 1)) begin = free->offset;
    }
    if (const auto after = runs.find(end); after != runs.end()) {
      end = after->second;
      runs.erase(after);
    } else if (const auto free = FreeRangeAt(end)) {
      end = free->end();
    }
    if (end - begin >= length) {
      const Bytes first = range.end() > length ? range.end() - length : 0;
      return Range{std::min(std::max(begin, first), end - length), length};
    }
    runs.emplace(begin, end);
  }
  return std::nullopt;
}

absl::Status ExtentAllocator::Validate() const {
  if (freed_twice_.has_value()) return Broken("was given back while free", *freed_twice_);
  Bytes sum = 0;
  Range last;
  for (const auto& [offset, length] : by_offset_) {
    const Range range{offset, length};
    if (length == 0 || offset % granularity_ != 0 || length % granularity_ != 0) {
      return Broken("is empty or off the granularity", range);
    }
    if (last.length > 0 && offset < last.end()) return Broken("overlaps its neighbour", range);
    if (last.length > 0 && offset == last.end()) return Broken("is not coalesced", range);
    if (!by_length_.contains({length, offset})) return Broken("is missing by length", range);
    sum += length;
    last = range;
  }
  if (by_length_.size() != by_offset_.size()) {
    return Broken("is the last of trees that differ in size", last);
  }
  if (sum != free_bytes_) return Broken("is the last of ranges whose sum is wrong", last);
  return absl::OkStatus();
}

bool ExtentAllocator::Overlaps(Range range) const {
  const auto after = by_offset_.lower_bound(range.offset);
  if (after != by_offset_.end() && after->first < range.end()) return true;
  if (after == by_offset_.begin()) return false;
  const auto before = std::prev(after);
  return before->first + before->second > range.offset;
}

ExtentAllocator::ByOffset::iterator ExtentAllocator::Holder(Range range) {
  auto at = by_offset_.upper_bound(range.offset);
  if (at == by_offset_.begin()) return by_offset_.end();
  --at;
  return at->first + at->second >= range.end() ? at : by_offset_.end();
}

void ExtentAllocator::Insert(Range range) {
  by_offset_.emplace(range.offset, range.length);
  by_length_.emplace(range.length, range.offset);
  free_bytes_ += range.length;
}

void ExtentAllocator::Erase(ByOffset::iterator at) {
  free_bytes_ -= at->second;
  by_length_.erase({at->second, at->first});
  by_offset_.erase(at);
}

void ExtentAllocator::Take(ByOffset::iterator from, Range range) {
  const Range whole{from->first, from->second};
  Erase(from);
  if (range.offset > whole.offset) Insert({whole.offset, range.offset - whole.offset});
  if (range.end() < whole.end()) Insert({range.end(), whole.end() - range.end()});
}

}  // namespace hmm::tier
