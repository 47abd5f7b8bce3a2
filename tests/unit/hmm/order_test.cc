// SPDX-License-Identifier: Apache-2.0
//
// Room is given out in order of arrival, with bounds: queues, waiting calls, draining.
#include "unit/hmm/core_fixture.h"

namespace hmm::testing {
namespace {

TEST_CASE("a large waiting call is not starved by small ones", "[order]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 7; ++i) made.push_back(f.Make(client, kKiB));
  core::AllocateArgs args;
  for (int i = 0; i < 3; ++i) args.tensors.push_back(Spec(kKiB));
  args.all = args.wait = true;
  const auto large = f.Allocate(client, std::move(args), milliseconds(1000));
  REQUIRE(!large->done());
  // One after another comes free; each time a small one asks for it first.
  for (int i = 0; i < 3; ++i) {
    client.Unpin(made[static_cast<std::size_t>(i)]);
    REQUIRE(f.Free(client, made[static_cast<std::size_t>(i)]).ok());
    CHECK(Is(f.Allocate(client, f.One(kKiB))->status(), absl::StatusCode::kResourceExhausted,
             Reason::kFull));
    f.Pass(milliseconds(2));
  }
  CHECK(large->get().tensors.size() == 3);
}

TEST_CASE("waiting calls get room in the order they came", "[order]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 7; ++i) made.push_back(f.Make(client, kKiB));
  const auto first = f.AllocateWaiting(client, kKiB);
  const auto second = f.AllocateWaiting(client, kKiB);
  client.Unpin(made[0]);
  REQUIRE(f.Free(client, made[0]).ok());
  f.Run();
  CHECK(first->done());
  CHECK(!second->done());
  client.Unpin(made[1]);
  REQUIRE(f.Free(client, made[1]).ok());
  f.Run();
  CHECK(second->get().tensors[0].ok());
}

TEST_CASE("small ones pass when the first makes no progress", "[order]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 4; ++i) f.Make(client, kKiB);
  const auto head = f.AllocateWaiting(client, 6 * kKiB, milliseconds(10000));
  CHECK(Is(f.Allocate(client, f.One(512))->status(), absl::StatusCode::kResourceExhausted,
           Reason::kFull));
  f.PassSlowly(milliseconds(51));
  // Not just one of them: the others of a node must not crawl behind a call that cannot be served.
  f.Make(client, 512);
  f.Make(client, 512);
  const Handle down = f.MakeSealed(client, 512, "ddr0");
  const Handle more = f.MakeSealed(client, 512, "ddr0");
  core::AcquireArgs args;
  args.handles = {down, more};
  args.tier = "hbm0";
  const auto both = f.Acquire(client, std::move(args));
  f.Settle();
  for (const auto& one : both->get().tensors) CHECK(one.ok());
  CHECK(!head->done());
}

TEST_CASE("nobody passes while room for the first is being made", "[order]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 7; ++i) f.MakeSealed(client, kKiB);
  const Handle low = f.MakeSealed(client, 512, "ddr0");
  const auto head = f.AllocateWaiting(client, 2 * kKiB, milliseconds(1000));
  const std::size_t leaving = f.copier.size();
  REQUIRE(leaving == 2);
  f.PassSlowly(milliseconds(100));  // a slow copy
  const auto small = f.Acquire(client, low, "hbm0", milliseconds(1000));
  CHECK(!small->done());
  CHECK(f.copier.size() == leaving);  // though its room would be there
  f.Settle();
  f.Pass(milliseconds(2));
  f.Settle();
  CHECK(head->done());
  CHECK(small->done());
}

TEST_CASE("a call that waits for its quota holds nobody up", "[order]") {
  CoreOptions options;
  options.core.session_pinned_max = 0.5;
  CoreFixture f(options);
  CoreClient greedy = f.Open("a");
  CoreClient other = f.Open("b");
  const Handle pinned = f.Make(greedy, 4 * kKiB);
  const auto waits = f.AllocateWaiting(greedy, kKiB);
  f.Run();
  CHECK(!waits->done());
  f.Make(other, kKiB);
  greedy.Unpin(pinned);
  f.PassSlowly(milliseconds(12));
  CHECK(waits->get().tensors[0].ok());
}

TEST_CASE("past the bound of waiting calls: QUEUE_FULL with a retry delay", "[order]") {
  CoreOptions options;
  options.core.waiting_max = 2;
  CoreFixture f(options);
  CoreClient client = f.Open();
  for (int i = 0; i < 7; ++i) f.Make(client, kKiB);
  const auto a = f.AllocateWaiting(client, kKiB);
  const auto b = f.AllocateWaiting(client, kKiB);
  const auto c = f.AllocateWaiting(client, kKiB);
  CHECK(!a->done());
  CHECK(!b->done());
  CHECK(Is(c->status(), absl::StatusCode::kUnavailable, Reason::kQueueFull));
  CHECK(RetryAfter(c->status()).has_value());
}

TEST_CASE("one tenant's waiting calls leave room for another's", "[order]") {
  CoreOptions options;
  options.core.waiting_max = 4;
  CoreFixture f(options);
  CoreClient greedy = f.Open("greedy");
  CoreClient other = f.Open("other");
  for (int i = 0; i < 7; ++i) f.Make(greedy, kKiB);
  for (int i = 0; i < 3; ++i) CHECK_FALSE(f.AllocateWaiting(greedy, kKiB)->done());
  const auto fourth = f.AllocateWaiting(greedy, kKiB);
  CHECK(Is(fourth->status(), absl::StatusCode::kUnavailable, Reason::kQueueFull));
  CHECK(RetryAfter(fourth->status()).has_value());
  CHECK_FALSE(f.AllocateWaiting(other, kKiB)->done());
  CHECK(Is(f.AllocateWaiting(other, kKiB)->status(), absl::StatusCode::kUnavailable,
           Reason::kQueueFull));
}

core::AllocateArgs Batch(std::size_t elements, Bytes bytes) {
  core::AllocateArgs args;
  args.tensors.assign(elements, CoreFixture::One(bytes).tensors[0]);
  args.wait = true;
  return args;
}

TEST_CASE("the elements of waiting batches are bounded, of one tenant's first", "[order]") {
  CoreOptions options;
  options.core.waiting_elements_max = 8;
  CoreFixture f(options);
  CoreClient greedy = f.Open("greedy");
  CoreClient other = f.Open("other");
  for (int i = 0; i < 7; ++i) f.Make(greedy, kKiB);
  // Alone it may have any size.
  const auto large = f.Allocate(greedy, Batch(20, kKiB));
  CHECK_FALSE(large->done());
  f.PassSlowly(milliseconds(110));
  REQUIRE(large->done());
  const auto first = f.Allocate(greedy, Batch(5, kKiB));
  CHECK_FALSE(first->done());
  const auto second = f.Allocate(greedy, Batch(2, kKiB));
  CHECK(Is(second->status(), absl::StatusCode::kUnavailable, Reason::kQueueFull));
  CHECK(RetryAfter(second->status()).has_value());
  CHECK_FALSE(f.Allocate(greedy, Batch(1, kKiB))->done());
  CHECK_FALSE(f.Allocate(other, Batch(2, kKiB))->done());
  CHECK(Is(f.Allocate(other, Batch(1, kKiB))->status(), absl::StatusCode::kUnavailable,
           Reason::kQueueFull));
}

TEST_CASE("large batches whose time is up together are not answered in one go", "[order]") {
  CoreFixture f;
  CoreClient greedy = f.Open("greedy");
  CoreClient other = f.Open("other");
  const Handle mine = f.Make(other, kKiB);
  for (int i = 0; i < 6; ++i) f.Make(greedy, kKiB);
  std::vector<AnswerPtr<core::AllocateResult>> waits;
  for (int i = 0; i < 24; ++i) waits.push_back(f.Allocate(greedy, Batch(4096, kKiB)));
  f.Run();
  const auto answered = [&] {
    return std::count_if(waits.begin(), waits.end(), [](const auto& one) { return one->done(); });
  };
  REQUIRE(answered() == 0);
  f.clock.Advance(milliseconds(200));
  std::ptrdiff_t most = 0;
  std::size_t steps = 0;
  for (std::ptrdiff_t before = 0; answered() < 24 && steps < 1000; before = answered(), ++steps) {
    if (!f.executor.RunOne()) f.clock.Advance(milliseconds(1));
    most = std::max(most, answered() - before);
    // Whoever else asks is answered at once, whatever is left to answer.
    CHECK(f.Acquire(other, mine)->done());
  }
  CHECK(answered() == 24);
  CHECK(most <= 4);
}

TEST_CASE("a full queue of moves: Swap says so, Acquire waits", "[order]") {
  CoreOptions options;
  options.core.mover.queued_max = 1;
  options.core.mover.running_max = 1;
  CoreFixture f(options);
  CoreClient client = f.Open();
  std::vector<Handle> up;
  for (int i = 0; i < 6; ++i) up.push_back(f.MakeSealed(client, kKiB, i < 3 ? "hbm0" : "ddr0"));
  const auto swap = f.Swap(client, {up[0], up[1], up[2]}, "ddr0");
  f.Settle();
  REQUIRE(swap->done());
  CHECK(swap->get().tensors[0].ok());
  CHECK(swap->get().tensors[1].ok());
  CHECK(Is(swap->get().tensors[2].status(), absl::StatusCode::kUnavailable, Reason::kQueueFull));
  CHECK(RetryAfter(swap->get().tensors[2].status()).has_value());

  core::AcquireArgs args;
  args.handles = {up[3], up[4], up[5]};
  args.tier = "hbm0";
  const auto acquire = f.Acquire(client, std::move(args));
  // The queue stays full for many looks: that is no failed move.
  f.PassSlowly(milliseconds(20));
  CHECK(!acquire->done());
  for (int i = 0; i < 5; ++i) {
    f.Settle();
    f.Pass(milliseconds(2));
  }
  for (const auto& one : acquire->get().tensors) CHECK(one.ok());
}

TEST_CASE("draining ends what waits and takes nothing new", "[order]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 7; ++i) f.Make(client, kKiB);
  const Handle held = f.MakeSealed(client, kKiB, "ddr0");
  const auto waits = f.AllocateWaiting(client, kKiB);
  CHECK(f.manager->Drain(true) == 1);
  CHECK(Is(waits->status(), absl::StatusCode::kUnavailable, Reason::kDraining));
  CHECK(RetryAfter(waits->status()).has_value());
  CHECK(Is(f.Allocate(client, f.One(64))->status(), absl::StatusCode::kUnavailable,
           Reason::kDraining));
  CHECK(Is(f.manager->OpenSession({}).status(), absl::StatusCode::kUnavailable, Reason::kDraining));
  CHECK(Is(f.Prefetch(client, held), absl::StatusCode::kUnavailable, Reason::kDropped));
  CHECK(f.Acquire(client, held)->get().tensors[0].ok());  // what is there can still be used
  (void)f.manager->Drain(false);
  f.Make(client, 64, "ddr0");
}

TEST_CASE("a waiting call is stepped by events and the rescan, never by itself", "[order]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 7; ++i) f.Make(client, kKiB);
  const auto waits = f.AllocateWaiting(client, kKiB, milliseconds(1000));
  f.Run();
  std::size_t ran = 0;
  for (int i = 0; i < 100; ++i) ran += f.executor.Advance(milliseconds(1));
  CHECK(ran <= 60);  // every 2 ms
  CHECK(!waits->done());
}

TEST_CASE("an answer may end other calls and sessions while it is given", "[order]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 7; ++i) made.push_back(f.Make(client, kKiB));
  int answered = 0;
  core::AllocateArgs args = f.One(kKiB);
  args.wait = true;
  for (int i = 0; i < 3; ++i) {
    (void)f.manager->Allocate(f.Call(client, milliseconds(100)), args,
                              [&](absl::StatusOr<core::AllocateResult>) {
                                ++answered;
                                f.manager->CloseSession(client.session);
                              });
  }
  client.Unpin(made[0]);
  REQUIRE(f.Free(client, made[0]).ok());
  f.Run();
  CHECK(answered == 3);
}

TEST_CASE("Cancel answers CANCELLED and gives back what was collected", "[order]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 5; ++i) f.Make(client, kKiB);
  core::AllocateArgs args;
  for (int i = 0; i < 4; ++i) args.tensors.push_back(Spec(kKiB));
  args.wait = true;
  const auto waits = f.Allocate(client, std::move(args));
  CHECK(f.In(f.kHbm, tier::ByteState::kReserved) > 0);
  f.manager->Cancel(waits->op);
  CHECK(Is(waits->status(), absl::StatusCode::kCancelled, Reason::kCancelled));
  CHECK(f.In(f.kHbm, tier::ByteState::kReserved) == 0);
  f.manager->Cancel(waits->op);
  f.manager->Cancel(12345);
}

TEST_CASE("a waiting call that falls to a lower tier holds no room there meanwhile", "[order]") {
  CoreOptions options;
  options.ddr = 2 * kKiB;
  CoreFixture f(options);
  CoreClient client = f.Open();
  for (int i = 0; i < 7; ++i) f.Make(client, kKiB);
  core::AllocateArgs args;
  for (int i = 0; i < 4; ++i) args.tensors.push_back(Spec(kKiB));
  args.wait = args.all = args.allow_lower = true;
  const auto waits = f.Allocate(client, std::move(args));
  REQUIRE(!waits->done());
  CHECK(f.In(f.kDdr, tier::ByteState::kReserved) == 0);
}

}  // namespace
}  // namespace hmm::testing
