// SPDX-License-Identifier: Apache-2.0
//
// Tiers that change their size, are compacted, and tensors that operators move.
#include <numeric>

#include "hmm/events.h"
#include "unit/hmm/core_fixture.h"

namespace hmm::testing {
namespace {

template <typename T>
AnswerPtr<T> Ask(const std::function<core::Manager::OpId(core::Callback<T>)>& ask) {
  auto answer = std::make_shared<Answer<T>>();
  answer->op = ask([answer](absl::StatusOr<T> result) { answer->value = std::move(result); });
  return answer;
}

AnswerPtr<core::ResizeResult> Resize(CoreFixture& f, const std::string& tier, Bytes bytes,
                                     milliseconds wait = milliseconds(5000)) {
  return Ask<core::ResizeResult>([&](core::Callback<core::ResizeResult> done) {
    return f.manager->ResizeTier(tier, bytes, f.clock.Now() + wait, std::move(done));
  });
}

AnswerPtr<core::CompactResult> Compact(CoreFixture& f, const std::string& tier,
                                       milliseconds wait = milliseconds(5000)) {
  return Ask<core::CompactResult>([&](core::Callback<core::CompactResult> done) {
    return f.manager->Compact(tier, f.clock.Now() + wait, std::move(done));
  });
}

AnswerPtr<core::SwapManyResult> SwapMany(CoreFixture& f, core::TensorSelector selector,
                                         const std::string& tier,
                                         milliseconds wait = milliseconds(5000)) {
  return Ask<core::SwapManyResult>([&](core::Callback<core::SwapManyResult> done) {
    return f.manager->SwapMany(std::move(selector), tier, f.clock.Now() + wait, std::move(done));
  });
}

// Steps and copies until it has answered, for so long at most.
template <typename T>
void Await(CoreFixture& f, const AnswerPtr<T>& answer, milliseconds longest = milliseconds(1000)) {
  for (auto passed = milliseconds(0); !answer->done() && passed < longest;
       passed += milliseconds(2)) {
    f.Settle();
    f.Pass(milliseconds(2));
  }
}

TEST_CASE("a tier grows at once, and holds more", "[resize]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 7; ++i) f.MakeSealed(client, kKiB);
  const auto answer = Resize(f, "hbm0", 12 * kKiB + 1);
  CHECK(answer->get().old_bytes == 8 * kKiB);
  CHECK(answer->get().new_bytes == 12 * kKiB + 64);
  CHECK(answer->get().tensors == 0);
  CHECK(f.tier(f.kHbm).capacity() == 12 * kKiB + 64);
  for (int i = 0; i < 3; ++i) f.MakeSealed(client, kKiB);
  CHECK(f.Used(f.kHbm) == 10 * kKiB);
  CHECK(f.copier.size() == 0);
}

TEST_CASE("a tier shrinks by demoting what no longer fits, coldest first", "[resize]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 6; ++i) {
    made.push_back(f.Make(client, kKiB));
    f.Write(client, made.back(), static_cast<std::uint8_t>(i + 1));
    REQUIRE(f.Seal(client, made.back()).ok());
  }
  const auto answer = Resize(f, "hbm0", 3 * kKiB);
  CHECK(!answer->done());
  Await(f, answer);
  CHECK(answer->get().new_bytes == 3 * kKiB);
  CHECK(answer->get().freed_bytes == 3 * kKiB);
  CHECK(answer->get().tensors == 3);
  CHECK(f.tier(f.kHbm).capacity() == 3 * kKiB);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(client.State(made[i]).tier == (i < 3 ? f.kDdr : f.kHbm));
    CHECK(f.Holds(client, made[i], static_cast<std::uint8_t>(i + 1)));
  }
  f.Run();
}

TEST_CASE("what fits but lies in the part that goes is moved within the tier", "[resize]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 7; ++i) {
    made.push_back(f.Make(client, kKiB));
    f.Write(client, made.back(), static_cast<std::uint8_t>(i + 1));
    REQUIRE(f.Seal(client, made.back()).ok());
  }
  // The first four go: what is left lies behind the new end.
  for (std::size_t i = 0; i < 4; ++i) REQUIRE(f.Free(client, made[i]).ok());
  const auto answer = Resize(f, "hbm0", 4 * kKiB);
  Await(f, answer);
  CHECK(answer->get().tensors == 0);
  CHECK(f.tier(f.kHbm).capacity() == 4 * kKiB);
  for (std::size_t i = 4; i < 7; ++i) {
    CHECK(client.State(made[i]).tier == f.kHbm);
    CHECK(f.Holds(client, made[i], static_cast<std::uint8_t>(i + 1)));
    const auto why = f.manager->Explain(std::nullopt, "a", made[i], "", 4);
    REQUIRE(why.ok());
    REQUIRE(why->moves.size() == 1);
    CHECK(why->moves[0].decision.cause == core::MoveCause::kResize);
    CHECK(why->moves[0].from == why->moves[0].to);
  }
  CHECK(f.Counted().promotions + f.Counted().demotions == 0);
}

TEST_CASE("what a resize moves says so, against the size it goes to", "[resize]") {
  CoreOptions options;
  options.high = 0.8;
  options.low = 0.6;
  CoreFixture f(options);
  CoreClient client = f.Open();
  for (int i = 0; i < 12; ++i) f.MakeSealed(client, 512);
  f.Settle();
  const core::EventBus& bus = f.manager->events();
  const std::uint64_t before = bus.last();
  const auto answer = Resize(f, "hbm0", 4 * kKiB);
  Await(f, answer);
  CHECK(answer->get().new_bytes == 4 * kKiB);
  f.Settle();
  std::size_t resized = 0;
  std::size_t below = 0;
  for (std::uint64_t n = before + 1; n <= bus.last(); ++n) {
    const core::Event& event = bus.at(n);
    if (event.type == core::EventType::kMove) {
      const core::Decision& why = event.move.decision;
      INFO(core::MoveCauseName(why.cause) << " at " << why.used << " of " << why.capacity);
      CHECK(why.capacity == 4 * kKiB);
      CHECK((why.cause == core::MoveCause::kResize || why.used <= why.capacity));
      if (why.cause == core::MoveCause::kResize) ++resized;
    } else if (event.mark == core::MarkCrossed::kBelowLow) {
      ++below;
      CHECK(event.used <= event.mark_bytes);
    }
  }
  CHECK(resized >= answer->get().tensors);
  CHECK(answer->get().tensors >= 4);
  CHECK(below == 1);
}

TEST_CASE("flash shrinks too: what lies behind its new end moves within it", "[resize]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle first = f.MakeOnFlash(client, 20 * kKiB / 2);
  const Handle second = f.MakeOnFlash(client, kKiB, "k");
  REQUIRE(f.Free(client, first).ok());
  const auto answer = Resize(f, "flash0", 4 * kKiB);
  Await(f, answer);
  CHECK(answer->get().new_bytes == 4 * kKiB);
  CHECK(client.State(second).state == TensorState::kAbsent);
  // Its bytes and their checksum went with it.
  const auto back = f.Acquire(client, second);
  f.Settle();
  back->get();
  CHECK(Resize(f, "flash0", 32 * kKiB)->get().new_bytes == 32 * kKiB);
}

TEST_CASE("a tier cannot shrink below what is pinned, and says how much that is", "[resize]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 4; ++i) f.Make(client, kKiB);
  for (int i = 0; i < 2; ++i) f.MakeSealed(client, kKiB);
  const auto answer = Resize(f, "hbm0", 3 * kKiB);
  Await(f, answer);
  CHECK(Is(answer->status(), absl::StatusCode::kFailedPrecondition, Reason::kPinned));
  CHECK(std::string(answer->status().message()).find("4 KiB (4096 bytes)") != std::string::npos);
  CHECK(DetailsOf(answer->status()).at("pinned_bytes") == "4096");
  CHECK(DetailsOf(answer->status()).at("smallest_bytes") == "4096");
  CHECK(f.tier(f.kHbm).capacity() == 8 * kKiB);
  CHECK(f.tier(f.kHbm).limit() == 8 * kKiB);
  // Nothing was moved for it.
  CHECK(f.Used(f.kHbm) == 6 * kKiB);
}

TEST_CASE("a pin in the part that goes is waited for a while", "[resize]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 7; ++i) made.push_back(f.MakeSealed(client, kKiB));
  for (std::size_t i = 0; i < 6; ++i) REQUIRE(f.Free(client, made[i]).ok());
  REQUIRE(client.TryPin(made[6]));
  SECTION("until it goes") {
    const auto answer = Resize(f, "hbm0", 4 * kKiB);
    for (int i = 0; i < 20; ++i) f.Pass(milliseconds(2));
    CHECK(!answer->done());
    client.Unpin(made[6]);
    Await(f, answer);
    CHECK(answer->get().new_bytes == 4 * kKiB);
  }
  SECTION("or it says so") {
    const auto answer = Resize(f, "hbm0", 4 * kKiB);
    Await(f, answer);
    CHECK(Is(answer->status(), absl::StatusCode::kFailedPrecondition, Reason::kPinned));
    CHECK(f.tier(f.kHbm).limit() == 8 * kKiB);
  }
  SECTION("or the deadline passes first") {
    const auto answer = Resize(f, "hbm0", 4 * kKiB, milliseconds(10));
    Await(f, answer);
    CHECK(Is(answer->status(), absl::StatusCode::kDeadlineExceeded, Reason::kDeadline));
    CHECK(f.tier(f.kHbm).limit() == 8 * kKiB);
  }
  SECTION("or the operator gives up") {
    const auto answer = Resize(f, "hbm0", 4 * kKiB);
    f.manager->Cancel(answer->op);
    CHECK(Is(answer->status(), absl::StatusCode::kCancelled, Reason::kCancelled));
    CHECK(f.tier(f.kHbm).limit() == 8 * kKiB);
  }
}

TEST_CASE("two tiers that cannot shrink yet do not keep each other busy", "[resize]") {
  CoreFixture f;
  CoreClient client = f.Open();
  // Behind each new end lies what a batch that waits has collected: no tensor, so nothing to move.
  std::vector<AnswerPtr<core::AllocateResult>> batches;
  for (const std::string tier : {"hbm0", "ddr0"}) {
    const std::size_t chunks = tier == "hbm0" ? 8 : 16;
    std::vector<Handle> made;
    for (std::size_t i = 0; i < chunks - 2; ++i) {
      made.push_back(f.MakeSealed(client, kKiB, tier));
      REQUIRE(client.TryPin(made.back()));
    }
    core::AllocateArgs args = f.One(kKiB, tier);
    args.tensors.push_back(args.tensors[0]);
    args.tensors[1].bytes = chunks / 2 * kKiB;
    args.wait = true;
    batches.push_back(f.Allocate(client, std::move(args)));
    for (std::size_t i = 1; i < made.size(); i += i < chunks / 2 ? 2 : 1) {
      client.Unpin(made[i]);
      REQUIRE(f.Free(client, made[i]).ok());
    }
  }
  const auto hbm = Resize(f, "hbm0", 5 * kKiB);
  f.executor.RunReady(1);  // out of step: each lists what it finds when the other has finished
  const auto ddr = Resize(f, "ddr0", 9 * kKiB);
  f.Run();  // it comes to rest
  for (int i = 0; i < 5; ++i) f.Pass(milliseconds(2));
  REQUIRE_FALSE(hbm->done());
  REQUIRE_FALSE(ddr->done());
  for (const auto& batch : batches) {
    REQUIRE_FALSE(batch->done());
    f.manager->Cancel(batch->op);
  }
  Await(f, hbm);
  Await(f, ddr);
  CHECK(hbm->get().new_bytes == 5 * kKiB);
  CHECK(ddr->get().new_bytes == 9 * kKiB);
}

TEST_CASE("while a tier shrinks nobody takes what it gives up", "[resize]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 6; ++i) f.MakeSealed(client, kKiB);
  const auto answer = Resize(f, "hbm0", 4 * kKiB);
  const auto refused = f.Allocate(client, CoreFixture::One(kKiB));
  CHECK(Is(refused->status(), absl::StatusCode::kResourceExhausted, Reason::kFull));
  CHECK(Is(Resize(f, "hbm0", 6 * kKiB)->status(), absl::StatusCode::kUnavailable,
           Reason::kQueueFull));
  Await(f, answer);
  CHECK(answer->get().new_bytes == 4 * kKiB);
}

TEST_CASE("what must leave and has no place keeps the tier as it is", "[resize]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 20; ++i) f.MakeOnFlash(client, kKiB);
  const auto answer = Resize(f, "flash0", 4 * kKiB);
  Await(f, answer);
  CHECK(Is(answer->status(), absl::StatusCode::kFailedPrecondition, Reason::kFull));
  CHECK(f.tier(f.kFlash).capacity() == 32 * kKiB);
}

TEST_CASE("moves within a tier that lead nowhere are given up", "[resize]") {
  CoreFixture f;
  CoreClient client = f.Open();
  f.MakeSealed(client, kKiB);
  f.tier(f.kHbm).KeepObstacles();
  const auto answer = Resize(f, "hbm0", 4 * kKiB, milliseconds(1500));
  for (int i = 0; i < 2000 && !answer->done(); ++i) {
    f.Pass(milliseconds(1));
    if (f.copier.size() > 0) f.copier.Complete(0);
  }
  CHECK(Is(answer->status(), absl::StatusCode::kFailedPrecondition, Reason::kFull));
  CHECK(f.tier(f.kHbm).capacity() == 8 * kKiB);
  CHECK(f.tier(f.kHbm).limit() == 8 * kKiB);
}

TEST_CASE("sizes that no tier can have", "[resize]") {
  CoreOptions options;
  options.reserve = kKiB;
  CoreFixture f(options);
  CHECK(Is(Resize(f, "hbm7", kKiB)->status(), absl::StatusCode::kNotFound, Reason::kNotFound));
  CHECK(Is(Resize(f, "hbm0", 0)->status(), absl::StatusCode::kInvalidArgument, Reason::kBadSize));
  CHECK(
      Is(Resize(f, "hbm0", kKiB)->status(), absl::StatusCode::kInvalidArgument, Reason::kBadSize));
  CHECK(Is(Resize(f, "hbm0", 2 * kKiB - 64)->status(), absl::StatusCode::kInvalidArgument,
           Reason::kBadSize));
  CHECK(Is(Resize(f, "hbm0", 17 * kKiB)->status(), absl::StatusCode::kFailedPrecondition,
           Reason::kTooLarge));
}

TEST_CASE("compaction moves tensors within their tier and changes none", "[compact]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 7; ++i) {
    made.push_back(f.Make(client, 512));
    f.Write(client, made.back(), static_cast<std::uint8_t>(i + 1));
    REQUIRE(f.Seal(client, made.back()).ok());
  }
  for (const std::size_t i : {0U, 2U, 4U}) REQUIRE(f.Free(client, made[i]).ok());
  const Bytes used = f.Used(f.kHbm);
  const auto answer = Compact(f, "hbm0");
  Await(f, answer);
  CHECK(answer->get().tensors > 0);
  CHECK(answer->get().moved_bytes == answer->get().tensors * 512);
  CHECK(f.Used(f.kHbm) == used);
  for (const std::size_t i : {1U, 3U, 5U, 6U}) {
    CHECK(client.State(made[i]).tier == f.kHbm);
    CHECK(f.Holds(client, made[i], static_cast<std::uint8_t>(i + 1)));
  }
  CHECK(Is(Compact(f, "hbm7")->status(), absl::StatusCode::kNotFound, Reason::kNotFound));
}

TEST_CASE("compaction leaves alone what is pinned and says so", "[compact]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle pinned = f.Make(client, 512);
  const auto at = client.Slot(pinned).offset.load();
  const auto answer = Compact(f, "");
  Await(f, answer);
  CHECK(answer->get().pinned_windows == 1);
  CHECK(answer->get().tensors == 0);
  CHECK(client.Slot(pinned).offset.load() == at);
}

TEST_CASE("an operator moves a tenant's tensors: named, by key, or all", "[swapmany]") {
  CoreFixture f;
  CoreClient a = f.Open("a");
  CoreClient b = f.Open("b");
  std::vector<Handle> made;
  for (int i = 0; i < 4; ++i) {
    made.push_back(f.MakeSealed(a, 512, "hbm0", (i < 2 ? "x/" : "y/") + std::to_string(i)));
  }
  const Handle other = f.MakeSealed(b, 512, "hbm0", "x/other");
  core::TensorSelector selector;
  selector.tenant = "a";
  SECTION("by handle") {
    selector.handles = {made[0], Handle{77, 7}};
    const auto answer = SwapMany(f, selector, "ddr0");
    Await(f, answer);
    CHECK(answer->get().tensors == 1);
    CHECK(answer->get().failed == 1);
    CHECK(ReasonOf(answer->get().first_error) == Reason::kNotFound);
  }
  SECTION("by key") {
    selector.keys = {"x/1", "nothing"};
    const auto answer = SwapMany(f, selector, "ddr0");
    Await(f, answer);
    CHECK(answer->get().tensors == 1);
    CHECK(answer->get().failed == 1);
    CHECK(a.State(made[1]).tier == f.kDdr);
  }
  SECTION("named twice is one") {
    selector.keys = {"x/1", "x/0", "x/1"};
    const auto answer = SwapMany(f, selector, "ddr0");
    Await(f, answer);
    CHECK(answer->get().tensors == 2);
    CHECK(answer->get().moved_bytes == 1024);
    selector.keys.clear();
    selector.handles = {made[2], made[2]};
    const auto handles = SwapMany(f, selector, "ddr0");
    Await(f, handles);
    CHECK(handles->get().tensors == 1);
  }
  SECTION("by prefix") {
    selector.key_prefix = "x/";
    const auto answer = SwapMany(f, selector, "flash0");
    Await(f, answer);
    CHECK(answer->get().tensors == 2);
    CHECK(answer->get().moved_bytes == 1024);
    CHECK(a.State(made[0]).state == TensorState::kAbsent);
    CHECK(a.State(made[2]).tier == f.kHbm);
  }
  SECTION("all, but for what is pinned") {
    REQUIRE(a.TryPin(made[3]));
    const auto answer = SwapMany(f, selector, "ddr0");
    Await(f, answer);
    CHECK(answer->get().tensors == 3);
    CHECK(answer->get().pinned == 1);
    const auto again = SwapMany(f, selector, "ddr0");
    Await(f, again);
    CHECK(again->get().there == 3);
    const auto why = f.manager->Explain(std::nullopt, "a", made[0], "", 4);
    REQUIRE(why.ok());
    CHECK(why->moves.at(0).decision.cause == core::MoveCause::kAdminSwap);
  }
  CHECK(b.State(other).tier == f.kHbm);
  f.Run();
}

TEST_CASE("what an operator's move brought and then lost again is not said to be there",
          "[swapmany]") {
  CoreOptions options;
  options.hbm = 20 * kKiB;  // 320 of them: more than one batch, less than all
  options.ddr = 32 * kKiB;
  CoreFixture f(options);
  CoreClient client = f.Open("a");
  for (int i = 0; i < 400; ++i) f.MakeSealed(client, 64, "ddr0");
  core::TensorSelector selector;
  selector.tenant = "a";
  const auto answer = SwapMany(f, selector, "hbm0");
  Await(f, answer);
  const core::SwapManyResult& result = answer->get();
  CHECK(result.tensors == f.manager->ListTiers(std::nullopt)[f.kHbm].tensors);
  CHECK(result.moved_bytes == 64 * result.tensors);
  CHECK(result.left > 0);
  CHECK(result.tensors + result.left + result.failed == 400);
}

TEST_CASE("an operator's moves end at the deadline, or when he gives up", "[swapmany]") {
  CoreFixture f;
  CoreClient client = f.Open("a");
  for (int i = 0; i < 4; ++i) f.MakeSealed(client, 512);
  core::TensorSelector selector;
  selector.tenant = "a";
  const auto late = SwapMany(f, selector, "ddr0", milliseconds(4));
  f.PassSlowly(milliseconds(10));
  CHECK(late->get().failed == 4);
  CHECK(ReasonOf(late->get().first_error) == Reason::kDeadline);
  f.Settle();
  const auto cancelled = SwapMany(f, selector, "flash0");
  f.Run();
  f.manager->Cancel(cancelled->op);
  CHECK(Is(cancelled->status(), absl::StatusCode::kCancelled, Reason::kCancelled));
  f.Settle();
}

TEST_CASE("operators' choices that name nothing", "[swapmany]") {
  CoreFixture f;
  CoreClient client = f.Open("a");
  core::TensorSelector selector;
  const auto status = [&](const std::string& tier) {
    return SwapMany(f, selector, tier)->status();
  };
  CHECK(Is(status("ddr0"), absl::StatusCode::kNotFound, Reason::kNotFound));
  selector.tenant = "nobody";
  CHECK(std::string(status("ddr0").message()).find("session list") != std::string::npos);
  CHECK(Is(status("ddr0"), absl::StatusCode::kNotFound, Reason::kNotFound));
  selector.tenant = "a";
  CHECK(Is(status("tape0"), absl::StatusCode::kNotFound, Reason::kNotFound));
  selector.handles = {Handle{1, 1}};
  selector.keys = {"k"};
  CHECK(Is(status("ddr0"), absl::StatusCode::kInvalidArgument, Reason::kBadArgument));
  selector.keys.clear();
  selector.key_prefix = "k";
  CHECK(Is(status("ddr0"), absl::StatusCode::kInvalidArgument, Reason::kBadArgument));
  selector.key_prefix.clear();
  selector.handles.assign(4097, Handle{1, 1});
  CHECK(Is(status("ddr0"), absl::StatusCode::kInvalidArgument, Reason::kBatchTooLarge));
}

TEST_CASE("an operator's hints are taken, or dropped and counted", "[prefetchmany]") {
  CoreFixture f;
  CoreClient client = f.Open("a");
  const Handle low = f.MakeOnFlash(client, 512, "k");
  const Handle there = f.MakeSealed(client, 512, "hbm0", "h");
  core::TensorSelector selector;
  selector.tenant = "a";
  selector.keys = {"k", "h", "none"};
  const auto hinted = f.manager->PrefetchMany(selector, "");
  REQUIRE(hinted.ok());
  CHECK(hinted->taken == 2);
  CHECK(hinted->dropped == 1);
  CHECK(ReasonOf(hinted->first_error) == Reason::kNotFound);
  f.Settle();
  CHECK(client.State(low).tier == f.kHbm);
  CHECK(client.State(there).tier == f.kHbm);
  CHECK(Is(f.manager->PrefetchMany(selector, "flash0").status(), absl::StatusCode::kInvalidArgument,
           Reason::kBadArgument));
}

}  // namespace
}  // namespace hmm::testing
