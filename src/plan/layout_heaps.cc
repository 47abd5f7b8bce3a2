// SPDX-License-Identifier: Apache-2.0
#include "plan/layout_heaps.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace hmm::plan::internal {
namespace {

constexpr int kHolesTried = 32;  // that are large enough, before the heap grows

constexpr std::size_t kManyTriesMax = 50'000;  // intervals up to which all are tried, not only two

using Time = std::int64_t;

// Ranges taken and given back, best fit. Has no end: `top` is where the highest taken range ends.
class Heap {
 public:
  Bytes top() const { return top_; }

  // At or above `limit`; at the lower or the upper end of the range found.
  Bytes Take(Bytes size, Bytes limit, bool upper_end) {
    auto fit = by_size_.lower_bound({size, 0});
    for (int tried = 0; fit != by_size_.end() && tried < kHolesTried; ++fit, ++tried) {
      const auto [room, offset] = *fit;
      Bytes at = std::max(offset, limit);
      if (at + size > offset + room) continue;
      if (upper_end) at = offset + room - size;
      Remove(offset, room);
      if (at > offset) Insert(offset, at - offset);
      if (at + size < offset + room) Insert(at + size, offset + room - at - size);
      return at;
    }
    const Bytes at = std::max(top_, limit);
    if (at > top_) Insert(top_, at - top_);
    top_ = at + size;
    return at;
  }

  void Give(Bytes offset, Bytes size) {
    const auto after = by_offset_.lower_bound(offset);
    if (after != by_offset_.end() && after->first == offset + size) {
      const Bytes more = after->second;
      Remove(offset + size, more);
      size += more;
    }
    auto before = by_offset_.lower_bound(offset);
    if (before != by_offset_.begin()) {
      --before;
      const auto [at, room] = *before;
      if (at + room == offset) {
        Remove(at, room);
        offset = at;
        size += room;
      }
    }
    if (offset + size == top_) {
      top_ = offset;
    } else {
      Insert(offset, size);
    }
  }

 private:
  void Insert(Bytes offset, Bytes size) {
    by_offset_[offset] = size;
    by_size_.insert({size, offset});
  }
  void Remove(Bytes offset, Bytes size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  Bytes top_ = 0;
  std::map<Bytes, Bytes> by_offset_;
  std::set<std::pair<Bytes, Bytes>> by_size_;
};

struct Item {
  Time begin = 0;
  Time end = 0;
  Bytes size = 0;  // rounded up
  std::uint32_t interval = 0;
  std::uint32_t rank = 0;  // ties: by what intervals are, not by the order they came in
};

std::vector<std::uint32_t> Canonical(const LayoutProblem& problem) {
  std::vector<std::uint32_t> order(problem.intervals.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto gap_before = [](const TimeSpan& a, const TimeSpan& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  };
  std::sort(order.begin(), order.end(), [&](std::uint32_t i, std::uint32_t j) {
    const Interval& a = problem.intervals[i];
    const Interval& b = problem.intervals[j];
    const auto key = [](const Interval& x) {
      return std::tie(x.begin, x.end, x.bytes, x.alignment);
    };
    if (key(a) != key(b)) return key(a) < key(b);
    return std::lexicographical_compare(a.gaps.begin(), a.gaps.end(), b.gaps.begin(), b.gaps.end(),
                                        gap_before);
  });
  return order;
}

// Intervals there at both ends of the time and away in between, stacked: those that come back first
// lie lowest, which are those that go last where lives nest.
class Returning {
 public:
  explicit Returning(std::vector<std::pair<Item, TimeSpan>> items) : items_(std::move(items)) {
    std::sort(items_.begin(), items_.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.second.end, -a.second.begin, a.first.size, a.first.rank) <
             std::tuple(b.second.end, -b.second.begin, b.first.size, b.first.rank);
    });
    Bytes top = 0;
    for (const auto& [item, gap] : items_) {
      offsets_.push_back(top);
      top += item.size;
      ends_.push_back(gap.end);
      tops_.push_back(top);
      heads_.emplace_back(gap.begin, top);
    }
    std::sort(heads_.begin(), heads_.end());
    for (std::size_t i = heads_.size(); i-- > 1;) {
      heads_[i - 1].second = std::max(heads_[i - 1].second, heads_[i].second);
    }
  }

  // Where those that are there at any time in [begin, end) end.
  Bytes Top(Time begin, Time end) const {
    Bytes top = 0;
    const auto head = std::upper_bound(heads_.begin(), heads_.end(),
                                       std::pair(begin, std::numeric_limits<Bytes>::max()));
    if (head != heads_.end()) top = head->second;
    const auto tail = std::lower_bound(ends_.begin(), ends_.end(), end) - ends_.begin();
    if (tail > 0) top = std::max(top, tops_[static_cast<std::size_t>(tail) - 1]);
    return top;
  }
  void Place(Bytes base, std::vector<Bytes>& offsets) const {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      offsets[items_[i].first.interval] = base + offsets_[i];
    }
  }

 private:
  std::vector<std::pair<Item, TimeSpan>> items_;
  std::vector<Bytes> offsets_;
  std::vector<Time> ends_;                     // of the gaps, ascending
  std::vector<Bytes> tops_;                    // of the stack up to there
  std::vector<std::pair<Time, Bytes>> heads_;  // gap begin; top of those that go then or later
};

// One way to go about it.
struct Attempt {
  Time short_below = 0;    // lives shorter than this are short
  bool upper_end = false;  // long lives take the upper end of what is free, next to earlier ones
                           // where those that come back make way from above
};

class Walk {
 public:
  explicit Walk(const LayoutProblem& problem);
  std::size_t count() const { return items_.size(); }
  std::vector<Attempt> Attempts() const;
  std::vector<Bytes> Try(const Attempt& attempt) const;

 private:
  struct Prepared {
    Bytes align = 1;
    Bytes always = 0;  // taken throughout
    std::vector<std::pair<Item, TimeSpan>> returning;
  };
  static Prepared Sort(const LayoutProblem& problem, std::vector<Item>& items,
                       std::vector<Bytes>& always_offsets);

  std::vector<Item> items_;  // by begin, the longest first
  std::vector<std::uint32_t> by_end_;
  std::vector<Bytes> fixed_;  // offsets of those that are there throughout
  Prepared prepared_;
  Returning returning_;
};

Walk::Prepared Walk::Sort(const LayoutProblem& problem, std::vector<Item>& items,
                          std::vector<Bytes>& always_offsets) {
  Prepared result;
  always_offsets.assign(problem.intervals.size(), 0);
  Time first = std::numeric_limits<Time>::max(), last = std::numeric_limits<Time>::min();
  for (const Interval& interval : problem.intervals) {
    result.align = std::max({result.align, interval.alignment, problem.alignment});
    first = std::min(first, interval.begin);
    last = std::max(last, interval.end);
  }
  const std::vector<std::uint32_t> order = Canonical(problem);
  for (std::uint32_t rank = 0; rank < order.size(); ++rank) {
    const std::uint32_t i = order[rank];
    const Interval& interval = problem.intervals[i];
    const Item item{interval.begin, interval.end, RoundUp(interval.bytes, result.align), i, rank};
    if (interval.begin > first || interval.end < last || interval.gaps.size() > 1) {
      items.push_back(item);
    } else if (interval.gaps.empty()) {
      always_offsets[i] = result.always;
      result.always += item.size;
    } else {
      result.returning.emplace_back(item, interval.gaps.front());
    }
  }
  return result;
}

Walk::Walk(const LayoutProblem& problem)
    : prepared_(Sort(problem, items_, fixed_)), returning_(prepared_.returning) {
  std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
    return std::tuple(a.begin, -a.end, b.size, a.rank) <
           std::tuple(b.begin, -b.end, a.size, b.rank);
  });
  by_end_.resize(items_.size());
  for (std::uint32_t i = 0; i < by_end_.size(); ++i) by_end_[i] = i;
  std::sort(by_end_.begin(), by_end_.end(), [this](std::uint32_t a, std::uint32_t b) {
    return std::tie(items_[a].end, a) < std::tie(items_[b].end, b);
  });
}

// The least time that is longer, as far as there is one.
Time Above(Time length) { return length < std::numeric_limits<Time>::max() ? length + 1 : length; }

std::vector<Attempt> Walk::Attempts() const {
  std::vector<Time> lengths;
  for (const Item& item : items_) lengths.push_back(item.end - item.begin);
  std::sort(lengths.begin(), lengths.end());
  std::vector<Attempt> result = {{0, true}, {0, false}};
  if (lengths.empty() || lengths.size() > kManyTriesMax) return result;
  // Of the graphs looked at, each of these is the best for some.
  for (const std::size_t percent : {20U, 50U, 95U}) {
    result.push_back({Above(lengths[lengths.size() * percent / 100]), percent < 50});
  }
  result.push_back({Above(lengths.back()), false});
  return result;
}

std::vector<Bytes> Walk::Try(const Attempt& attempt) const {
  std::vector<Bytes> offsets = fixed_;
  std::vector<Bytes> at(items_.size(), 0);
  const auto is_short = [&](const Item& item) {
    return item.end - item.begin < attempt.short_below;
  };
  Heap low, high;
  Bytes height = returning_.Top(std::numeric_limits<Time>::min(), std::numeric_limits<Time>::max());
  std::size_t ended = 0;
  for (std::size_t i = 0; i < items_.size();) {
    const Time now = items_[i].begin;
    for (; ended < by_end_.size() && items_[by_end_[ended]].end <= now; ++ended) {
      const std::uint32_t gone = by_end_[ended];
      (is_short(items_[gone]) ? high : low).Give(at[gone], items_[gone].size);
    }
    for (; i < items_.size() && items_[i].begin == now; ++i) {
      const Item& item = items_[i];
      at[i] = is_short(item)
                  ? high.Take(item.size, 0, false)
                  : low.Take(item.size, returning_.Top(item.begin, item.end), attempt.upper_end);
    }
    height = std::max(height, std::max(low.top(), returning_.Top(now, now + 1)) + high.top());
  }
  // What comes back may meet the short lives only after the last of them has begun.
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (!is_short(items_[i])) continue;
    const Bytes meets = returning_.Top(items_[i].begin, items_[i].end);
    height = std::max(height, meets + at[i] + items_[i].size);
  }
  returning_.Place(prepared_.always, offsets);
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const Bytes offset = is_short(items_[i]) ? height - at[i] - items_[i].size : at[i];
    offsets[items_[i].interval] = prepared_.always + offset;
  }
  return offsets;
}

}  // namespace

Bytes HighWater(const LayoutProblem& problem, const std::vector<Bytes>& offsets) {
  Bytes top = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    top = std::max(top, offsets[i] + problem.intervals[i].bytes);
  }
  return top;
}

std::vector<Bytes> PlaceInHeaps(const LayoutProblem& problem, Bytes enough, std::uint64_t& steps) {
  const Walk walk(problem);
  std::vector<Bytes> best;
  for (const Attempt& attempt : walk.Attempts()) {
    std::vector<Bytes> offsets = walk.Try(attempt);
    steps += 1 + walk.count() / 4;
    if (best.empty() || HighWater(problem, offsets) < HighWater(problem, best)) {
      best = std::move(offsets);
    }
    if (HighWater(problem, best) <= enough) break;
  }
  return best;
}

}  // namespace hmm::plan::internal
