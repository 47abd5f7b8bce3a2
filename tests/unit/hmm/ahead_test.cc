// SPDX-License-Identifier: Apache-2.0
//
// Tensors allocated ahead for a client's magazines: what they are accounted as, who takes them,
// and that the daemon takes back at no cost what nobody took.
#include "unit/hmm/core_fixture.h"

namespace hmm::testing {
namespace {

using tier::ByteState;

struct Ahead {
  Handle first;
  std::vector<Handle> ahead;
};

Ahead AllocateAhead(CoreFixture& f, CoreClient& client, Bytes bytes, std::size_t ahead,
                    bool droppable = false) {
  core::AllocateArgs args = f.One(bytes);
  args.tensors[0].droppable = droppable;
  args.ahead = ahead;
  const auto answer = f.Allocate(client, std::move(args));
  Ahead got{answer->get().tensors[0]->handle, {}};
  for (const core::Allocated& one : answer->get().ahead) {
    CHECK(one.location.bytes == bytes);
    CHECK(one.location.tier == f.kHbm);
    got.ahead.push_back(one.handle);
  }
  f.Run();
  return got;
}

void Tell(CoreFixture& f, CoreClient& client, std::vector<Handle> taken) {
  core::AllocateArgs args;
  args.taken = std::move(taken);
  CHECK(f.Allocate(client, std::move(args))->get().tensors.empty());
  f.Run();
}

TEST_CASE("what is allocated ahead is resident, unpinned, reserved, and its session's", "[ahead]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Ahead got = AllocateAhead(f, client, kKiB, 3);
  REQUIRE(got.ahead.size() == 3);
  CHECK(f.In(f.kHbm, ByteState::kReserved) == 3 * kKiB);
  CHECK(f.In(f.kHbm, ByteState::kCreating) == kKiB);
  for (const Handle handle : got.ahead) {
    CHECK(client.State(handle).state == TensorState::kResident);
    CHECK(client.Pins(handle) == 0);
    const auto info = f.Describe(client, handle);
    REQUIRE(info.ok());
    CHECK(info->ahead);
    CHECK(info->owner == client.session);
    CHECK_FALSE(info->sealed);
  }
  CHECK_FALSE(f.Describe(client, got.first)->ahead);
  f.manager->ReapSession(client.session);
  f.Settle();
  CHECK(f.Used(f.kHbm) == 0);
}

TEST_CASE("ahead alone: like what the call says, and nothing beside it", "[ahead]") {
  CoreFixture f;
  CoreClient client = f.Open();
  core::AllocateArgs args;
  args.ahead = 3;
  core::TensorSpec& spec = args.ahead_like.emplace();
  spec.bytes = kKiB;
  spec.priority = 2;
  spec.droppable = true;
  const auto answer = f.Allocate(client, args);
  REQUIRE(answer->get().ahead.size() == 3);
  CHECK(answer->get().tensors.empty());
  CHECK(f.In(f.kHbm, ByteState::kReserved) == 3 * kKiB);
  CHECK(f.In(f.kHbm, ByteState::kCreating) == 0);
  const auto info = f.Describe(client, answer->get().ahead[0].handle);
  REQUIRE(info.ok());
  CHECK(info->ahead);
  CHECK(info->priority == 2);
  CHECK(info->droppable);

  // Beside a tensor of another size; none where that one found no room.
  args.tensors = f.One(64).tensors;
  args.ahead = 1;
  CHECK(f.Allocate(client, args)->get().ahead.at(0).location.bytes == kKiB);
  args.tensors[0].bytes = 0;
  CHECK(f.Allocate(client, args)->get().ahead.empty());

  args.tensors.clear();
  args.ahead_like->bytes = 0;
  CHECK(
      Is(f.Allocate(client, args)->status(), absl::StatusCode::kInvalidArgument, Reason::kBadSize));
  args.ahead_like->bytes = 1;
  args.ahead_like->key = "key";
  CHECK(Is(f.Allocate(client, args)->status(), absl::StatusCode::kInvalidArgument,
           Reason::kBadArgument));
}

TEST_CASE("what was taken is ordinary once the daemon has been told, by whatever call", "[ahead]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Ahead got = AllocateAhead(f, client, 512, 5);
  REQUIRE(got.ahead.size() == 5);
  for (const Handle handle : got.ahead) REQUIRE(client.TryPin(handle));
  f.Write(client, got.ahead[0], 0x5a);

  Tell(f, client, {got.ahead[0]});
  CHECK_FALSE(f.Describe(client, got.ahead[0])->ahead);
  CHECK(f.Seal(client, got.ahead[1], "key").ok());
  CHECK(f.Describe(client, got.ahead[1])->owner == 0);
  CHECK(f.Acquire(client, got.ahead[2])->get().tensors[0].ok());
  CHECK_FALSE(f.Describe(client, got.ahead[2])->ahead);
  CHECK(f.Prefetch(client, got.ahead[3]).ok());
  CHECK_FALSE(f.Describe(client, got.ahead[3])->ahead);
  CHECK(f.Free(client, got.ahead[4])->deferred);
  f.Run();
  CHECK(f.In(f.kHbm, ByteState::kReserved) == 0);
  CHECK(f.Holds(client, got.ahead[0], 0x5a));

  // Told twice, or of what is nobody's: no harm.
  Tell(f, client, {got.ahead[0], got.ahead[4], Handle{400, 1}, Handle{4000, 3}});
}

TEST_CASE("Explain says that it is ahead, and gives it no rank by recency", "[ahead][explain]") {
  CoreFixture f;
  CoreClient client = f.Open();
  f.MakeSealed(client, 512);
  const Ahead got = AllocateAhead(f, client, kKiB, 3);
  REQUIRE(got.ahead.size() == 3);
  const auto why = f.manager->Explain(client.session, "", got.ahead[1], "", 8);
  REQUIRE(why.ok());
  CHECK(why->tensor.ahead);
  CHECK(why->rank == 0);
  CHECK(why->next.find("allocated ahead") != std::string::npos);
  Tell(f, client, {got.ahead[1]});
  CHECK(f.manager->Explain(client.session, "", got.ahead[1], "", 8)->rank == 2);
}

TEST_CASE("a Swap makes it ordinary and moves it", "[ahead]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Ahead got = AllocateAhead(f, client, kKiB, 1);
  REQUIRE(got.ahead.size() == 1);
  const auto swap = f.Swap(client, {got.ahead[0]}, "ddr0");
  f.Settle();
  CHECK(swap->get().tensors[0].ok());
  CHECK(client.State(got.ahead[0]).tier == f.kDdr);
  CHECK(f.In(f.kHbm, ByteState::kReserved) == 0);
}

TEST_CASE("room is taken back from what nobody took before anything is demoted", "[ahead]") {
  CoreFixture f;
  CoreClient client = f.Open();
  CoreClient other = f.Open();
  const Handle kept = f.MakeSealed(client, kKiB);
  const Ahead got = AllocateAhead(f, client, kKiB, 5);
  REQUIRE(got.ahead.size() == 5);  // 7 of 8: the rest is the largest's reserve
  REQUIRE(client.TryPin(got.ahead[1]));
  f.Write(client, got.ahead[1], 0x77);

  // Another session's call; each in the order of age.
  const Handle a = f.Make(other, kKiB);
  CHECK(f.copier.size() == 0);
  CHECK(client.State(got.ahead[0]).state != TensorState::kResident);
  CHECK_FALSE(client.TryPin(got.ahead[0]));
  f.Make(other, kKiB);
  f.Run();
  // The pinned one was met and is ordinary now; the next went.
  CHECK_FALSE(f.Describe(client, got.ahead[1])->ahead);
  CHECK(f.Holds(client, got.ahead[1], 0x77));
  CHECK_FALSE(client.TryPin(got.ahead[2]));
  CHECK(f.Counted().ahead_taken_back == 2);
  CHECK(f.copier.size() == 0);
  CHECK(client.State(kept).tier == f.kHbm);
  CHECK(client.State(a).state == TensorState::kCreating);
}

TEST_CASE("taken and its user's pin dropped: the keeper's pin alone keeps it", "[ahead]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Ahead got = AllocateAhead(f, client, kKiB, 1);
  REQUIRE(client.TryPin(got.ahead[0]));
  client.Word(got.ahead[0]).fetch_add(share::kPinOne);  // the library's
  f.Write(client, got.ahead[0], 0x11);
  client.Unpin(got.ahead[0]);  // the user's
  const auto evicted = f.Evict("hbm0", 0);
  f.Settle();
  f.PassSlowly(milliseconds(300));
  CHECK(evicted->get().pinned_tensors >= 1);
  CHECK(client.State(got.ahead[0]).state == TensorState::kResident);
  Tell(f, client, {got.ahead[0]});
  client.Unpin(got.ahead[0]);
  CHECK(f.Holds(client, got.ahead[0], 0x11));
  // An ordinary tensor: it goes down, it is not dropped.
  const auto again = f.Evict("hbm0", 0);
  f.Settle();
  f.PassSlowly(milliseconds(300));
  CHECK(client.State(got.ahead[0]).tier == f.kDdr);
  CHECK(f.Holds(client, got.ahead[0], 0x11));
}

TEST_CASE("a try that failed because it met a taking back leaves a tensor to free", "[ahead]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Ahead got = AllocateAhead(f, client, kKiB, 1);
  // Between the client's two accesses: the pin is there, the state not read.
  client.Word(got.ahead[0]).fetch_add(share::kPinOne);
  const auto evict = f.Evict("hbm0", 0, milliseconds(5));
  f.Run();
  client.Unpin(got.ahead[0]);
  CHECK_FALSE(f.Describe(client, got.ahead[0])->ahead);
  CHECK(f.Free(client, got.ahead[0]).ok());
  f.Settle();
  CHECK(client.State(got.ahead[0]).state == TensorState::kGone);
}

TEST_CASE("filling goes no further than the watermark, the reserve and the bounds", "[ahead]") {
  SECTION("the watermark") {
    CoreOptions options;
    options.high = 0.5;
    options.low = 0.4;
    CoreFixture f(options);
    CoreClient client = f.Open();
    CHECK(AllocateAhead(f, client, kKiB, 64).ahead.size() == 3);
    CHECK(f.copier.size() == 0);
    CHECK(AllocateAhead(f, client, kKiB, 64).ahead.empty());  // above it now
    f.Settle();
    CHECK(f.Counted().demotions == 0);  // back below by what was ahead
    CHECK(f.Counted().ahead_taken_back == 2);
  }
  SECTION("tensors and bytes of a session") {
    CoreOptions options;
    options.core.ahead_max = 4;
    CoreFixture f(options);
    CoreClient client = f.Open();
    CHECK(AllocateAhead(f, client, 64, 3).ahead.size() == 3);
    CHECK(AllocateAhead(f, client, 64, 3).ahead.size() == 1);
    CoreClient other = f.Open();
    CHECK(AllocateAhead(f, other, 64, 3).ahead.size() == 3);
  }
  SECTION("bytes") {
    CoreOptions options;
    options.core.ahead_bytes_max = 3 * kKiB;
    CoreFixture f(options);
    CoreClient client = f.Open();
    CHECK(AllocateAhead(f, client, kKiB, 8).ahead.size() == 3);
  }
  SECTION("the session's share of pins") {
    CoreOptions options;
    options.core.session_pinned_max = 0.5;
    CoreFixture f(options);
    CoreClient client = f.Open();
    CHECK(AllocateAhead(f, client, kKiB, 8).ahead.size() == 3);  // with the one that is pinned
  }
  SECTION("the tenant's share") {
    CoreOptions options;
    options.core.tenant_resident_max = 0.375;
    CoreFixture f(options);
    CoreClient client = f.Open();
    CHECK(AllocateAhead(f, client, kKiB, 8).ahead.size() == 2);
  }
  SECTION("the tenant's own share, where it has one") {
    CoreOptions options;
    options.core.tenant_limits["a"] = {{.bytes = 4 * kKiB}, {}, {}};
    CoreFixture f(options);
    CoreClient client = f.Open();
    CHECK(AllocateAhead(f, client, kKiB, 8).ahead.size() == 3);
    CoreClient other = f.Open("b");
    CHECK(AllocateAhead(f, other, 512, 2).ahead.size() == 2);
  }
  SECTION("the watermark of what a tier that shrinks shall be") {
    CoreOptions options;
    options.high = 0.75;
    options.low = 0.7;
    CoreFixture f(options);
    CoreClient client = f.Open();
    std::vector<Handle> made;
    for (int i = 0; i < 6; ++i) made.push_back(f.MakeSealed(client, kKiB));
    REQUIRE(client.TryPin(made.back()));  // it keeps the tier from getting there
    for (int i = 0; i < 5; ++i) REQUIRE(f.Free(client, made[static_cast<std::size_t>(i)]).ok());
    bool answered = false;
    f.manager->ResizeTier("hbm0", 5 * kKiB, f.clock.Now() + milliseconds(100),
                          [&](const absl::StatusOr<core::ResizeResult>&) { answered = true; });
    f.Run();
    REQUIRE_FALSE(answered);
    // Up to 3.75 KiB; there would be room for one more.
    CHECK(AllocateAhead(f, client, 512, 8).ahead.size() == 4);
  }
  SECTION("slots") {
    CoreOptions options;
    options.core.max_tensors = 4;
    CoreFixture f(options);
    CoreClient client = f.Open();
    CHECK(AllocateAhead(f, client, 64, 8).ahead.size() == 3);
    CHECK(f.In(f.kHbm, ByteState::kReserved) == 3 * 64);
  }
  SECTION("nobody may be waiting") {
    CoreFixture f;
    CoreClient client = f.Open();
    for (int i = 0; i < 6; ++i) f.Make(client, kKiB);
    const auto waiting = f.AllocateWaiting(client, 4 * kKiB);
    f.Run();
    CHECK_FALSE(waiting->done());
    f.PassSlowly(milliseconds(60));  // it made no progress: others may pass, but take no more
    core::AllocateArgs args = f.One(64);
    args.ahead = 4;
    CHECK(f.Allocate(client, std::move(args))->get().ahead.empty());
  }
}

TEST_CASE("a Release of the call frees what it allocated ahead", "[ahead]") {
  CoreFixture f;
  CoreClient client = f.Open();
  core::AllocateArgs args = f.One(kKiB);
  args.ahead = 3;
  const auto answer = f.Allocate(client, std::move(args));
  REQUIRE(answer->get().ahead.size() == 3);
  // One that is used meanwhile stays: its handle is known.
  const Handle used = answer->get().ahead[1].handle;
  REQUIRE(f.Seal(client, used, "k", /*unpin=*/false).ok());
  CHECK(*f.manager->Release(client.session, answer->call, 0) == 1);
  f.Settle();
  CHECK(f.Used(f.kHbm) == kKiB);
  CHECK(f.Describe(client, used).ok());
}

TEST_CASE("`ahead` without a tensor to be like, or with a key, is refused", "[ahead]") {
  CoreFixture f;
  CoreClient client = f.Open();
  core::AllocateArgs none;
  none.ahead = 1;
  CHECK(Is(f.Allocate(client, std::move(none))->status(), absl::StatusCode::kInvalidArgument,
           Reason::kBadArgument));
  core::AllocateArgs keyed = f.One(64);
  keyed.tensors[0].key = "k";
  keyed.ahead = 1;
  CHECK(Is(f.Allocate(client, std::move(keyed))->status(), absl::StatusCode::kInvalidArgument,
           Reason::kBadArgument));
  core::AllocateArgs many;
  many.taken.resize(5000);
  CHECK(Is(f.Allocate(client, std::move(many))->status(), absl::StatusCode::kInvalidArgument,
           Reason::kBatchTooLarge));
}

TEST_CASE("a large tensor gets the window that tensors ahead lie in", "[ahead]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Ahead got = AllocateAhead(f, client, kKiB, 5);
  REQUIRE(got.ahead.size() == 5);
  f.Make(client, 4 * kKiB);
  CHECK(f.copier.size() == 0);
  CHECK(f.Counted().demotions == 0);
}

TEST_CASE("told while draining: what was taken is kept", "[ahead]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Ahead got = AllocateAhead(f, client, kKiB, 2);
  (void)f.manager->Drain(true);
  Tell(f, client, {got.ahead[0]});
  CHECK_FALSE(f.Describe(client, got.ahead[0])->ahead);
  core::AllocateArgs args = f.One(kKiB);
  args.taken = {got.ahead[1]};
  CHECK(Is(f.Allocate(client, std::move(args))->status(), absl::StatusCode::kUnavailable,
           Reason::kDraining));
  CHECK_FALSE(f.Describe(client, got.ahead[1])->ahead);
}

}  // namespace
}  // namespace hmm::testing
