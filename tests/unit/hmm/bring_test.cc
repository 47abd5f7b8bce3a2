// SPDX-License-Identifier: Apache-2.0
//
// Acquire and Swap: where a tensor is pinned, what is waited for, what is said when it cannot be.
#include "unit/hmm/core_fixture.h"

namespace hmm::testing {
namespace {

TEST_CASE("Acquire without a tier pins where the tensor is, if that can be mapped", "[acquire]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle low = f.MakeSealed(client, kKiB, "ddr0");
  const auto answer = f.Acquire(client, low);
  CHECK(answer->get().tensors[0]->location.tier == f.kDdr);
  CHECK(client.Pins(low) == 1);
  CHECK(f.copier.size() == 0);
}

TEST_CASE("Acquire without a tier brings from flash to the nearest that can be mapped",
          "[acquire]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB, "ddr0");
  f.Write(client, handle, 0x5a);
  (void)f.Swap(client, {handle}, "flash0");
  f.Settle();
  REQUIRE(client.State(handle).state == TensorState::kAbsent);
  const auto answer = f.Acquire(client, handle);
  CHECK(!answer->done());
  f.Settle();
  const core::Acquired& got = *answer->get().tensors[0];
  CHECK(got.location.tier == f.kDdr);
  CHECK(got.found_tier == f.kFlash);
  CHECK(f.Holds(client, handle, 0x5a));
}

TEST_CASE("Acquire brings to the tier that was asked for", "[acquire]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB, "ddr0");
  const auto answer = f.Acquire(client, handle, "hbm0");
  f.Settle();
  CHECK(answer->get().tensors[0]->location.tier == f.kHbm);
  CHECK(answer->get().tensors[0]->found_tier == f.kDdr);
  CHECK(client.Pins(handle) == 1);
  CHECK(client.TryPin(handle));
}

TEST_CASE("Acquire to flash, or to no tier of that name, is refused", "[acquire]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB, "ddr0");
  CHECK(Is(f.Acquire(client, handle, "flash0")->status(), absl::StatusCode::kInvalidArgument,
           Reason::kBadArgument));
  CHECK(Is(f.Acquire(client, handle, "hbm9")->status(), absl::StatusCode::kNotFound,
           Reason::kNotFound));
}

TEST_CASE("allow_lower pins where the tensor is when the asked tier has no room", "[acquire]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 7; ++i) f.Make(client, kKiB);
  f.Make(client, kKiB, "ddr0");
  const Handle resident = f.MakeSealed(client, 2 * kKiB, "ddr0");
  const Handle absent = f.MakeOnFlash(client, 2 * kKiB);
  core::AcquireArgs args;
  args.handles = {resident, absent};
  args.tier = "hbm0";
  args.allow_lower = true;
  const auto answer = f.Acquire(client, std::move(args));
  f.Settle();
  f.Pass(milliseconds(2));
  f.Settle();
  CHECK(answer->get().tensors[0]->location.tier == f.kDdr);
  CHECK(answer->get().tensors[1]->location.tier == f.kDdr);
}

TEST_CASE("pinned elsewhere by others: waits, then FAILED_PRECONDITION/PINNED", "[acquire]") {
  CoreFixture f;
  CoreClient mine = f.Open();
  CoreClient other = f.Open();
  const Handle handle = f.MakeSealed(mine, kKiB, "ddr0");
  REQUIRE(other.TryPin(handle));
  const auto late = f.Acquire(mine, handle, "hbm0", milliseconds(10));
  f.PassSlowly(milliseconds(9));
  CHECK(!late->done());
  f.Pass(milliseconds(1));
  CHECK(Is(late->status(), absl::StatusCode::kFailedPrecondition, Reason::kPinned));
  CHECK(mine.Pins(handle) == 0);

  const auto answer = f.Acquire(mine, handle, "hbm0");
  f.Pass(milliseconds(2));
  CHECK(!answer->done());
  other.Unpin(handle);  // silently
  f.Pass(milliseconds(2));
  f.Settle();
  CHECK(answer->get().tensors[0]->location.tier == f.kHbm);
}

TEST_CASE("pinned elsewhere with allow_lower is pinned there at once", "[acquire]") {
  CoreFixture f;
  CoreClient mine = f.Open();
  CoreClient other = f.Open();
  const Handle handle = f.MakeSealed(mine, kKiB, "ddr0");
  REQUIRE(other.TryPin(handle));
  core::AcquireArgs args;
  args.handles = {handle};
  args.tier = "hbm0";
  args.allow_lower = true;
  CHECK(f.Acquire(mine, std::move(args))->get().tensors[0]->location.tier == f.kDdr);
}

TEST_CASE("an Acquire past its deadline says DEADLINE and pins nothing", "[acquire]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeOnFlash(client, kKiB);
  const auto answer = f.Acquire(client, handle, "", milliseconds(6));
  f.PassSlowly(milliseconds(5));
  CHECK(!answer->done());
  f.Pass(milliseconds(1));
  CHECK(Is(answer->status(), absl::StatusCode::kDeadlineExceeded, Reason::kDeadline));
  f.Settle();
  CHECK(client.Pins(handle) == 0);
  CHECK(client.State(handle).state == TensorState::kResident);  // it came all the same
}

TEST_CASE("a batch with one bad element: its own error, or everything undone with all",
          "[acquire]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle good = f.MakeSealed(client, kKiB);
  const Handle bad{good.slot, good.generation + 1};
  core::AcquireArgs args;
  args.handles = {good, bad, good};
  const auto each = f.Acquire(client, args);
  CHECK(each->get().tensors[0].ok());
  CHECK(Is(each->get().tensors[1].status(), absl::StatusCode::kNotFound, Reason::kNotFound));
  CHECK(each->get().tensors[2].ok());
  CHECK(client.Pins(good) == 2);
  client.Unpin(good);
  client.Unpin(good);

  args.all = true;
  const auto all = f.Acquire(client, args);
  CHECK(Is(all->status(), absl::StatusCode::kNotFound, Reason::kNotFound));
  CHECK(all->status().message().find("element 1") != absl::string_view::npos);
  CHECK(client.Pins(good) == 0);
}

TEST_CASE("one tensor named twice needs room once", "[acquire]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle big = f.MakeSealed(client, 6 * kKiB, "ddr0");
  core::AcquireArgs args;
  args.handles = {big, big};
  args.tier = "hbm0";
  args.all = true;
  const auto answer = f.Acquire(client, std::move(args));
  f.Settle();
  CHECK(answer->get().tensors[1]->location.tier == f.kHbm);
  CHECK(client.Pins(big) == 2);
}

TEST_CASE("Acquire cancels a demotion: back at once, the target freed when its copy ends",
          "[acquire]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB);
  f.Write(client, handle, 0x33);
  const auto swap = f.Swap(client, {handle}, "ddr0", milliseconds(1));
  REQUIRE(f.copier.size() == 1);
  CHECK(client.State(handle).state == TensorState::kMoving);
  const auto answer = f.Acquire(client, handle, "hbm0");
  CHECK(answer->get().tensors[0]->location.tier == f.kHbm);
  CHECK(client.State(handle).state == TensorState::kResident);
  CHECK(f.Counted().cancelled_demotions == 1);
  CHECK(f.Used(f.kDdr) == kKiB);  // the copier still writes there
  CHECK(f.In(f.kDdr, tier::ByteState::kMoving) == kKiB);
  f.copier.Complete(0);
  f.Run();
  CHECK(f.Used(f.kDdr) == 0);
  CHECK(f.Holds(client, handle, 0x33));
  CHECK(client.State(handle).tier == f.kHbm);
  (void)swap;
}

TEST_CASE("a demotion past its first hop is cancelled where the tensor now is", "[acquire]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB);
  f.Write(client, handle, 0x21);
  const auto swap = f.Swap(client, {handle}, "flash0", milliseconds(4));
  f.copier.Complete(0);
  f.Run();
  REQUIRE(client.State(handle).tier == f.kDdr);
  REQUIRE(client.State(handle).state == TensorState::kMoving);
  const auto answer = f.Acquire(client, handle);
  CHECK(answer->get().tensors[0]->location.tier == f.kDdr);
  CHECK(f.Holds(client, handle, 0x21));
  f.Settle();
  CHECK(f.Used(f.kFlash) == 0);
  f.Pass(milliseconds(4));
  CHECK(
      Is(swap->get().tensors[0].status(), absl::StatusCode::kFailedPrecondition, Reason::kPinned));
}

TEST_CASE("a demand raises a queued prefetch, which its deadline then no longer drops",
          "[acquire]") {
  CoreOptions options;
  options.core.mover.running_max = 1;
  CoreFixture f(options);
  CoreClient client = f.Open();
  const Handle first = f.MakeSealed(client, kKiB, "ddr0");
  const Handle second = f.MakeSealed(client, kKiB, "ddr0");
  const Handle third = f.MakeSealed(client, kKiB, "ddr0");
  const TimePoint soon = f.clock.Now() + milliseconds(5);
  for (const Handle handle : {first, second, third}) {
    REQUIRE(f.Prefetch(client, handle, soon).ok());
  }
  const auto answer = f.Acquire(client, third, "hbm0");
  const auto later = f.Acquire(client, f.MakeSealed(client, kKiB, "ddr0"), "hbm0");
  f.PassSlowly(milliseconds(10));
  f.copier.Complete(0);
  f.Run();
  REQUIRE(f.copier.size() == 1);  // the raised one: it kept its place before the later demand
  f.copier.Complete(0);
  f.Run();
  CHECK(answer->get().tensors[0]->location.tier == f.kHbm);
  CHECK(!later->done());
  f.Settle();
  CHECK(later->done());
  CHECK(client.State(first).tier == f.kHbm);
  CHECK(client.State(second).tier == f.kDdr);
  CHECK(client.State(second).state == TensorState::kResident);
}

TEST_CASE("Swap moves both ways and names the pinned ones", "[swap]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle pinned = f.Make(client, kKiB);
  const Handle free = f.MakeSealed(client, kKiB);
  const Handle there = f.MakeSealed(client, kKiB, "ddr0");
  const auto swap = f.Swap(client, {pinned, free, there, Handle{99, 1}}, "ddr0");
  f.Settle();
  const auto& tensors = swap->get().tensors;
  CHECK(Is(tensors[0].status(), absl::StatusCode::kFailedPrecondition, Reason::kPinned));
  CHECK(*tensors[1] == f.kDdr);
  CHECK(*tensors[2] == f.kDdr);
  CHECK(Is(tensors[3].status(), absl::StatusCode::kNotFound, Reason::kNotFound));
  CHECK(client.State(pinned).tier == f.kHbm);

  const auto up = f.Swap(client, {free}, "hbm0");
  f.Settle();
  CHECK(*up->get().tensors[0] == f.kHbm);
  CHECK(client.Pins(free) == 0);
  CHECK(Is(f.Swap(client, {free}, "nowhere")->status(), absl::StatusCode::kNotFound,
           Reason::kNotFound));
}

TEST_CASE("another session's unsealed tensor is NOT_SEALED, the writer's own is not", "[acquire]") {
  CoreFixture f;
  CoreClient writer = f.Open();
  CoreClient reader = f.Open();
  const Handle handle = f.Make(writer, kKiB);
  CHECK(Is(f.Acquire(reader, handle)->status(), absl::StatusCode::kFailedPrecondition,
           Reason::kNotSealed));
  CHECK(f.Acquire(writer, handle)->get().tensors[0].ok());
  CHECK(writer.Pins(handle) == 2);
}

TEST_CASE("a tensor freed under a waiting Acquire is NOT_FOUND", "[acquire]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeOnFlash(client, kKiB);
  const Handle there = f.MakeSealed(client, kKiB, "ddr0");
  core::AcquireArgs args;
  args.handles = {there, handle};
  const auto answer = f.Acquire(client, std::move(args));
  CHECK(client.Pins(there) == 1);  // nothing is waited for but the copy
  REQUIRE(f.Free(client, there).ok());
  REQUIRE(f.Free(client, handle).ok());
  f.Settle();
  CHECK(Is(answer->get().tensors[0].status(), absl::StatusCode::kNotFound, Reason::kNotFound));
  CHECK(Is(answer->get().tensors[1].status(), absl::StatusCode::kNotFound, Reason::kNotFound));
  CHECK(f.Used(f.kDdr) == 0);
  CHECK(f.Used(f.kFlash) == 0);
}

TEST_CASE("a move that fails again and again ends the Acquire before its deadline", "[acquire]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB, "ddr0");
  f.Write(client, handle, 0x11);
  const auto answer = f.Acquire(client, handle, "hbm0");
  for (int i = 0; i < 2; ++i) {
    f.Run();
    REQUIRE(f.copier.size() == 1);
    f.FailCopy(0);
  }
  f.Settle();  // the third time it works
  CHECK(answer->get().tensors[0]->location.tier == f.kHbm);
  CHECK(f.Holds(client, handle, 0x11));
}

TEST_CASE("what a waiting call brought up is not taken away before it is pinned", "[acquire]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle a = f.MakeSealed(client, kKiB, "ddr0");
  const Handle b = f.MakeSealed(client, kKiB, "ddr0");
  core::AcquireArgs args;
  args.handles = {a, b};
  args.tier = "hbm0";
  const auto both = f.Acquire(client, std::move(args));
  REQUIRE(f.copier.size() == 2);
  f.copier.Complete(0);
  // Before the daemon looks again somebody else asks for all of hbm0.
  REQUIRE(f.executor.RunOne());
  const auto all = f.Allocate(client, f.One(7 * kKiB + 512));
  CHECK(!all->status().ok());
  f.Settle();
  CHECK(both->get().tensors[0]->location.tier == f.kHbm);
  CHECK(f.Counted().demotions == 0);
}

}  // namespace
}  // namespace hmm::testing
