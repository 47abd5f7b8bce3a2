// SPDX-License-Identifier: Apache-2.0
#include "policy/lru.h"

#include <algorithm>
#include <list>
#include <random>
#include <vector>

#include "support/catch.h"

namespace hmm::policy {
namespace {

using Index = LruList::Index;
using Order = std::vector<Index>;

Order ColdToHot(const LruList& list) {
  Order order;
  for (Index i = list.Coldest(); i != LruList::kNone && order.size() <= list.size();
       i = list.NextHotter(i)) {
    order.push_back(i);
  }
  return order;
}

TEST_CASE("an empty list has no coldest and contains nothing") {
  policy::LruLinks links;
  const LruList list(links);
  REQUIRE(list.empty());
  REQUIRE(list.Coldest() == LruList::kNone);
  REQUIRE_FALSE(list.Contains(0));
  REQUIRE_FALSE(list.Contains(1'000'000));
  REQUIRE_FALSE(list.Contains(LruList::kNone));
}

TEST_CASE("hot and cold ends, and growth beyond the first size") {
  policy::LruLinks links;
  LruList list(links);
  list.PushHot(7);
  list.PushHot(1);
  list.PushCold(3);
  list.PushHot(300);
  REQUIRE(ColdToHot(list) == Order{3, 7, 1, 300});
  REQUIRE(list.size() == 4);
  REQUIRE_FALSE(list.Contains(0));
  REQUIRE_FALSE(list.Contains(299));
}

TEST_CASE("the first element may come in by either end") {
  policy::LruLinks links;
  LruList list(links);
  list.PushCold(5);
  list.PushHot(6);
  list.PushCold(4);
  REQUIRE(ColdToHot(list) == Order{4, 5, 6});
}

TEST_CASE("Touch moves to the hot end from anywhere") {
  policy::LruLinks links;
  LruList list(links);
  for (Index i = 0; i < 4; ++i) list.PushHot(i);
  list.Touch(0);
  REQUIRE(ColdToHot(list) == Order{1, 2, 3, 0});
  list.Touch(2);
  REQUIRE(ColdToHot(list) == Order{1, 3, 0, 2});
  list.Touch(2);
  REQUIRE(ColdToHot(list) == Order{1, 3, 0, 2});
  REQUIRE(list.size() == 4);
}

TEST_CASE("Remove takes out ends, middle and the last one, which may come back") {
  policy::LruLinks links;
  LruList list(links);
  for (Index i = 0; i < 4; ++i) list.PushHot(i);
  list.Remove(1);
  list.Remove(3);
  list.Remove(0);
  REQUIRE(ColdToHot(list) == Order{2});
  list.Remove(2);
  REQUIRE(list.empty());
  REQUIRE(list.Coldest() == LruList::kNone);
  list.PushHot(1);
  REQUIRE(ColdToHot(list) == Order{1});
}

TEST_CASE("a walk may remove where it stands") {
  policy::LruLinks links;
  LruList list(links);
  for (Index i = 0; i < 10; ++i) list.PushHot(i);
  for (Index i = list.Coldest(); i != LruList::kNone;) {
    const Index next = list.NextHotter(i);
    if (i % 2 == 0) list.Remove(i);
    i = next;
  }
  REQUIRE(ColdToHot(list) == Order{1, 3, 5, 7, 9});
}

TEST_CASE("any sequence of operations agrees with a std::list") {
  std::mt19937 random(1);
  policy::LruLinks links;
  LruList list(links);
  std::list<Index> model;  // cold to hot
  for (int step = 0; step < 20'000; ++step) {
    const Index index = static_cast<Index>(random() % 64);
    const auto at = std::find(model.begin(), model.end(), index);
    REQUIRE(list.Contains(index) == (at != model.end()));
    const bool hot = random() % 2 == 0;
    if (at == model.end()) {
      hot ? list.PushHot(index) : list.PushCold(index);
      hot ? model.push_back(index) : model.push_front(index);
    } else {
      hot ? list.Touch(index) : list.Remove(index);
      model.erase(at);
      if (hot) model.push_back(index);
    }
    REQUIRE(list.size() == model.size());
    REQUIRE(list.Coldest() == (model.empty() ? LruList::kNone : model.front()));
    if (step % 64 == 0) REQUIRE(ColdToHot(list) == Order(model.begin(), model.end()));
  }
}

}  // namespace
}  // namespace hmm::policy
