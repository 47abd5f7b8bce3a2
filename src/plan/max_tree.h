// SPDX-License-Identifier: Apache-2.0
//
// A segment tree over positions: add to a range, ask for the maximum of a range, find the last
// place above a bound; each O(log n). Not shared between threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace hmm::plan {

class MaxTree {
 public:
  static constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min() / 2;

  explicit MaxTree(const std::vector<std::int64_t>& values) : n_(values.size()) {
    while (leaves_ < n_) leaves_ *= 2;
    max_.assign(2 * leaves_, kLowest);
    add_.assign(2 * leaves_, 0);
    std::copy(values.begin(), values.end(), max_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (std::size_t i = leaves_; i-- > 1;) max_[i] = std::max(max_[2 * i], max_[2 * i + 1]);
  }

  // Ranges are half open and may be empty.
  void Add(std::size_t first, std::size_t last, std::int64_t value) {
    if (first < last) Add(1, 0, leaves_, first, last, value);
  }
  std::int64_t Max(std::size_t first, std::size_t last) const {
    return first < last ? Max(1, 0, leaves_, first, last) : kLowest;
  }
  std::int64_t Max() const { return max_[1]; }
  // The last index in [first, last) whose value is > bound; `last` when there is none.
  std::size_t LastAbove(std::size_t first, std::size_t last, std::int64_t bound) const {
    if (first >= last) return last;
    const std::size_t found = LastAbove(1, 0, leaves_, first, last, bound);
    return found == kNowhere ? last : found;
  }

 private:
  static constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

  void Add(std::size_t node, std::size_t low, std::size_t high, std::size_t first, std::size_t last,
           std::int64_t value) {
    if (first <= low && high <= last) {
      max_[node] += value;
      add_[node] += value;
      return;
    }
    const std::size_t middle = (low + high) / 2;
    if (first < middle) Add(2 * node, low, middle, first, last, value);
    if (last > middle) Add(2 * node + 1, middle, high, first, last, value);
    max_[node] = std::max(max_[2 * node], max_[2 * node + 1]) + add_[node];
  }
  std::int64_t Max(std::size_t node, std::size_t low, std::size_t high, std::size_t first,
                   std::size_t last) const {
    if (first <= low && high <= last) return max_[node];
    const std::size_t middle = (low + high) / 2;
    std::int64_t result = kLowest;
    if (first < middle) result = Max(2 * node, low, middle, first, last);
    if (last > middle) result = std::max(result, Max(2 * node + 1, middle, high, first, last));
    return result + add_[node];
  }
  std::size_t LastAbove(std::size_t node, std::size_t low, std::size_t high, std::size_t first,
                        std::size_t last, std::int64_t bound) const {
    if (max_[node] <= bound) return kNowhere;
    if (high - low == 1) return low;
    const std::size_t middle = (low + high) / 2;
    const std::int64_t below = bound - add_[node];
    if (last > middle) {
      const std::size_t right = LastAbove(2 * node + 1, middle, high, first, last, below);
      if (right != kNowhere) return right;
    }
    return first < middle ? LastAbove(2 * node, low, middle, first, last, below) : kNowhere;
  }

  std::size_t n_;
  std::size_t leaves_ = 1;
  std::vector<std::int64_t> max_, add_;  // max_ of a node includes its own add_
};

}  // namespace hmm::plan
