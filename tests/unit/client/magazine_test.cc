// SPDX-License-Identifier: Apache-2.0
//
// What a magazine asks for, gives out and gives back, on an attachment whose tensors the test
// publishes itself. Time is the test's.
#include "client/lib/magazine.h"

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "client/lib/attachment.h"
#include "support/catch.h"
#include "support/fake_session_server.h"

namespace hmm::client_internal {
namespace {

using std::chrono::milliseconds;
using testing::FakeSessionServer;
using AttachmentPtr = std::shared_ptr<Attachment>;

constexpr SegmentId kHbm = 0x00001;
constexpr TimePoint kStart = TimePoint(std::chrono::hours(1));
constexpr Magazines::Shape kShape{.bytes = 512};

struct Fixture {
  FakeSessionServer server;
  AttachmentPtr attachment;

  Fixture() {
    server.AddSegment(kHbm);
    for (std::uint32_t slot = 0; slot < FakeSessionServer::kTensors; ++slot) {
      server.Publish(slot, 5, TensorState::kResident, kHbm, slot * 512, 512);
    }
    auto made = Attachment::Attach({server.dir(), ""},
                                   std::chrono::steady_clock::now() + std::chrono::seconds(30));
    REQUIRE(made.ok());
    attachment = *std::move(made);
  }
  static std::vector<std::uint64_t> Handles(std::uint32_t first, std::uint32_t count) {
    std::vector<std::uint64_t> out;
    for (std::uint32_t i = 0; i < count; ++i) out.push_back(Handle{first + i, 5}.Pack());
    return out;
  }
  void TakeBack(std::uint32_t slot) {
    server.Publish(slot, 5, TensorState::kGone, kHbm, slot * 512, 512);
  }
  // As Client::Allocate asks: what Want says when Take gave nothing.
  std::size_t Ask(Magazines& magazines, const Magazines::Shape& shape = kShape,
                  TimePoint now = kStart) {
    REQUIRE_FALSE(magazines.Take(shape, attachment, now).has_value());
    return magazines.Want(shape);
  }
};

TEST_CASE("a magazine is asked for at the third allocation alike, 8 and then twice as many") {
  Fixture f;
  Magazines magazines(MagazineOptions{});
  CHECK(f.Ask(magazines) == 0);
  CHECK(f.Ask(magazines) == 0);
  CHECK(f.Ask(magazines, {.bytes = 513}) == 0);  // another shape counts by itself
  REQUIRE(f.Ask(magazines) == 8);
  CHECK(f.Ask(magazines) == 0);  // one asks at a time
  std::uint32_t slot = 0;
  for (const std::size_t next : {16u, 32u, 64u, 64u}) {
    magazines.Filled(kShape, f.attachment, Fixture::Handles(slot, 2), kStart);
    for (int i = 0; i < 2; ++i) REQUIRE(magazines.Take(kShape, f.attachment, kStart).has_value());
    slot += 2;
    CHECK(f.Ask(magazines) == next);
  }
  // The call failed: the next may ask again.
  magazines.Filled(kShape, nullptr, {}, kStart);
  CHECK(f.Ask(magazines) == 64);
  magazines.Filled(kShape, f.attachment, {}, kStart);
}

TEST_CASE("what is taken is pinned twice until it is told") {
  Fixture f;
  Magazines magazines(MagazineOptions{});
  for (int i = 0; i < 2; ++i) f.Ask(magazines);
  REQUIRE(f.Ask(magazines) == 8);
  magazines.Filled(kShape, f.attachment, Fixture::Handles(10, 8), kStart);
  CHECK(f.server.pins(10) == 0);
  std::optional<Held> held = magazines.Take(kShape, f.attachment, kStart);
  REQUIRE(held.has_value());
  CHECK(held->tensor.handle() == Fixture::Handles(10, 1)[0]);  // the oldest first
  CHECK(held->tensor.size() == 512);
  CHECK(held->pin.size() == 512);
  CHECK(held->pin.tier() == "hbm0");
  CHECK(f.server.pins(10) == 2);
  held->pin = Pin();
  CHECK(f.server.pins(10) == 1);  // the keeper

  CHECK(magazines.AnyUntold(std::span(&held->tensor, 1)));
  CHECK(magazines.Untold(f.attachment) == Fixture::Handles(10, 1));
  CHECK(magazines.NextUpkeep() == kStart + milliseconds(50));
  CHECK_FALSE(magazines.TellDue(kStart + milliseconds(49)));
  CHECK(magazines.TellDue(kStart + milliseconds(50)));
  magazines.Told(Fixture::Handles(10, 1));
  magazines.Told(Fixture::Handles(10, 1));
  CHECK(f.server.pins(10) == 0);
  CHECK_FALSE(magazines.AnyUntold(std::span(&held->tensor, 1)));
}

TEST_CASE("half emptied it is filled from behind, and the oldest go first still") {
  Fixture f;
  Magazines magazines(MagazineOptions{});
  const auto take = [&](Magazines& from) {
    const std::optional<Held> held = from.Take(kShape, f.attachment, kStart);
    REQUIRE(held.has_value());
    return held->tensor.handle();
  };
  for (int i = 0; i < 3; ++i) f.Ask(magazines);
  magazines.Filled(kShape, f.attachment, Fixture::Handles(0, 8), kStart);
  for (int i = 0; i < 3; ++i) take(magazines);
  CHECK(magazines.Low(f.attachment).empty());
  take(magazines);
  CHECK(magazines.NextUpkeep() == TimePoint::min());
  const auto low = magazines.Low(f.attachment);
  REQUIRE(low.size() == 1);
  CHECK(low[0].shape == kShape);
  CHECK(low[0].count == 12);  // 16 wanted, 4 there
  CHECK(magazines.Low(f.attachment).empty());
  take(magazines);
  CHECK(magazines.Low(f.attachment).empty());  // somebody has asked
  magazines.Filled(kShape, f.attachment, Fixture::Handles(20, 12), kStart);
  for (std::uint32_t slot = 5; slot < 8; ++slot) CHECK(take(magazines) == Handle{slot, 5}.Pack());
  CHECK(take(magazines) == Handle{20, 5}.Pack());

  SECTION("less came than was asked for: not from behind again") {
    while (magazines.Low(f.attachment).empty()) take(magazines);
    magazines.Filled(kShape, f.attachment, Fixture::Handles(40, 2), kStart);
    while (magazines.Take(kShape, f.attachment, kStart)) {
      CHECK(magazines.Low(f.attachment).empty());
    }
    CHECK(magazines.Want(kShape) > 0);
  }
  SECTION("the call failed: the one that is empty asks") {
    while (magazines.Low(f.attachment).empty()) take(magazines);
    magazines.Filled(kShape, nullptr, {}, kStart);
    while (magazines.Take(kShape, f.attachment, kStart)) {
      CHECK(magazines.Low(f.attachment).empty());
    }
    CHECK(magazines.Want(kShape) > 0);
  }
  SECTION("its attachment is lost") {
    while (magazines.Low(f.attachment).empty()) take(magazines);
    f.attachment->MarkLost();
    magazines.Clear();
    magazines.Filled(kShape, f.attachment, Fixture::Handles(40, 2), kStart);
    CHECK(magazines.NextUpkeep() == TimePoint::max());
  }
}

TEST_CASE("what the daemon took back is passed over and freed by its handle") {
  Fixture f;
  Magazines magazines(MagazineOptions{});
  for (int i = 0; i < 3; ++i) f.Ask(magazines);
  magazines.Filled(kShape, f.attachment, Fixture::Handles(0, 4), kStart);
  f.TakeBack(0);
  f.TakeBack(1);
  const std::optional<Held> held = magazines.Take(kShape, f.attachment, kStart);
  REQUIRE(held.has_value());
  CHECK(held->tensor.handle() == Fixture::Handles(2, 1)[0]);
  CHECK(magazines.Returned(f.attachment, kStart) == Fixture::Handles(0, 2));
  CHECK(magazines.Returned(f.attachment, kStart).empty());
  f.TakeBack(3);
  CHECK_FALSE(magazines.Take(kShape, f.attachment, kStart).has_value());
  CHECK(magazines.Want(kShape) > 0);
}

TEST_CASE("unused for a second it is given back, and begins anew") {
  Fixture f;
  Magazines magazines(MagazineOptions{});
  for (int i = 0; i < 3; ++i) f.Ask(magazines);
  magazines.Filled(kShape, f.attachment, Fixture::Handles(0, 3), kStart);
  CHECK(magazines.NextUpkeep() == kStart + milliseconds(1000));
  CHECK(magazines.Returned(f.attachment, kStart + milliseconds(999)).empty());
  CHECK(magazines.Returned(f.attachment, kStart + milliseconds(1000)).size() == 3);
  CHECK(magazines.NextUpkeep() == TimePoint::max());
  CHECK(f.Ask(magazines) == 0);
  CHECK(f.Ask(magazines) == 0);
  CHECK(f.Ask(magazines) == 8);
}

TEST_CASE("bounds: bytes of all, shapes, untold, none at all") {
  Fixture f;
  SECTION("bytes of all together, those on their way included") {
    Magazines magazines({.bytes_max = 512 * 11});
    for (int i = 0; i < 2; ++i) f.Ask(magazines);
    CHECK(f.Ask(magazines) == 8);
    constexpr Magazines::Shape kOther{.bytes = 511};
    for (int i = 0; i < 2; ++i) f.Ask(magazines, kOther);
    CHECK(f.Ask(magazines, kOther) == 3);
    magazines.Filled(kShape, f.attachment, Fixture::Handles(0, 8), kStart);
    magazines.Filled(kOther, nullptr, {}, kStart);
    constexpr Magazines::Shape kLarge{.bytes = 512 * 4};
    for (int i = 0; i < 3; ++i) CHECK(f.Ask(magazines, kLarge) == 0);
  }
  SECTION("the shape that was used longest ago makes way") {
    Magazines magazines({.shapes_max = 2});
    for (int i = 0; i < 3; ++i) f.Ask(magazines);
    magazines.Filled(kShape, f.attachment, Fixture::Handles(0, 3), kStart);
    f.Ask(magazines, {.bytes = 1}, kStart + milliseconds(1));
    f.Ask(magazines, {.bytes = 2}, kStart + milliseconds(2));
    CHECK(magazines.Returned(f.attachment, kStart).size() == 3);
  }
  SECTION("past so many untold the next allocation is a call") {
    Magazines magazines({.untold_max = 2});
    for (int i = 0; i < 3; ++i) f.Ask(magazines);
    magazines.Filled(kShape, f.attachment, Fixture::Handles(0, 8), kStart);
    for (int i = 0; i < 2; ++i) CHECK(magazines.Take(kShape, f.attachment, kStart).has_value());
    CHECK_FALSE(magazines.Take(kShape, f.attachment, kStart).has_value());
    CHECK(magazines.Want(kShape) == 0);
    magazines.Told(magazines.Untold(f.attachment));
    CHECK(magazines.Take(kShape, f.attachment, kStart).has_value());
  }
  SECTION("off") { CHECK_FALSE(Magazines({.tensors_max = 0}).on()); }
}

TEST_CASE("all is forgotten with its attachment, and its pins with it") {
  Fixture f;
  Fixture next;
  Magazines magazines(MagazineOptions{});
  for (int i = 0; i < 3; ++i) f.Ask(magazines);
  magazines.Filled(kShape, f.attachment, Fixture::Handles(0, 8), kStart);
  std::optional<Held> held = magazines.Take(kShape, f.attachment, kStart);
  REQUIRE(held.has_value());
  CHECK_FALSE(magazines.Take(kShape, next.attachment, kStart).has_value());
  CHECK(magazines.Untold(next.attachment).empty());

  f.attachment->MarkLost();
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(magazines.Take(kShape, next.attachment, kStart).has_value());
  }
  REQUIRE(magazines.Want(kShape) == 8);
  CHECK(f.server.pins(0) == 1);  // the user's own; the keeper went
  magazines.Filled(kShape, next.attachment, Fixture::Handles(20, 8), kStart);
  CHECK(magazines.Take(kShape, next.attachment, kStart).has_value());
  CHECK(magazines.Untold(next.attachment) == Fixture::Handles(20, 1));
}

TEST_CASE("many threads take each tensor once") {
  Fixture f;
  MagazineOptions options;
  options.untold_max = 1000;
  Magazines magazines(options);
  for (int i = 0; i < 3; ++i) f.Ask(magazines);
  magazines.Filled(kShape, f.attachment, Fixture::Handles(0, FakeSessionServer::kTensors), kStart);
  std::vector<std::vector<std::uint64_t>> got(4);
  std::atomic<bool> stop{false};
  std::thread daemon([&] {  // and the daemon takes some back meanwhile
    for (std::uint32_t slot = 0; slot < FakeSessionServer::kTensors; slot += 5) f.TakeBack(slot);
  });
  std::thread teller([&] {
    while (!stop.load()) {
      magazines.Told(magazines.Untold(f.attachment));
      (void)magazines.Returned(f.attachment, kStart);
    }
  });
  std::vector<std::thread> threads;
  for (auto& mine : got) {
    threads.emplace_back([&] {
      while (auto held = magazines.Take(kShape, f.attachment, kStart)) {
        held->pin.data()[0] = std::byte{1};
        mine.push_back(held->tensor.handle());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  daemon.join();
  stop.store(true);
  teller.join();
  magazines.Told(magazines.Untold(f.attachment));
  std::set<std::uint64_t> all;
  std::size_t count = 0;
  for (const auto& mine : got) {
    all.insert(mine.begin(), mine.end());
    count += mine.size();
  }
  CHECK(all.size() == count);
  CHECK(count >= FakeSessionServer::kTensors - 13);
  for (std::uint32_t slot = 0; slot < FakeSessionServer::kTensors; ++slot) {
    CHECK(f.server.pins(slot) == 0);
  }
}

}  // namespace
}  // namespace hmm::client_internal
