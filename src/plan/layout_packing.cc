// SPDX-License-Identifier: Apache-2.0
#include "plan/layout_packing.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/check.h"

namespace hmm::plan::internal {
namespace {

// The smallest alignment of any offset: what every offset is a multiple of.
Bytes CommonAlignment(const LayoutProblem& problem) {
  Bytes common = 0;
  for (const Interval& interval : problem.intervals) {
    common = std::gcd(common, std::max(interval.alignment, problem.alignment));
  }
  return std::max<Bytes>(common, 1);
}

std::vector<TimeSpan> Parts(const Interval& interval) {
  std::vector<TimeSpan> parts;
  std::int64_t from = interval.begin;
  for (const TimeSpan& gap : interval.gaps) {
    parts.push_back({.begin = from, .end = gap.begin});
    from = gap.end;
  }
  parts.push_back({.begin = from, .end = interval.end});
  return parts;
}

// The times at which the kept sections start. A set of live intervals is in no later one once one
// of them is about to end, and in no earlier one if one began since the last such time.
std::vector<std::int64_t> KeptTimes(const LayoutProblem& problem) {
  enum : unsigned { kBegin = 1, kEnd = 2 };
  std::map<std::int64_t, unsigned> events;
  for (const Interval& interval : problem.intervals) {
    for (const TimeSpan& part : Parts(interval)) {
      events[part.begin] |= kBegin;
      events[part.end] |= kEnd;
    }
  }
  std::vector<std::int64_t> kept;
  bool grown = false;
  std::int64_t since = 0;  // time of the last event
  for (const auto& [time, kinds] : events) {
    if ((kinds & kEnd) != 0 && grown) {
      kept.push_back(since);
      grown = false;
    }
    grown = grown || (kinds & kBegin) != 0;
    since = time;
  }
  return kept;
}

Section SectionAt(const std::vector<std::int64_t>& times, std::int64_t time) {
  return static_cast<Section>(std::lower_bound(times.begin(), times.end(), time) - times.begin());
}

auto Likeness(const Block& block) {
  return std::make_tuple(block.hull.first, block.hull.last, block.size, block.limit,
                         block.alignment);
}

bool RunsBefore(const Block& a, const Block& b) {
  return std::lexicographical_compare(
      a.runs.begin(), a.runs.end(), b.runs.begin(), b.runs.end(), [](const Span& x, const Span& y) {
        return std::tie(x.first, x.last) < std::tie(y.first, y.last);
      });
}

void SortAndFindTwins(std::vector<Block>& blocks) {
  std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
    if (Likeness(a) != Likeness(b)) return Likeness(a) < Likeness(b);
    if (a.runs != b.runs) return RunsBefore(a, b);
    return std::tie(a.bytes, a.interval) < std::tie(b.bytes, b.interval);
  });
  for (BlockIndex i = 0; i < blocks.size(); ++i) {
    const bool same = i > 0 && Likeness(blocks[i - 1]) == Likeness(blocks[i]) &&
                      blocks[i - 1].runs == blocks[i].runs;
    blocks[i].twin = same ? blocks[i - 1].twin : i;
  }
}

Block MakeBlock(const Interval& interval, const std::vector<std::int64_t>& times) {
  Block block;
  for (const TimeSpan& part : Parts(interval)) {
    const Span run{.first = SectionAt(times, part.begin), .last = SectionAt(times, part.end)};
    if (run.first == run.last) continue;  // all its sections are in a neighbour's
    if (!block.runs.empty() && block.runs.back().last == run.first) {
      block.runs.back().last = run.last;  // nothing kept in the gap
    } else {
      block.runs.push_back(run);
    }
  }
  HMM_CHECK(!block.runs.empty());
  block.hull = {.first = block.runs.front().first, .last = block.runs.back().last};
  return block;
}

}  // namespace

Peak FindPeak(const LayoutProblem& problem) {
  const Bytes align = CommonAlignment(problem);
  // Of those alive: the sum rounded up, and what rounding added to each, the largest of which the
  // one on top does not pay.
  std::map<std::int64_t, std::vector<std::pair<bool, std::uint32_t>>> events;  // (begins, interval)
  for (std::uint32_t i = 0; i < problem.intervals.size(); ++i) {
    for (const TimeSpan& part : Parts(problem.intervals[i])) {
      events[part.begin].emplace_back(true, i);
      events[part.end].emplace_back(false, i);
    }
  }
  Peak peak;
  Bytes sum = 0;
  std::map<Bytes, std::size_t> added;
  for (const auto& [time, changes] : events) {
    for (const auto& [begins, i] : changes) {
      const Bytes bytes = problem.intervals[i].bytes;
      const Bytes rounded = RoundUp(bytes, align);
      if (begins) {
        sum += rounded;
        ++added[rounded - bytes];
      } else {
        sum -= rounded;
        if (--added[rounded - bytes] == 0) added.erase(rounded - bytes);
      }
    }
    const Bytes needed = sum - (added.empty() ? 0 : added.rbegin()->first);
    if (needed > peak.bytes) peak = {.bytes = needed, .time = time};
  }
  return peak;
}

Packing MakePacking(const LayoutProblem& problem, Bytes capacity) {
  const Bytes align = CommonAlignment(problem);
  const std::vector<std::int64_t> times = KeptTimes(problem);
  Packing packing;
  packing.sections = static_cast<Section>(times.size());

  bool alike = true;  // all alignments
  for (const Interval& interval : problem.intervals) {
    alike = alike && std::max(interval.alignment, problem.alignment) == align;
  }
  Bytes unit = alike ? 0 : align;
  for (const Interval& interval : problem.intervals) {
    unit = std::gcd(unit, RoundUp(interval.bytes, align));
  }
  packing.unit = std::max<Bytes>(unit, 1);

  for (std::uint32_t i = 0; i < problem.intervals.size(); ++i) {
    const Interval& interval = problem.intervals[i];
    HMM_CHECK(interval.bytes <= capacity);
    Block block = MakeBlock(interval, times);
    const Bytes size = RoundUp(interval.bytes, align);
    const Bytes own = std::max(interval.alignment, problem.alignment);
    block.interval = i;
    block.bytes = interval.bytes;
    block.size = static_cast<Units>(size / packing.unit);
    block.limit = static_cast<Units>((capacity - interval.bytes) / packing.unit);
    block.alignment = alike ? 1 : static_cast<Units>(own / packing.unit);
    packing.capacity = std::max(packing.capacity, block.limit + block.size);
    packing.blocks.push_back(std::move(block));
  }
  packing.stackable = alike && std::all_of(packing.blocks.begin(), packing.blocks.end(),
                                           [&packing](const Block& block) {
                                             return block.limit + block.size == packing.capacity;
                                           });
  SortAndFindTwins(packing.blocks);
  return packing;
}

bool Meet(const Block& a, const Block& b) {
  if (a.hull.last <= b.hull.first || b.hull.last <= a.hull.first) return false;
  if (a.runs.size() == 1 && b.runs.size() == 1) return true;
  auto x = a.runs.begin();
  auto y = b.runs.begin();
  while (x != a.runs.end() && y != b.runs.end()) {
    if (x->last <= y->first) {
      ++x;
    } else if (y->last <= x->first) {
      ++y;
    } else {
      return true;
    }
  }
  return false;
}

std::vector<Bytes> ToOffsets(const Packing& packing, const std::vector<Units>& placed) {
  std::vector<Bytes> offsets(placed.size());
  for (BlockIndex i = 0; i < placed.size(); ++i) {
    offsets[packing.blocks[i].interval] = static_cast<Bytes>(placed[i]) * packing.unit;
  }
  return offsets;
}

}  // namespace hmm::plan::internal
