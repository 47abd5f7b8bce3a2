// SPDX-License-Identifier: Apache-2.0
//
// When it runs dry: what an allocation gets, what goes to make room for it, and where it goes.
#include "unit/hmm/core_fixture.h"

namespace hmm::testing {
namespace {

using tier::ByteState;

TEST_CASE("hbm above high is demoted in the background until low", "[room]") {
  CoreOptions options;
  options.high = 0.75;  // 6 KiB
  options.low = 0.5;    // 4 KiB
  CoreFixture f(options);
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 6; ++i) made.push_back(f.MakeSealed(client, kKiB));
  f.Run();
  CHECK(f.copier.size() == 0);  // at the mark is not above it

  made.push_back(f.MakeSealed(client, kKiB));
  f.Settle();
  CHECK(f.Used(f.kHbm) == 4 * kKiB);
  CHECK(f.Used(f.kDdr) == 3 * kKiB);
  for (std::size_t i = 0; i < made.size(); ++i) {
    INFO(i);
    CHECK(client.State(made[i]).tier == (i < 3 ? f.kDdr : f.kHbm));  // coldest first
    CHECK(client.State(made[i]).state == TensorState::kResident);
  }
}

TEST_CASE("background demotion stops when all that is left is pinned", "[room]") {
  CoreOptions options;
  options.high = 0.5;
  options.low = 0.25;
  CoreFixture f(options);
  CoreClient client = f.Open();
  const Handle free = f.MakeSealed(client, kKiB);
  for (int i = 0; i < 5; ++i) f.Make(client, kKiB);  // stay pinned
  f.Settle();
  CHECK(client.State(free).tier == f.kDdr);
  CHECK(f.Used(f.kHbm) == 5 * kKiB);
  f.Pass(milliseconds(1000));
  CHECK(f.copier.size() == 0);
}

TEST_CASE("an allocation that does not fit starts reclaim at once and says FULL", "[room]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 7; ++i) f.MakeSealed(client, kKiB);
  const auto answer = f.Allocate(client, f.One(kKiB));
  CHECK(Is(answer->status(), absl::StatusCode::kResourceExhausted, Reason::kFull));
  CHECK(RetryAfter(answer->status()).has_value());
  CHECK(f.copier.size() == 1);  // a victim is on its way
  f.Settle();
  f.Make(client, kKiB);
}

TEST_CASE("asking again does not send more away than was asked for", "[room]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 7; ++i) f.MakeSealed(client, kKiB);
  for (int i = 0; i < 5; ++i) {
    CHECK(Is(f.Allocate(client, f.One(kKiB))->status(), absl::StatusCode::kResourceExhausted,
             Reason::kFull));
    f.Run();
  }
  CHECK(f.copier.size() == 1);
}

TEST_CASE("an allocation says PINNED when nothing can move", "[room]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 7; ++i) f.Make(client, kKiB);
  const auto answer = f.Allocate(client, f.One(kKiB));
  CHECK(Is(answer->status(), absl::StatusCode::kResourceExhausted, Reason::kPinned));
  CHECK(RetryAfter(answer->status()).has_value());
}

TEST_CASE("a waiting allocation sees a silent unpin within the rescan", "[room]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 7; ++i) made.push_back(f.Make(client, kKiB));
  const auto answer = f.AllocateWaiting(client, kKiB);
  f.Run();
  CHECK(!answer->done());

  client.Unpin(made[3]);  // nobody tells the daemon
  f.Run();
  CHECK(f.copier.size() == 0);
  f.Pass(milliseconds(2));
  REQUIRE(f.copier.size() == 1);
  f.Settle();
  CHECK(answer->get().tensors[0].ok());
  CHECK(client.State(made[3]).tier == f.kDdr);
}

TEST_CASE("a waiting allocation ends at its deadline with the reason", "[room]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 7; ++i) f.Make(client, kKiB);
  const auto answer = f.AllocateWaiting(client, kKiB, milliseconds(20));
  f.PassSlowly(milliseconds(19));
  CHECK(!answer->done());
  f.Pass(milliseconds(1));
  CHECK(Is(answer->status(), absl::StatusCode::kResourceExhausted, Reason::kPinned));
  CHECK(f.In(f.kHbm, ByteState::kReserved) == 0);
}

TEST_CASE("larger than the tier is TOO_LARGE at once, also with wait", "[room]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (const Bytes bytes : {8 * kKiB + 1, kMiB, ~Bytes{0} - 63, ~Bytes{0}}) {
    INFO(bytes);
    const auto answer = f.AllocateWaiting(client, bytes);
    CHECK(Is(answer->status(), absl::StatusCode::kFailedPrecondition, Reason::kTooLarge));
    CHECK(!RetryAfter(answer->status()).has_value());
  }
  CHECK(f.Used(f.kHbm) == 0);
}

TEST_CASE("new bytes that only the reserve could hold are TOO_LARGE", "[room]") {
  CoreOptions options;
  options.reserve = 2 * kKiB;
  CoreFixture f(options);
  CoreClient client = f.Open();
  const auto answer = f.AllocateWaiting(client, 6 * kKiB + 1);
  CHECK(Is(answer->status(), absl::StatusCode::kFailedPrecondition, Reason::kTooLarge));
  f.Make(client, 6 * kKiB);
}

TEST_CASE("what fitted an empty tier once fits it again", "[room]") {
  // The reserve learned from the largest extent must not lock that very tensor out.
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 3; ++i) {
    const Handle giant = f.Make(client, 8 * kKiB);
    client.Unpin(giant);
    REQUIRE(f.Free(client, giant).ok());
    f.Run();
  }
}

TEST_CASE("ddr full sends its victims to flash", "[room]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> low;
  for (int i = 0; i < 15; ++i) low.push_back(f.MakeSealed(client, kKiB, "ddr0"));
  std::vector<Handle> high;
  for (int i = 0; i < 7; ++i) high.push_back(f.MakeSealed(client, kKiB, "hbm0"));
  const auto answer = f.AllocateWaiting(client, 2 * kKiB);
  f.Settle();
  f.Pass(milliseconds(2));
  f.Settle();
  CHECK(answer->get().tensors[0].ok());
  CHECK(f.Used(f.kFlash) > 0);
  CHECK(client.State(low[0]).state == TensorState::kAbsent);
  CHECK(client.State(low[0]).tier == f.kFlash);
  CHECK(client.State(high[0]).tier == f.kDdr);
}

TEST_CASE("flash full: droppable victims are dropped", "[room]") {
  CoreOptions options;
  options.flash = kKiB;
  options.ddr = 2 * kKiB;
  CoreFixture f(options);
  CoreClient client = f.Open();
  f.MakeOnFlash(client, kKiB);  // not droppable: the bottom is full for good
  const Handle a = f.MakeSealed(client, kKiB, "ddr0", "a", /*droppable=*/true);
  const Handle b = f.MakeSealed(client, 512, "ddr0", "b", /*droppable=*/true);
  const Handle c = f.Make(client, kKiB, "ddr0");
  CHECK(client.State(c).state == TensorState::kCreating);
  CHECK(f.Counted().evictions >= 1);
  CHECK(f.Describe(client, a).status().code() == absl::StatusCode::kNotFound);
  CHECK(f.Lookup(client, {"a"})->get().miss_reason == "NOT_FOUND");
  (void)b;
}

TEST_CASE("flash full of what may not be dropped: ddr refuses, hbm says FULL", "[room]") {
  CoreOptions options;
  options.flash = kKiB;
  options.ddr = 2 * kKiB;
  CoreFixture f(options);
  CoreClient client = f.Open();
  f.MakeOnFlash(client, kKiB);
  f.MakeSealed(client, kKiB, "ddr0");
  f.MakeSealed(client, 768, "ddr0");
  for (int i = 0; i < 7; ++i) f.MakeSealed(client, kKiB, "hbm0");
  const auto answer = f.Allocate(client, f.One(2 * kKiB));
  CHECK(Is(answer->status(), absl::StatusCode::kResourceExhausted, Reason::kFull));
  CHECK(f.copier.size() == 0);
  CHECK(f.Counted().evictions == 0);
  CHECK(f.manager->GetStatus(std::nullopt).tensors == 10);
}

TEST_CASE("a droppable victim waits for room below that is on its way", "[room]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 15; ++i) f.MakeSealed(client, kKiB, "ddr0");
  f.MakeSealed(client, kKiB, "hbm0");
  (void)f.Swap(client, {f.MakeSealed(client, kKiB, "hbm0")}, "ddr0");
  f.Settle();
  REQUIRE(f.Used(f.kDdr) == 16 * kKiB);
  for (int i = 0; i < 6; ++i) f.MakeSealed(client, kKiB, "hbm0", "", /*droppable=*/true);
  const auto answer = f.AllocateWaiting(client, 4 * kKiB);
  for (int i = 0; i < 20 && !answer->done(); ++i) {
    f.Settle();
    f.Pass(milliseconds(2));
  }
  CHECK(answer->get().tensors[0].ok());
  CHECK(f.Counted().evictions == 0);
}

TEST_CASE("a full node refuses in linear time", "[room]") {
  // Nothing can move anywhere: each victim must not walk all the lists below again.
  CoreOptions options;
  options.hbm = options.ddr = options.flash = 64 * kKiB;
  CoreFixture f(options);
  CoreClient client = f.Open();
  auto fill = [&](const std::string& tier) {
    // New bytes stay out of the reserve, a Swap takes the last of it too.
    for (int i = 0; i < 128; ++i) {
      const Handle handle = f.MakeSealed(client, 512, "hbm0");
      const auto swap = f.Swap(client, {handle}, tier);
      f.Settle();
      REQUIRE(swap->get().tensors[0].ok());
    }
  };
  fill("flash0");
  fill("ddr0");
  for (int i = 0; i < 127; ++i) f.MakeSealed(client, 512, "hbm0");
  REQUIRE(f.Used(f.kDdr) == 64 * kKiB);
  REQUIRE(f.Used(f.kFlash) == 64 * kKiB);
  const std::size_t before = f.tier(f.kDdr).asked() + f.tier(f.kFlash).asked();
  for (int i = 0; i < 10; ++i) {
    CHECK(Is(f.Allocate(client, f.One(8 * kKiB))->status(), absl::StatusCode::kResourceExhausted,
             Reason::kFull));
  }
  CHECK(f.tier(f.kDdr).asked() + f.tier(f.kFlash).asked() - before < 10 * 50);
  CHECK(f.copier.size() == 0);
}

TEST_CASE("flash that failed three writes in a row is offline", "[room]") {
  CoreOptions options;
  options.ddr = 2 * kKiB;
  CoreFixture f(options);
  CoreClient client = f.Open();
  const Handle a = f.MakeSealed(client, 512, "ddr0", "a", /*droppable=*/true);
  const Handle b = f.MakeSealed(client, 512, "ddr0", "b");
  const auto swap = f.Swap(client, {a}, "flash0");
  for (int i = 0; i < 3; ++i) {
    f.Run();
    REQUIRE(f.copier.size() == 1);
    CHECK(f.manager->ListTiers(std::nullopt)[f.kFlash].state == tier::TierState::kOnline);
    f.FailCopy(0);
  }
  CHECK(f.manager->ListTiers(std::nullopt)[f.kFlash].state == tier::TierState::kOffline);
  f.PassSlowly(milliseconds(100));
  CHECK(swap->done());
  CHECK(client.State(a).state == TensorState::kResident);

  // Droppable victims of ddr are dropped from now on, others stay and new bytes are refused.
  f.Make(client, kKiB, "ddr0");
  CHECK(f.Describe(client, a).status().code() == absl::StatusCode::kNotFound);
  CHECK(f.Describe(client, b).ok());
  CHECK(Is(f.Allocate(client, f.One(kKiB, "ddr0"))->status(), absl::StatusCode::kResourceExhausted,
           Reason::kPinned));
}

TEST_CASE("failed reads of flash are no errors of the memory they were read into", "[room]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle a = f.MakeOnFlash(client, kKiB);
  const auto acquire = f.Acquire(client, a);
  for (int i = 0; i < 3; ++i) {
    f.Run();
    REQUIRE(f.copier.size() == 1);
    f.FailCopy(0);
  }
  f.PassSlowly(milliseconds(10));
  const auto tiers = f.manager->ListTiers(std::nullopt);
  CHECK(tiers[f.kDdr].state == tier::TierState::kOnline);
  CHECK(tiers[f.kFlash].state == tier::TierState::kOffline);
  CHECK(Is(acquire->status(), absl::StatusCode::kUnavailable, Reason::kIo));
  f.Make(client, kKiB, "ddr0");
}

TEST_CASE("reads that end well between failed ones keep flash online", "[room]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle good = f.MakeOnFlash(client, kKiB);
  std::vector<Handle> bad;
  for (int i = 0; i < 4; ++i) bad.push_back(f.MakeOnFlash(client, kKiB));
  for (const Handle handle : bad) {
    const auto lost = f.Acquire(client, handle);
    f.Run();
    f.FailCopy(0, absl::StatusCode::kDataLoss);
    CHECK(lost->status().code() == absl::StatusCode::kDataLoss);
    const auto found = f.Acquire(client, good, "ddr0");
    f.Settle();
    REQUIRE(found->done());
    client.Unpin(good);
    (void)f.Swap(client, {good}, "flash0");  // its clean copy is there: nothing is written
    f.Settle();
    REQUIRE(client.State(good).state == TensorState::kAbsent);
  }
  CHECK(f.manager->ListTiers(std::nullopt)[f.kFlash].state == tier::TierState::kOnline);
}

TEST_CASE("an exchange under full tiers ends: in needs out, out needs in", "[room]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> high, low;
  for (int i = 0; i < 7; ++i) high.push_back(f.MakeSealed(client, kKiB, "hbm0"));
  for (int i = 0; i < 15; ++i) low.push_back(f.MakeSealed(client, kKiB, "ddr0"));
  // Both ways at once: four come up, four go down.
  core::AcquireArgs args;
  args.handles.assign(low.begin(), low.begin() + 4);
  args.tier = "hbm0";
  const auto up = f.Acquire(client, std::move(args), milliseconds(500));
  const auto down = f.Swap(client, {high.begin(), high.begin() + 4}, "ddr0", milliseconds(500));
  for (int i = 0; i < 50 && !(up->done() && down->done()); ++i) {
    f.Settle();
    f.Pass(milliseconds(2));
  }
  for (const auto& one : up->get().tensors) {
    REQUIRE(one.ok());
    CHECK(one->location.tier == f.kHbm);
  }
  for (const auto& one : down->get().tensors) CHECK(one.ok());
}

TEST_CASE("room for a hint may cost what it was meant for nothing", "[room]") {
  // The room for a Prefetch is made by dropping a victim below; it must not be the tensor itself.
  CoreOptions options;
  options.flash = kKiB;
  options.ddr = 2 * kKiB;
  CoreFixture f(options);
  CoreClient client = f.Open();
  f.MakeOnFlash(client, kKiB);
  const Handle wanted = f.MakeSealed(client, kKiB, "ddr0", "wanted", /*droppable=*/true);
  f.Make(client, 640, "ddr0");
  for (int i = 0; i < 4; ++i) f.MakeSealed(client, 1536, "hbm0", "", /*droppable=*/true);
  f.Make(client, 960, "hbm0");
  const absl::Status taken = f.Prefetch(client, wanted);
  INFO(taken.ToString());
  f.Settle();
  CHECK(f.Describe(client, wanted).ok());
}

TEST_CASE("room for an Acquire never costs the tensor it is for", "[room]") {
  CoreOptions options;
  options.flash = kKiB;
  options.ddr = 2 * kKiB;
  CoreFixture f(options);
  CoreClient client = f.Open();
  f.MakeOnFlash(client, kKiB);
  const Handle wanted = f.MakeSealed(client, kKiB, "ddr0", "wanted", /*droppable=*/true);
  f.Make(client, 640, "ddr0");
  for (int i = 0; i < 4; ++i) f.MakeSealed(client, 1536, "hbm0", "", /*droppable=*/true);
  f.Make(client, 960, "hbm0");
  // The reserve is for such as this one: fill it too.
  const Handle filler = f.Make(client, 128, "ddr0");
  client.Unpin(filler);
  (void)f.Swap(client, {filler}, "hbm0");
  f.Settle();
  REQUIRE(f.Acquire(client, filler, "hbm0")->get().tensors[0].ok());
  const auto answer = f.Acquire(client, wanted, "hbm0");
  f.Settle();
  CHECK(answer->get().tensors[0]->location.tier == f.kHbm);
}

TEST_CASE("enough bytes in pieces: a window is emptied", "[room]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 7; ++i) made.push_back(f.MakeSealed(client, kKiB));
  for (int i = 0; i < 7; i += 2) REQUIRE(f.Free(client, made[static_cast<std::size_t>(i)]).ok());
  f.Run();  // five KiB are free, none of them next to another but the last two
  const auto answer = f.AllocateWaiting(client, 3 * kKiB);
  f.Settle();
  f.Pass(milliseconds(2));
  f.Settle();
  CHECK(answer->get().tensors[0].ok());
  CHECK(f.Used(f.kDdr) <= 2 * kKiB);  // no more than lay in the window
}

TEST_CASE("where what leaves is lost, the window is one of the coldest", "[room]") {
  CoreOptions options;
  options.flash = 8 * kKiB;
  CoreFixture f(options);
  CoreClient client = f.Open();
  // Cold small ones from 2 KiB on, two hot ones before them.
  const Handle place = f.MakeOnFlash(client, 2 * kKiB);
  std::vector<Handle> cold;
  for (int i = 0; i < 12; ++i) {
    cold.push_back(f.MakeOnFlash(client, 512, "cold" + std::to_string(i), /*droppable=*/true));
  }
  REQUIRE(f.Free(client, place).ok());
  f.Run();
  std::vector<Handle> hot;
  for (const char* key : {"a", "b"}) {
    hot.push_back(f.MakeOnFlash(client, kKiB, key, /*droppable=*/true));
  }
  // 2 KiB in pieces, the first of them beside a hot one.
  for (const std::size_t i : {0u, 3u, 5u, 7u}) REQUIRE(f.Free(client, cold[i]).ok());
  f.Run();
  f.MakeOnFlash(client, kKiB, "more", /*droppable=*/true);
  for (const Handle handle : hot) CHECK(f.Describe(client, handle).ok());
  CHECK(f.Describe(client, cold[1]).status().code() == absl::StatusCode::kNotFound);
  CHECK(f.Describe(client, cold[2]).ok());  // no more than the window holds
}

TEST_CASE("enough bytes in pieces that pins keep apart: it says so, and how long one is",
          "[room]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 7; ++i) {
    made.push_back(i % 2 == 0 ? f.MakeSealed(client, kKiB) : f.Make(client, kKiB));
  }
  for (std::size_t i = 0; i < 7; i += 2) REQUIRE(f.Free(client, made[i]).ok());
  f.Run();
  const absl::Status refused = f.Allocate(client, f.One(3 * kKiB))->status();
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()),
             Catch::Contains("5120 free") && Catch::Contains("about 2048 at most in one piece"));
  // Where bytes are missing, not their order, there is no word of it.
  const absl::Status full = f.Allocate(client, f.One(6 * kKiB))->status();
  CHECK_THAT(std::string(full.message()), !Catch::Contains("in one piece"));
}

TEST_CASE("clean copies are dropped before any tensor has to go", "[room]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> twice;
  for (int i = 0; i < 4; ++i) {
    twice.push_back(f.MakeSealed(client, kKiB, "ddr0"));
    const auto up = f.Acquire(client, twice.back(), "hbm0");
    f.Settle();
    client.Unpin(twice.back());
  }
  CHECK(f.manager->ListTiers(std::nullopt)[f.kDdr].clean_copies == 4 * kKiB);
  for (int i = 0; i < 13; ++i) f.MakeSealed(client, kKiB, "ddr0");
  CHECK(f.copier.size() == 0);
  CHECK(f.Counted().clean_drops == 2);  // the oldest ones, and no more than needed
  CHECK(f.Describe(client, twice[0])->clean_copies.empty());
  CHECK(f.Describe(client, twice[3])->clean_copies == std::vector<TierId>{f.kDdr});
}

}  // namespace
}  // namespace hmm::testing
