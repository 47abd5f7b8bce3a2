// SPDX-License-Identifier: Apache-2.0
//
// Invariant: following `hotter` from coldest_ visits size_ indices and ends at hottest_; `colder`
// is its mirror image; the ends point to kNone. One thread.
#include "policy/lru.h"

#include "base/check.h"

namespace hmm::policy {

LruList::Node& LruList::Enter(Index index) {
  HMM_CHECK(index <= kMaxIndex);
  HMM_CHECK(!Contains(index));
  if (index >= links_->nodes_.size()) links_->nodes_.resize(std::size_t{index} + 1);
  ++size_;
  return at(index);
}

void LruList::PushHot(Index index) {
  Node& node = Enter(index);
  node = {.colder = hottest_, .hotter = kNone};
  (hottest_ == kNone ? coldest_ : at(hottest_).hotter) = index;
  hottest_ = index;
}

void LruList::PushCold(Index index) {
  Node& node = Enter(index);
  node = {.colder = kNone, .hotter = coldest_};
  (coldest_ == kNone ? hottest_ : at(coldest_).colder) = index;
  coldest_ = index;
}

void LruList::Touch(Index index) {
  HMM_CHECK(Contains(index));
  if (index == hottest_) return;
  Remove(index);
  PushHot(index);
}

void LruList::Remove(Index index) {
  HMM_CHECK(Contains(index));
  Node& node = at(index);
  (node.colder == kNone ? coldest_ : at(node.colder).hotter) = node.hotter;
  (node.hotter == kNone ? hottest_ : at(node.hotter).colder) = node.colder;
  node = Node{};
  --size_;
}

LruList::Index LruList::NextHotter(Index index) const {
  HMM_CHECK(Contains(index));
  return links_->nodes_[index].hotter;
}

}  // namespace hmm::policy
