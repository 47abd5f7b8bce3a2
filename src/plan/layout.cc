// SPDX-License-Identifier: Apache-2.0
//
// 1. What lives at the worst time must fit. 2. The quick heuristics. 3. The search, restarted with
// several orders of the blocks and of the valleys, each round with twice the nodes: where one order
// is lost for hours another is through in a moment, and nobody knows beforehand which.
#include "plan/layout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "plan/layout_greedy.h"
#include "plan/layout_heaps.h"
#include "plan/layout_packing.h"
#include "plan/layout_search.h"

namespace hmm::plan {
namespace {

constexpr Bytes kAlignmentMax = Bytes{1} << 40;
constexpr Bytes kTotalMax = Bytes{1} << 60;
constexpr std::uint64_t kRunNodesMin = 1000;  // of one run in the first round

bool IsPowerOfTwo(Bytes n) { return n != 0 && (n & (n - 1)) == 0; }

absl::Status Bad(Reason reason, std::size_t index, const char* what) {
  return Error(absl::StatusCode::kInvalidArgument, reason,
               absl::StrCat("interval ", index, ": ", what));
}

absl::Status CheckInterval(const Interval& interval, std::size_t index) {
  if (interval.begin >= interval.end) {
    return Bad(Reason::kBadArgument, index, "its lifetime is empty");
  }
  if (interval.bytes == 0) return Bad(Reason::kBadSize, index, "its size is zero");
  if (!IsPowerOfTwo(interval.alignment) || interval.alignment > kAlignmentMax) {
    return Bad(Reason::kBadArgument, index, "its alignment is not a power of two up to 2^40");
  }
  std::int64_t from = interval.begin;
  for (const TimeSpan& gap : interval.gaps) {
    if (gap.begin <= from || gap.end <= gap.begin || gap.end >= interval.end) {
      return Bad(Reason::kBadArgument, index,
                 "its gaps are not ascending, apart and strictly inside its lifetime");
    }
    from = gap.end;
  }
  return absl::OkStatus();
}

// An answer without offsets.
LayoutResult StartResult(const LayoutProblem& problem) {
  const internal::Peak peak = internal::FindPeak(problem);
  LayoutResult result;
  result.lower_bound = peak.bytes;
  result.peak_bytes = peak.bytes;
  result.peak_time = peak.time;
  return result;
}

// Searches for offsets within `capacity`, until result.steps is steps_max. Fills in offsets and
// high water if it finds any, and raises the lower bound if it proves that there are none.
LayoutVerdict SearchWithin(const LayoutProblem& problem, Bytes capacity, std::uint64_t steps_max,
                           LayoutResult& result) {
  using internal::LayoutSearch;
  const internal::Packing packing = internal::MakePacking(problem, capacity);
  LayoutSearch search(packing);
  const std::uint64_t before = result.steps;
  const std::uint64_t allowed = steps_max > before ? steps_max - before : 0;
  std::uint64_t nodes = std::max<std::uint64_t>(kRunNodesMin, 4 * packing.blocks.size());
  auto outcome = LayoutSearch::Outcome::kSpent;
  std::uint64_t noise = 0;  // none in the first round
  while (outcome == LayoutSearch::Outcome::kSpent && search.steps() < allowed) {
    for (const internal::Selection selection : internal::kSelections) {
      for (const internal::BlockOrder order : internal::kBlockOrders) {
        if (outcome != LayoutSearch::Outcome::kSpent || search.steps() >= allowed) break;
        outcome =
            search.Run(internal::OrderBlocks(packing, order, noise), selection, nodes, allowed);
        if (noise > 0) noise = internal::Mix(noise);
      }
    }
    if (noise == 0) noise = 1;
    nodes *= 2;
  }
  result.steps = before + search.steps();
  if (outcome == LayoutSearch::Outcome::kSpent) return LayoutVerdict::kGaveUp;
  if (outcome == LayoutSearch::Outcome::kNone) {
    result.lower_bound = std::max(result.lower_bound, capacity + 1);
    return LayoutVerdict::kTooSmall;
  }
  std::vector<internal::Units> offsets = search.offsets();
  internal::Settle(packing, offsets);
  result.high_water = internal::HighWater(packing, offsets);
  result.offsets = internal::ToOffsets(packing, offsets);
  return LayoutVerdict::kFits;
}

// Whether the steps suffice to look at every pair once.
bool PairsAffordable(const LayoutProblem& problem, std::uint64_t steps_max) {
  const std::uint64_t count = problem.intervals.size();
  return count * count / 2 / 1024 <= steps_max;
}

// The heuristics' best: those that look at pairs only where the steps suffice for one of them. They
// see no capacity, but the packing needs one that holds any of theirs.
LayoutResult StartGreedily(const LayoutProblem& problem, Bytes enough, std::uint64_t steps_max) {
  LayoutResult result = StartResult(problem);
  enough = std::max(enough, result.lower_bound);
  result.offsets = internal::PlaceInHeaps(problem, enough, result.steps);
  result.high_water = internal::HighWater(problem, result.offsets);
  if (result.high_water <= enough || !PairsAffordable(problem, steps_max)) return result;
  const internal::Packing packing = internal::MakePacking(problem, kTotalMax);
  internal::Placement placement = internal::PlaceGreedily(packing, enough, steps_max, result.steps);
  if (placement.high_water < result.high_water) {
    result.high_water = placement.high_water;
    result.offsets = internal::ToOffsets(packing, placement.offsets);
  }
  return result;
}

void Judge(const LayoutProblem& problem, LayoutResult& result) {
  result.verdict = result.high_water <= problem.capacity   ? LayoutVerdict::kFits
                   : result.lower_bound > problem.capacity ? LayoutVerdict::kTooSmall
                                                           : LayoutVerdict::kGaveUp;
}

}  // namespace

absl::Status CheckLayoutProblem(const LayoutProblem& problem) {
  if (!IsPowerOfTwo(problem.alignment) || problem.alignment > kAlignmentMax) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 "the alignment is not a power of two up to 2^40");
  }
  Bytes total = 0;
  for (std::size_t i = 0; i < problem.intervals.size(); ++i) {
    const Interval& interval = problem.intervals[i];
    HMM_RETURN_IF_ERROR(CheckInterval(interval, i));
    const Bytes padding = std::max(interval.alignment, problem.alignment) - 1;
    if (interval.bytes > kTotalMax || total + interval.bytes + padding >= kTotalMax) {
      return Bad(Reason::kBadSize, i, "with it the sizes add up to 2^60 bytes or more");
    }
    total += interval.bytes + padding;
  }
  return absl::OkStatus();
}

LayoutResult SolveLayout(const LayoutProblem& problem, const LayoutOptions& options) {
  HMM_CHECK(CheckLayoutProblem(problem).ok());
  LayoutResult result = StartResult(problem);
  if (result.peak_bytes > problem.capacity) {
    result.verdict = LayoutVerdict::kTooSmall;
    return result;
  }
  result = StartGreedily(problem, problem.capacity, options.steps_max);
  if (result.high_water > problem.capacity) {
    result.offsets.clear();
    result.high_water = 0;
    if (!PairsAffordable(problem, options.steps_max)) return result;
    result.verdict = SearchWithin(problem, problem.capacity, options.steps_max, result);
    return result;
  }
  Judge(problem, result);
  return result;
}

LayoutResult MinimizeLayout(const LayoutProblem& problem, const LayoutOptions& options) {
  HMM_CHECK(CheckLayoutProblem(problem).ok());
  LayoutResult result = StartGreedily(problem, 0, options.steps_max);
  // The lower bound is reached more often than not, so it gets half of the steps. Then halve what
  // is between the highest capacity that was searched in vain (proved or not) and the best found.
  Bytes vain = 0;
  Bytes next = result.lower_bound;
  bool first = true;
  const bool search = PairsAffordable(problem, options.steps_max);
  while (search && result.lower_bound < result.high_water && next < result.high_water &&
         result.steps < options.steps_max) {
    const std::uint64_t left = options.steps_max - result.steps;
    const std::uint64_t stop = result.steps + std::max<std::uint64_t>(left / (first ? 2 : 4), 1);
    const LayoutVerdict verdict = SearchWithin(problem, next, stop, result);
    if (verdict != LayoutVerdict::kFits) vain = next;
    vain = std::max(vain, result.lower_bound - 1);
    next = vain + (result.high_water - vain) / 2;
    if (next == vain) break;
    first = false;
  }
  Judge(problem, result);
  return result;
}

std::string ExplainLayout(const LayoutProblem& problem, const LayoutResult& result) {
  switch (result.verdict) {
    case LayoutVerdict::kFits:
      return absl::StrCat("fits in ", result.high_water, " of ", problem.capacity,
                          " bytes; at least ", result.lower_bound, " are needed");
    case LayoutVerdict::kTooSmall:
      if (result.peak_bytes > problem.capacity) {
        return absl::StrCat("too small: ", result.peak_bytes, " bytes live at time ",
                            result.peak_time, ", ", result.peak_bytes - problem.capacity,
                            " more than the capacity of ", problem.capacity);
      }
      return absl::StrCat("too small: ", result.peak_bytes, " bytes live at time ",
                          result.peak_time, ", but no arrangement fits into the capacity of ",
                          problem.capacity, " (proved in ", result.steps, " steps)");
    case LayoutVerdict::kGaveUp:
      return absl::StrCat("not known: no arrangement within the capacity of ", problem.capacity,
                          " was found in ", result.steps, " steps, and none was excluded");
  }
  return "unknown verdict";
}

}  // namespace hmm::plan
