// SPDX-License-Identifier: Apache-2.0
#include "tier/extent_allocator.h"

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

std::optional<Range> ExtentAllocator::FreeRangeAt(Bytes offset) const {
  auto at = by_offset_.upper_bound(offset);
  if (at == by_offset_.begin()) return std::nullopt;
  --at;
  const Range range{at->first, at->second};
  if (offset >= range.end()) return std::nullopt;
  return range;
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
