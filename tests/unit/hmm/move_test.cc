// SPDX-License-Identifier: Apache-2.0
//
// Moves: hop by hop, clean copies, hints, checksums, what recency decides.
#include "unit/hmm/core_fixture.h"

namespace hmm::testing {
namespace {

TEST_CASE("flash -> ddr -> hbm stays MOVING in between", "[move]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeOnFlash(client, kKiB);
  const auto answer = f.Acquire(client, handle, "hbm0");
  REQUIRE(f.copier.size() == 1);
  f.copier.Complete(0);
  f.Run();
  REQUIRE(f.copier.size() == 1);
  CHECK(client.State(handle).state == TensorState::kMoving);
  CHECK(client.State(handle).tier == f.kDdr);
  CHECK(!client.TryPin(handle));
  f.copier.Complete(0);
  f.Run();
  CHECK(answer->get().tensors[0]->location.tier == f.kHbm);
  // Sealed: both lower ones stay as clean copies.
  CHECK(f.Describe(client, handle)->clean_copies == std::vector<TierId>{f.kDdr, f.kFlash});
}

TEST_CASE("a sealed tensor's next way down copies nothing", "[move]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB, "ddr0");
  f.Write(client, handle, 0x77);
  const auto up = f.Swap(client, {handle}, "hbm0");
  f.Settle();
  CHECK(f.Used(f.kDdr) == kKiB);  // the clean copy
  const auto down = f.Swap(client, {handle}, "ddr0");
  CHECK(*down->get().tensors[0] == f.kDdr);
  CHECK(f.copier.size() == 0);
  CHECK(f.Used(f.kHbm) == 0);
  CHECK(f.Used(f.kDdr) == kKiB);
  CHECK(f.Holds(client, handle, 0x77));
}

TEST_CASE("an unsealed tensor is copied each time and leaves nothing behind", "[move]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.Make(client, kKiB, "ddr0");
  client.Unpin(handle);
  const auto up = f.Swap(client, {handle}, "hbm0");
  f.Settle();
  CHECK(*up->get().tensors[0] == f.kHbm);
  CHECK(f.Used(f.kDdr) == 0);
  REQUIRE(client.TryPin(handle));
  f.Write(client, handle, 0x42);  // dirty again
  client.Unpin(handle);
  const auto down = f.Swap(client, {handle}, "ddr0");
  REQUIRE(f.copier.size() == 1);
  f.Settle();
  CHECK(*down->get().tensors[0] == f.kDdr);
  CHECK(f.Holds(client, handle, 0x42));
}

TEST_CASE("a way down past a dropped copy uses the one below it", "[move]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeOnFlash(client, kKiB);
  (void)f.Swap(client, {handle}, "hbm0");
  f.Settle();
  REQUIRE(client.State(handle).tier == f.kHbm);
  f.MakeSealed(client, 15 * kKiB + 512, "ddr0");  // its copy in ddr0 has to go
  REQUIRE(f.Describe(client, handle)->clean_copies == std::vector<TierId>{f.kFlash});
  const auto down = f.Swap(client, {handle}, "flash0");
  f.Settle();
  CHECK(*down->get().tensors[0] == f.kFlash);
  CHECK(client.State(handle).state == TensorState::kAbsent);
  CHECK(f.Used(f.kFlash) == kKiB);
}

TEST_CASE("two hops down: the first tier counts it as gone after the first", "[move]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle moving = f.MakeSealed(client, 2 * kKiB);
  for (int i = 0; i < 4; ++i) f.MakeSealed(client, kKiB);
  (void)f.Swap(client, {moving}, "flash0");
  f.copier.Complete(0);
  f.Run();
  REQUIRE(f.copier.size() == 1);  // ddr0 -> flash0 under way
  for (int i = 0; i < 3; ++i) f.MakeSealed(client, kKiB);
  // Nothing is on its way out of hbm0 any more: an allocation has to start that itself.
  CHECK(Is(f.Allocate(client, f.One(kKiB))->status(), absl::StatusCode::kResourceExhausted,
           Reason::kFull));
  CHECK(f.copier.size() == 2);
}

TEST_CASE("a corrupted read is DATA_LOSS for who waits and a miss afterwards", "[move]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB, "ddr0", "key");
  (void)f.Swap(client, {handle}, "flash0");
  f.Run();
  f.copier.Corrupt(0, 100);  // nobody notices yet
  f.Run();
  REQUIRE(client.State(handle).state == TensorState::kAbsent);
  const auto answer = f.Acquire(client, handle);
  f.Settle();
  CHECK(Is(answer->status(), absl::StatusCode::kDataLoss, Reason::kChecksum));
  CHECK(f.Counted().lost_tensors == 1);
  const auto lookup = f.Lookup(client, {"key"});
  CHECK(lookup->get().run.empty());
  CHECK(lookup->get().miss_reason == "NOT_FOUND");
  // The tenant owned it: nobody would free it, so the daemon did.
  CHECK(Is(f.Acquire(client, handle)->status(), absl::StatusCode::kNotFound, Reason::kNotFound));
  CHECK(f.Used(f.kFlash) == 0);
  f.MakeSealed(client, kKiB, "ddr0", "key");
}

TEST_CASE("a lost tensor of a session says DATA_LOSS until it is freed", "[move]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeOnFlash(client, kKiB);
  const auto first = f.Acquire(client, handle);
  f.FailCopy(0, absl::StatusCode::kDataLoss);
  CHECK(first->status().code() == absl::StatusCode::kDataLoss);
  CHECK(f.Acquire(client, handle)->status().code() == absl::StatusCode::kDataLoss);
  CHECK(f.Prefetch(client, handle).code() == absl::StatusCode::kDataLoss);
  REQUIRE(f.Free(client, handle).ok());
  f.Run();
  CHECK(f.Used(f.kFlash) == 0);
}

TEST_CASE("bytes go down and up unchanged, and their checksum with them", "[move]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, 777, "hbm0");
  f.Write(client, handle, 0x99);
  (void)f.Swap(client, {handle}, "flash0");
  f.Settle();
  REQUIRE(client.State(handle).state == TensorState::kAbsent);
  const auto answer = f.Acquire(client, handle, "hbm0");
  REQUIRE(f.copier.size() == 1);
  CHECK(f.copier.job(0).expected_checksum.has_value());
  f.Settle();
  CHECK(answer->get().tensors[0].ok());
  CHECK(f.Holds(client, handle, 0x99));
}

TEST_CASE("Prefetch brings up, does not wait, and is dropped at its deadline", "[prefetch]") {
  CoreOptions options;
  options.core.mover.running_max = 1;
  CoreFixture f(options);
  CoreClient client = f.Open();
  const Handle a = f.MakeSealed(client, kKiB, "ddr0");
  const Handle b = f.MakeSealed(client, kKiB, "ddr0");
  const TimePoint soon = f.clock.Now() + milliseconds(5);
  CHECK(f.Prefetch(client, a, soon).ok());
  CHECK(f.Prefetch(client, b, soon).ok());
  CHECK(f.Used(f.kHbm) == 2 * kKiB);
  f.PassSlowly(milliseconds(6));
  CHECK(client.State(a).state == TensorState::kMoving);  // it runs already
  CHECK(client.State(b).state == TensorState::kResident);
  CHECK(client.State(b).tier == f.kDdr);
  CHECK(f.Used(f.kHbm) == kKiB);
  f.Settle();
  CHECK(client.State(a).tier == f.kHbm);
  CHECK(client.Pins(a) == 0);
  CHECK(f.Prefetch(client, a).ok());  // there already
  CHECK(f.copier.size() == 0);
}

TEST_CASE("the manager may go while a hint's deadline is still to come", "[prefetch]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB, "ddr0");
  REQUIRE(f.Prefetch(client, handle, f.clock.Now() + milliseconds(50)).ok());
  f.Settle();
  f.manager.reset();
  CHECK(f.executor.Advance(milliseconds(100)) > 0);  // timers find nobody
}

TEST_CASE("Prefetch says what it does not take", "[prefetch]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle pinned = f.Make(client, kKiB, "ddr0");
  REQUIRE(f.Seal(client, pinned, "", false).ok());
  const Handle writing = f.Make(client, kKiB, "ddr0");
  const Handle low = f.MakeSealed(client, kKiB, "ddr0");
  CHECK(Is(f.Prefetch(client, pinned), absl::StatusCode::kUnavailable, Reason::kDropped));
  CHECK(Is(f.Prefetch(client, writing), absl::StatusCode::kUnavailable, Reason::kDropped));
  CHECK(Is(f.Prefetch(client, Handle{88, 1}), absl::StatusCode::kNotFound, Reason::kNotFound));
  CHECK(
      Is(f.Prefetch(client, low, f.clock.Now()), absl::StatusCode::kUnavailable, Reason::kDropped));
  for (int i = 0; i < 7; ++i) f.Make(client, kKiB);
  CHECK(Is(f.Prefetch(client, low), absl::StatusCode::kUnavailable, Reason::kDropped));
  CHECK(f.In(f.kHbm, tier::ByteState::kReserved) == 0);
}

TEST_CASE("a hint takes background demotion back, but not what makes room for others",
          "[prefetch]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 7; ++i) made.push_back(f.MakeSealed(client, kKiB));
  const auto waits = f.AllocateWaiting(client, kKiB);
  REQUIRE(client.State(made[0]).state == TensorState::kMoving);
  CHECK(Is(f.Prefetch(client, made[0]), absl::StatusCode::kUnavailable, Reason::kDropped));
  CHECK(client.State(made[0]).state == TensorState::kMoving);
  f.Settle();
  CHECK(waits->done());

  REQUIRE(f.manager->SetWatermarks("hbm0", 0.8, 0.7, std::nullopt).ok());
  f.Run();
  REQUIRE(client.State(made[1]).state == TensorState::kMoving);
  CHECK(f.Prefetch(client, made[1]).ok());
  CHECK(client.State(made[1]).state == TensorState::kResident);
  CHECK(client.State(made[1]).tier == f.kHbm);
}

TEST_CASE("the coldest goes first; an Acquire makes hot", "[recency]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 7; ++i) made.push_back(f.MakeSealed(client, kKiB));
  REQUIRE(f.Acquire(client, made[0])->get().tensors[0].ok());
  client.Unpin(made[0]);
  (void)f.Allocate(client, f.One(kKiB));
  CHECK(client.State(made[0]).state == TensorState::kResident);
  CHECK(client.State(made[1]).state == TensorState::kMoving);
}

TEST_CASE("accesses through the pin page count", "[recency]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 7; ++i) made.push_back(f.MakeSealed(client, kKiB));
  REQUIRE(client.TryPin(made[0]));  // the daemon is not told
  client.Unpin(made[0]);
  (void)f.Allocate(client, f.One(kKiB));
  CHECK(client.State(made[0]).state == TensorState::kResident);
  CHECK(client.State(made[1]).state == TensorState::kMoving);
}

TEST_CASE("a new tensor does not inherit the accesses of its slot", "[recency]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle old = f.MakeSealed(client, kKiB);
  REQUIRE(client.TryPin(old));
  client.Unpin(old);
  REQUIRE(f.Free(client, old).ok());
  f.Run();
  std::vector<Handle> made;
  for (int i = 0; i < 7; ++i) made.push_back(f.MakeSealed(client, kKiB));
  REQUIRE(made[0].slot == old.slot);
  (void)f.Allocate(client, f.One(kKiB));
  CHECK(client.State(made[0]).state == TensorState::kMoving);
}

TEST_CASE("the death of a session makes nothing hot", "[recency]") {
  CoreFixture f;
  CoreClient client = f.Open();
  CoreClient dies = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 6; ++i) made.push_back(f.MakeSealed(client, kKiB));
  REQUIRE(dies.TryPin(made[0]));
  dies.Unpin(made[0]);
  const auto first = f.Allocate(client, f.One(2 * kKiB));  // looks, and finds it used
  f.Settle();
  CHECK(client.State(made[1]).tier == f.kDdr);
  CHECK(client.State(made[0]).tier == f.kHbm);
  for (std::size_t i = 2; i < 6; ++i) {
    REQUIRE(f.Acquire(client, made[i])->get().tensors[0].ok());
    client.Unpin(made[i]);
  }
  f.manager->ReapSession(dies.session);
  (void)f.Allocate(client, f.One(3 * kKiB));
  CHECK(client.State(made[0]).state == TensorState::kMoving);
  CHECK(client.State(made[2]).state == TensorState::kResident);
  (void)first;
}

TEST_CASE("a priority buys as many rounds", "[recency]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle dear = f.MakeSealed(client, kKiB, "hbm0", "", false, /*priority=*/2);
  std::vector<Handle> made;
  for (int i = 0; i < 6; ++i) made.push_back(f.MakeSealed(client, kKiB));
  for (std::size_t i = 0; i < 2; ++i) {
    (void)f.Allocate(client, f.One(kKiB));
    f.Settle();
    CHECK(client.State(made[i]).tier == f.kDdr);
    CHECK(client.State(dear).tier == f.kHbm);
    f.MakeSealed(client, kKiB);
  }
}

TEST_CASE("the first of a batch goes last", "[recency]") {
  CoreFixture f;
  CoreClient client = f.Open();
  core::AllocateArgs args;
  for (int i = 0; i < 7; ++i) args.tensors.push_back(Spec(kKiB));
  const auto batch = f.Allocate(client, std::move(args));
  std::vector<Handle> made;
  for (const auto& one : batch->get().tensors) {
    made.push_back(one->handle);
    client.Unpin(made.back());
  }
  (void)f.Allocate(client, f.One(kKiB));
  CHECK(client.State(made[6]).state == TensorState::kMoving);
}

}  // namespace
}  // namespace hmm::testing
