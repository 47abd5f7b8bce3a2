// SPDX-License-Identifier: Apache-2.0
//
// Recency lists over dense indices (slots of a table). Links live in one array, 8 bytes an index,
// so an element costs no allocation and its owner needs no pointer into a list. Several lists may
// share one array of links: then an index is in at most one of them.
//
//   coldest                              hottest
//      7  <->  2  <->  9  <->  4  <->  1          PushHot(3):  ... 4 <-> 1 <-> 3
//                                                 PushCold(3): 3 <-> 7 <-> 2 ...
//
// All operations are O(1); the first push of an index beyond the array grows it (amortised O(1)).
// One thread (the executor's).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace hmm::policy {

// The links of one or more lists. It outlives them and does not move.
class LruLinks {
 public:
  using Index = std::uint32_t;
  static constexpr Index kNone = std::numeric_limits<Index>::max();  // "no index"
  static constexpr Index kMaxIndex = kNone - 2;

  LruLinks() = default;
  LruLinks(const LruLinks&) = delete;
  LruLinks& operator=(const LruLinks&) = delete;

  // Whether the index is in any of the lists.
  bool Contains(Index index) const {
    return index < nodes_.size() && nodes_[index].hotter != kAbsent;
  }

 private:
  friend class LruList;
  static constexpr Index kAbsent = kNone - 1;  // in `hotter`: in no list

  struct Node {
    Index colder = kNone;
    Index hotter = kAbsent;
  };
  static_assert(sizeof(Node) == 8);

  std::vector<Node> nodes_;
};

class LruList {
 public:
  using Index = LruLinks::Index;
  static constexpr Index kNone = LruLinks::kNone;
  static constexpr Index kMaxIndex = LruLinks::kMaxIndex;

  explicit LruList(LruLinks& links) : links_(&links) {}

  // Enters `index` at the hot or the cold end. REQUIRES: !Contains(index), index <= kMaxIndex.
  void PushHot(Index index);
  void PushCold(Index index);
  // Moves `index` to the hot end. REQUIRES: Contains(index).
  void Touch(Index index);
  // REQUIRES: Contains(index).
  void Remove(Index index);

  // kNone when empty.
  Index Coldest() const { return coldest_; }
  // kNone when `index` is the hottest. REQUIRES: Contains(index). A walk may Remove the index it
  // stands on if it asked for the next one before.
  Index NextHotter(Index index) const;

  // In this list, or in another that shares its links: the owner knows which.
  bool Contains(Index index) const { return links_->Contains(index); }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  using Node = LruLinks::Node;

  Node& Enter(Index index);
  Node& at(Index index) { return links_->nodes_[index]; }

  LruLinks* links_;
  Index coldest_ = kNone;
  Index hottest_ = kNone;
  std::size_t size_ = 0;
};

}  // namespace hmm::policy
