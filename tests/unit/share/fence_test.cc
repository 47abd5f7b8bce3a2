// SPDX-License-Identifier: Apache-2.0
//
// Fences of the session page: a pin ends once, when its value is reached and not before, whoever
// looks.
#include "share/fence.h"

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "share/layout.h"
#include "share/pin.h"
#include "support/catch.h"

namespace hmm::share {
namespace {

struct Page {
  Page() : area(std::make_unique<FenceArea>()), words(64) {}
  FenceEntry& at(const FenceTicket& ticket) { return area->entries[ticket.entry]; }
  // As either side does it; true when this call ended the fence.
  bool End(std::uint32_t entry) {
    const auto slot = TakeFence(*area, area->entries[entry]);
    if (!slot.has_value()) return false;
    UnpinFor(words[*slot]);
    FreeFence(area->entries[entry]);
    return true;
  }
  std::unique_ptr<FenceArea> area;
  std::vector<std::atomic<std::uint32_t>> words;
};

TEST_CASE("a fence ends when its timeline reaches the value, once") {
  Page page;
  REQUIRE(PinFor(page.words[3]));
  const auto ticket = ArmFence(*page.area, 3, 5, 10);
  REQUIRE(ticket.has_value());
  CHECK(!page.End(ticket->entry));
  Signal(page.area->timelines[5], 9);
  Signal(page.area->timelines[4], 100);
  CHECK(!page.End(ticket->entry));
  Signal(page.area->timelines[5], 11);
  Signal(page.area->timelines[5], 2);  // never lowers
  CHECK(PinsOf(page.words[3]) == 1);
  CHECK(page.End(ticket->entry));
  CHECK(PinsOf(page.words[3]) == 0);
  CHECK(!page.End(ticket->entry));
  CHECK(SequenceOf(page.at(*ticket).state) == ticket->sequence + 1);
}

TEST_CASE("value 0 is reached at once, the largest never by another") {
  Page page;
  const auto now = ArmFence(*page.area, 0, 0, 0);
  const auto never = ArmFence(*page.area, 0, 0, ~std::uint64_t{0});
  Signal(page.area->timelines[0], ~std::uint64_t{0} - 1);
  CHECK(page.End(now->entry));
  CHECK(!page.End(never->entry));
}

TEST_CASE("as many fences as entries, then none until one ended") {
  Page page;
  for (std::uint32_t i = 0; i < kFences; ++i) {
    REQUIRE(ArmFence(*page.area, 1, 0, i).has_value());
  }
  CHECK(page.area->used == kFences);
  CHECK(!ArmFence(*page.area, 1, 0, 1).has_value());
  CHECK(page.End(0));
  const auto again = ArmFence(*page.area, 1, 0, 7);
  REQUIRE(again.has_value());
  CHECK(again->entry == 0);
  CHECK(again->sequence == 1);
}

TEST_CASE("an entry that was armed anew is not ended by who saw the old one") {
  Page page;
  const auto old = ArmFence(*page.area, 1, 0, 0);
  // What a slow thread has read of it.
  const std::uint64_t seen = page.at(*old).state;
  CHECK(page.End(old->entry));
  const auto fresh = ArmFence(*page.area, 2, 0, 100);
  REQUIRE(fresh->entry == old->entry);
  std::uint64_t expected = seen;
  CHECK(!page.at(*fresh).state.compare_exchange_strong(expected,
                                                       WithState(seen, FenceState::kTaken)));
}

TEST_CASE("a scribbled entry names no timeline, and costs nothing") {
  Page page;
  FenceEntry& entry = page.area->entries[9];
  entry.state = WithState(0, FenceState::kArmed);
  for (const std::uint32_t timeline : {kTimelines, ~0u}) {
    entry.timeline = timeline;
    CHECK(!TakeFence(*page.area, entry).has_value());
  }
}

TEST_CASE("two sides that sweep while a third arms and signals end each pin exactly once") {
  Page page;
  constexpr int kRounds = 20'000;
  std::atomic<bool> stop{false};
  std::atomic<int> ended{0};
  auto sweep = [&] {
    while (!stop.load()) {
      for (std::uint32_t i = 0; i < page.area->used.load(); ++i) {
        if (page.End(i)) ++ended;
      }
    }
  };
  std::thread client(sweep);
  std::thread daemon(sweep);
  std::mt19937 rng(1);
  std::vector<std::uint64_t> values(4, 0);
  int armed = 0;
  while (armed < kRounds) {
    const auto slot = static_cast<std::uint32_t>(rng() % 64);
    const auto timeline = static_cast<std::uint32_t>(rng() % 4);
    REQUIRE(PinFor(page.words[slot]));
    const std::uint64_t value = values[timeline] + rng() % 3;
    while (!ArmFence(*page.area, slot, timeline, value).has_value()) {
      for (std::uint32_t t = 0; t < 4; ++t) Signal(page.area->timelines[t], values[t] += 3);
    }
    ++armed;
    if (rng() % 4 == 0) Signal(page.area->timelines[timeline], ++values[timeline]);
  }
  for (TimelineWord& timeline : page.area->timelines) Signal(timeline, ~std::uint64_t{0});
  while (ended.load() < armed) std::this_thread::yield();
  stop.store(true);
  client.join();
  daemon.join();
  CHECK(ended.load() == armed);
  for (const auto& word : page.words) CHECK(word.load() == 0);
}

}  // namespace
}  // namespace hmm::share
