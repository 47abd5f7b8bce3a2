// SPDX-License-Identifier: Apache-2.0
#include "plan/layout_validate.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace hmm::plan {
namespace {

// Whether it lives at `time`.
bool LivesAt(const Interval& interval, std::int64_t time) {
  if (time < interval.begin || time >= interval.end) return false;
  return std::none_of(interval.gaps.begin(), interval.gaps.end(),
                      [time](const TimeSpan& gap) { return gap.begin <= time && time < gap.end; });
}

// Whether b lives at some moment at which a life or a part of a life of a begins.
bool MeetsAtBeginningsOf(const Interval& a, const Interval& b) {
  if (LivesAt(b, a.begin)) return true;
  return std::any_of(a.gaps.begin(), a.gaps.end(),
                     [&b](const TimeSpan& gap) { return LivesAt(b, gap.end); });
}

// If two intervals are ever alive together, a part of one of them begins while the other lives.
bool LiveTogether(const Interval& a, const Interval& b) {
  return MeetsAtBeginningsOf(a, b) || MeetsAtBeginningsOf(b, a);
}

}  // namespace

LayoutFault ValidateLayout(const LayoutProblem& problem, const LayoutResult& result) {
  const std::vector<Interval>& all = problem.intervals;
  const std::vector<Bytes>& offsets = result.offsets;
  if (offsets.size() != all.size()) return {.rule = LayoutRule::kCount};
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (offsets[i] % all[i].alignment != 0 || offsets[i] % problem.alignment != 0) {
      return {.rule = LayoutRule::kAlignment, .first = i, .second = i};
    }
  }
  Bytes top = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (offsets[i] > problem.capacity || all[i].bytes > problem.capacity - offsets[i]) {
      return {.rule = LayoutRule::kBounds, .first = i, .second = i};
    }
    top = std::max(top, offsets[i] + all[i].bytes);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = i + 1; j < all.size(); ++j) {
      const bool share_bytes =
          offsets[i] < offsets[j] + all[j].bytes && offsets[j] < offsets[i] + all[i].bytes;
      if (share_bytes && LiveTogether(all[i], all[j])) {
        return {.rule = LayoutRule::kOverlap, .first = i, .second = j};
      }
    }
  }
  if (top != result.high_water) return {.rule = LayoutRule::kHighWater};
  return {};
}

std::string DescribeFault(const LayoutProblem& problem, const LayoutResult& result,
                          const LayoutFault& fault) {
  const auto place = [&](std::size_t i) {
    const Interval& interval = problem.intervals[i];
    return absl::StrCat("interval ", i, " (time ", interval.begin, " to ", interval.end,
                        ", offset ", result.offsets[i], ", ", interval.bytes, " bytes)");
  };
  switch (fault.rule) {
    case LayoutRule::kGood:
      return "good";
    case LayoutRule::kCount:
      return absl::StrCat(result.offsets.size(), " offsets for ", problem.intervals.size(),
                          " intervals");
    case LayoutRule::kAlignment:
      return absl::StrCat(place(fault.first), " is not aligned to ",
                          std::max(problem.alignment, problem.intervals[fault.first].alignment));
    case LayoutRule::kBounds:
      return absl::StrCat(place(fault.first), " ends above the capacity of ", problem.capacity);
    case LayoutRule::kOverlap:
      return absl::StrCat(place(fault.first), " overlaps ", place(fault.second));
    case LayoutRule::kHighWater:
      return absl::StrCat("the high water is not the ", result.high_water, " that is named");
  }
  return "unknown rule";
}

}  // namespace hmm::plan
