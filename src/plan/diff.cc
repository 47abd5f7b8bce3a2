// SPDX-License-Identifier: Apache-2.0
#include "plan/diff.h"

#include <algorithm>
#include <tuple>

namespace hmm::plan {
namespace {

struct Entry {
  std::uint32_t move = 0;
  TaskIndex task = 0;
};

auto What(const Move& move) {
  return std::tuple(move.storage, move.group, move.kind, move.from, move.to);
}
auto Where(const Move& move) { return std::tuple(move.after_op, move.before_op); }

class Side {
 public:
  explicit Side(const Plan& plan) : plan_(plan) {
    for (TaskIndex t = 0; t < plan.sequence.size(); ++t) {
      if (plan.sequence[t].is_move) entries_.push_back({plan.sequence[t].index, t});
    }
  }
  const std::vector<Entry>& entries() const { return entries_; }
  const Move& move(const Entry& entry) const { return plan_.moves[entry.move]; }

  template <typename Key>
  void SortBy(Key key) {
    std::sort(entries_.begin(), entries_.end(), [&](const Entry& x, const Entry& y) {
      return std::tuple(key(move(x)), x.task) < std::tuple(key(move(y)), y.task);
    });
  }
  void Keep(std::vector<Entry> entries) { entries_ = std::move(entries); }
  std::vector<std::uint32_t> InOrder() {
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& x, const Entry& y) { return x.task < y.task; });
    std::vector<std::uint32_t> moves;
    for (const Entry& entry : entries_) moves.push_back(entry.move);
    return moves;
  }

 private:
  const Plan& plan_;
  std::vector<Entry> entries_;
};

// Takes pairs of equal keys out of both sides.
template <typename Key>
std::vector<MovePair> Match(Side& a, Side& b, Key key) {
  a.SortBy(key);
  b.SortBy(key);
  std::vector<MovePair> pairs;
  std::vector<Entry> left_a, left_b;
  auto x = a.entries().begin();
  auto y = b.entries().begin();
  while (x != a.entries().end() && y != b.entries().end()) {
    const auto kx = key(a.move(*x)), ky = key(b.move(*y));
    if (kx < ky) {
      left_a.push_back(*x++);
    } else if (ky < kx) {
      left_b.push_back(*y++);
    } else {
      pairs.push_back({(x++)->move, (y++)->move});
    }
  }
  left_a.insert(left_a.end(), x, a.entries().end());
  left_b.insert(left_b.end(), y, b.entries().end());
  a.Keep(std::move(left_a));
  b.Keep(std::move(left_b));
  return pairs;
}

std::int64_t Less(Bytes b, Bytes a) {
  return static_cast<std::int64_t>(b) - static_cast<std::int64_t>(a);
}

}  // namespace

PlanDiff DiffPlans(const Plan& a, const Plan& b) {
  PlanDiff diff;
  Side left(a), right(b);
  Match(left, right, [](const Move& move) { return std::tuple(What(move), Where(move)); });
  diff.placed_otherwise = Match(left, right, [](const Move& move) { return What(move); });
  diff.only_a = left.InOrder();
  diff.only_b = right.InOrder();
  diff.peak_bytes = Less(b.peak_bytes, a.peak_bytes);
  diff.moved_bytes = Less(b.moved_bytes, a.moved_bytes);
  diff.high_water_bytes = Less(b.high_water_bytes, a.high_water_bytes);
  diff.stall_us = b.stall_us - a.stall_us;
  return diff;
}

}  // namespace hmm::plan
