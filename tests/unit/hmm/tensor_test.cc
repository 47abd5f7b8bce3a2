// SPDX-License-Identifier: Apache-2.0
//
// A tensor's life: handles, keys, Seal, Free, Release, slots, sizes, batches.
#include "hmm/key_bytes.h"
#include "unit/hmm/core_fixture.h"

namespace hmm::testing {
namespace {

TEST_CASE("a key is kept in place or apart, and moves with its bytes", "[key]") {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, core::KeyBytes::kInPlace,
                                 core::KeyBytes::kInPlace + 1, core::KeyBytes::kSizeMax}) {
    std::string bytes(size, 'x');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7);
    core::KeyBytes key(bytes);
    CHECK(key.view() == bytes);
    core::KeyBytes moved(std::move(key));
    CHECK(moved.view() == bytes);
    core::KeyBytes other("of some other tensor, apart");
    other = std::move(moved);
    CHECK(other.view() == bytes);
    other = core::KeyBytes();
    CHECK(other.view().empty());
  }
}

TEST_CASE("Allocate pins for writing and publishes the location", "[tensor]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.Make(client, 1000);
  CHECK(client.State(handle).state == TensorState::kCreating);
  CHECK(client.State(handle).generation == handle.generation);
  CHECK(client.Pins(handle) == 1);
  CHECK(client.Slot(handle).bytes.load() == 1000);
  CHECK(!client.TryPin(handle));  // not before it is put down or sealed
  CHECK(f.In(f.kHbm, tier::ByteState::kCreating) == 1024);
  REQUIRE(f.Seal(client, handle).ok());
  CHECK(f.In(f.kHbm, tier::ByteState::kResident) == 1024);
  CHECK(client.Pins(handle) == 0);
  CHECK(client.TryPin(handle));
}

TEST_CASE("sizes: zero is BAD_SIZE, the element's own", "[tensor]") {
  CoreFixture f;
  CoreClient client = f.Open();
  core::AllocateArgs args;
  args.tensors = {Spec(kKiB), Spec(0), Spec(~Bytes{0}), Spec(1)};
  args.wait = true;
  const auto answer = f.Allocate(client, args);
  const auto& tensors = answer->get().tensors;
  CHECK(tensors[0].ok());
  CHECK(Is(tensors[1].status(), absl::StatusCode::kInvalidArgument, Reason::kBadSize));
  CHECK(Is(tensors[2].status(), absl::StatusCode::kFailedPrecondition, Reason::kTooLarge));
  CHECK(tensors[3].ok());
  CHECK(f.Counted().allocations == 2);
  CHECK(f.Counted().allocation_failures == 2);

  args.all = true;
  const auto all = f.Allocate(client, args);
  CHECK(Is(all->status(), absl::StatusCode::kInvalidArgument, Reason::kBadSize));
  CHECK(all->status().message().find("element 1") != absl::string_view::npos);
  CHECK(f.manager->GetStatus(std::nullopt).tensors == 2);
}

TEST_CASE("all or nothing: one without room undoes the others", "[tensor]") {
  CoreFixture f;
  CoreClient client = f.Open();
  core::AllocateArgs args;
  for (int i = 0; i < 9; ++i) args.tensors.push_back(Spec(kKiB));
  args.all = true;
  CHECK(!f.Allocate(client, args)->status().ok());
  CHECK(f.Used(f.kHbm) == 0);
  args.all = false;
  const auto part = f.Allocate(client, args);
  for (std::size_t i = 0; i < 9; ++i) CHECK(part->get().tensors[i].ok() == (i < 7));
}

TEST_CASE("allow_lower takes the next tier down", "[tensor]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 7; ++i) f.Make(client, kKiB);
  core::AllocateArgs args = f.One(kKiB);
  args.allow_lower = true;
  CHECK(f.Allocate(client, args)->get().tensors[0]->location.tier == f.kDdr);
  args.tier = "flash0";
  CHECK(Is(f.Allocate(client, args)->status(), absl::StatusCode::kInvalidArgument,
           Reason::kBadArgument));
}

TEST_CASE("other fields out of their range", "[tensor]") {
  CoreOptions options;
  options.core.batch_max = 4;
  options.core.key_bytes_max = 8;
  CoreFixture f(options);
  CoreClient client = f.Open();
  core::AllocateArgs args = f.One(kKiB);
  args.tensors[0].priority = 8;
  CHECK(Is(f.Allocate(client, args)->status(), absl::StatusCode::kInvalidArgument,
           Reason::kBadArgument));
  args = f.One(kKiB);
  args.tensors[0].key = "123456789";
  CHECK(Is(f.Allocate(client, args)->status(), absl::StatusCode::kInvalidArgument,
           Reason::kBadArgument));
  args = f.One(kKiB);
  args.tensors.resize(5);
  CHECK(Is(f.Allocate(client, args)->status(), absl::StatusCode::kInvalidArgument,
           Reason::kBatchTooLarge));
  CHECK(f.manager->Free(client.session, std::vector<Handle>(5)).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a key is reserved at Allocate and given once", "[tensor]") {
  CoreFixture f;
  CoreClient client = f.Open();
  core::AllocateArgs args = f.One(kKiB);
  args.tensors[0].key = "k";
  const Handle first = f.Allocate(client, args)->get().tensors[0]->handle;
  CHECK(Is(f.Allocate(client, args)->status(), absl::StatusCode::kAlreadyExists, Reason::kExists));
  core::AllocateArgs twins;
  twins.tensors = {Spec(64, "t"), Spec(64, "t")};
  const auto both = f.Allocate(client, twins);
  CHECK(both->get().tensors[0].ok());
  CHECK(Is(both->get().tensors[1].status(), absl::StatusCode::kAlreadyExists, Reason::kExists));
  client.Unpin(first);
  REQUIRE(f.Free(client, first).ok());
  CHECK(f.Allocate(client, args)->get().tensors[0].ok());  // the key is free again
}

TEST_CASE("a key taken while the call waited is ALREADY_EXISTS and costs no room", "[tensor]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 7; ++i) made.push_back(f.Make(client, kKiB));
  core::AllocateArgs args = f.One(kKiB);
  args.tensors[0].key = "k";
  args.wait = true;
  args.all = false;
  const auto waits = f.Allocate(client, args);
  f.MakeSealed(client, kKiB, "ddr0", "k");
  client.Unpin(made[0]);
  REQUIRE(f.Free(client, made[0]).ok());
  f.Run();
  CHECK(Is(waits->get().tensors[0].status(), absl::StatusCode::kAlreadyExists, Reason::kExists));
  CHECK(f.Used(f.kHbm) == 6 * kKiB);
}

TEST_CASE("Seal: the key may come then; it must match; a taken one is refused", "[seal]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle a = f.Make(client, 64);
  const Handle b = f.Make(client, 64);
  REQUIRE(f.Seal(client, a, "a").ok());
  CHECK(Is(f.Seal(client, b, "a"), absl::StatusCode::kAlreadyExists, Reason::kExists));
  CHECK(client.Pins(b) == 1);  // nothing of it was done
  CHECK(client.State(b).state == TensorState::kCreating);
  core::AllocateArgs args = f.One(64);
  args.tensors[0].key = "c";
  const Handle c = f.Allocate(client, args)->get().tensors[0]->handle;
  CHECK(Is(f.Seal(client, c, "other"), absl::StatusCode::kInvalidArgument, Reason::kBadArgument));
  CHECK(f.Seal(client, c, "c").ok());
  CHECK(Is(f.Seal(client, a, "a"), absl::StatusCode::kFailedPrecondition, Reason::kSealed));
  CHECK(Is(f.Seal(client, Handle{77, 1}), absl::StatusCode::kNotFound, Reason::kNotFound));
  CHECK(f.Lookup(client, {"a", "c"})->get().run.size() == 2);
}

TEST_CASE("Seal with unpin but without a pin seals nothing", "[seal]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.Make(client, 64);
  client.Unpin(handle);
  CHECK(Is(f.Seal(client, handle, "k"), absl::StatusCode::kFailedPrecondition, Reason::kNotPinned));
  CHECK(f.Lookup(client, {"k"})->get().miss_reason == "NOT_FOUND");
  CHECK(f.Seal(client, handle, "k", /*unpin=*/false).ok());
  CHECK(f.Lookup(client, {"k"})->get().run.size() == 1);
}

TEST_CASE("Free while pinned: dead at once, bytes return when the last pin goes", "[free]") {
  CoreFixture f;
  CoreClient a = f.Open();
  CoreClient b = f.Open();
  const Handle handle = f.MakeSealed(a, kKiB, "hbm0", "k");
  REQUIRE(a.TryPin(handle));
  REQUIRE(b.TryPin(handle));
  const auto freed = f.Free(a, handle);
  REQUIRE(freed.ok());
  CHECK(freed->deferred);
  CHECK(!a.TryPin(handle));
  CHECK(Is(f.Acquire(b, handle)->status(), absl::StatusCode::kNotFound, Reason::kNotFound));
  CHECK(f.Lookup(b, {"k"})->get().run.empty());
  CHECK(Is(f.Free(b, handle).status(), absl::StatusCode::kNotFound, Reason::kNotFound));
  CHECK(f.Used(f.kHbm) == kKiB);
  a.Unpin(handle);
  f.Pass(milliseconds(2));
  CHECK(f.Used(f.kHbm) == kKiB);
  b.Unpin(handle);
  f.Pass(milliseconds(2));
  CHECK(f.Used(f.kHbm) == 0);
  CHECK(a.State(handle).state == TensorState::kGone);
}

TEST_CASE("many doomed tensors that stay pinned do not hide one that does not", "[free]") {
  CoreOptions options;
  options.hbm = 64 * kKiB;
  CoreFixture f(options);
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 400; ++i) made.push_back(f.Make(client, 64));
  for (const Handle handle : made) REQUIRE(f.Free(client, handle)->deferred);
  client.Unpin(made[399]);
  f.PassSlowly(milliseconds(20));
  CHECK(client.State(made[399]).state == TensorState::kGone);
  CHECK(f.Used(f.kHbm) == 399 * 64);
}

TEST_CASE("Free under a copy: the extents outlive the tensor until the copy ends", "[free]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB);
  const auto swap = f.Swap(client, {handle}, "flash0");
  REQUIRE(f.copier.size() == 1);
  const auto freed = f.Free(client, handle);
  REQUIRE(freed.ok());
  CHECK(!freed->deferred);
  CHECK(f.Used(f.kHbm) == kKiB);
  CHECK(f.Used(f.kDdr) == kKiB);
  CHECK(f.Used(f.kFlash) == 0);  // room of the next hop: nobody uses it
  f.copier.Complete(0);
  f.Run();
  CHECK(f.Used(f.kHbm) == 0);
  CHECK(f.Used(f.kDdr) == 0);
  CHECK(Is(swap->get().tensors[0].status(), absl::StatusCode::kNotFound, Reason::kNotFound));
}

TEST_CASE("stale and foreign handles are NOT_FOUND everywhere", "[tensor]") {
  CoreFixture f;
  CoreClient a = f.Open("a");
  CoreClient b = f.Open("b");
  const Handle handle = f.MakeSealed(a, kKiB);
  const Handle stale{handle.slot, handle.generation + 1};
  const Handle beyond{400, 1};
  auto all = [&](CoreClient& client, Handle wrong) {
    INFO(wrong.slot << " " << wrong.generation);
    CHECK(Is(f.Acquire(client, wrong)->status(), absl::StatusCode::kNotFound, Reason::kNotFound));
    CHECK(Is(f.Free(client, wrong).status(), absl::StatusCode::kNotFound, Reason::kNotFound));
    CHECK(Is(f.Seal(client, wrong), absl::StatusCode::kNotFound, Reason::kNotFound));
    CHECK(Is(f.Prefetch(client, wrong), absl::StatusCode::kNotFound, Reason::kNotFound));
    CHECK(Is(f.Describe(client, wrong).status(), absl::StatusCode::kNotFound, Reason::kNotFound));
    CHECK(Is(f.Swap(client, {wrong}, "ddr0")->get().tensors[0].status(),
             absl::StatusCode::kNotFound, Reason::kNotFound));
  };
  for (const Handle wrong : {stale, beyond, Handle{}, Handle{~0u, ~0u}}) all(a, wrong);
  all(b, handle);
  CHECK(f.Describe(a, handle).ok());
}

TEST_CASE("a slot is used again with the next generation", "[slot]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle first = f.MakeSealed(client, 64);
  REQUIRE(f.Free(client, first).ok());
  const Handle second = f.MakeSealed(client, 64);
  CHECK(second.slot == first.slot);
  CHECK(second.generation == first.generation + 1);
  CHECK(!client.TryPin(first));
  CHECK(client.Pins(first) == 0);
  CHECK(client.TryPin(second));
}

TEST_CASE("a slot at its last generation is retired", "[slot]") {
  CoreOptions options;
  options.core.generation_max = 3;
  options.core.max_tensors = 1;
  CoreFixture f(options);
  CoreClient client = f.Open();
  for (std::uint32_t generation = 1; generation <= 3; ++generation) {
    const Handle handle = f.MakeSealed(client, 64);
    CHECK(handle == Handle{0, generation});
    REQUIRE(f.Free(client, handle).ok());
  }
  CHECK(Is(f.Allocate(client, f.One(64))->status(), absl::StatusCode::kResourceExhausted,
           Reason::kQuota));
}

TEST_CASE("all slots taken: QUOTA at once, also with wait, and the room goes back", "[slot]") {
  CoreOptions options;
  options.core.max_tensors = 2;
  CoreFixture f(options);
  CoreClient client = f.Open();
  f.Make(client, 64);
  const Handle last = f.Make(client, 64);
  const auto answer = f.AllocateWaiting(client, 64);
  CHECK(Is(answer->status(), absl::StatusCode::kResourceExhausted, Reason::kQuota));
  CHECK(f.Used(f.kHbm) == 128);
  client.Unpin(last);
  REQUIRE(f.Free(client, last).ok());
  f.Make(client, 64);
}

TEST_CASE("Release undoes a call's pins, once", "[release]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle a = f.MakeSealed(client, 64);
  const Handle b = f.MakeSealed(client, 64);
  core::AcquireArgs args;
  args.handles = {a, b, b};
  const auto answer = f.Acquire(client, args);
  REQUIRE(answer->done());
  CHECK(*f.manager->Release(client.session, answer->call, 0) == 3);
  CHECK(client.Pins(a) == 0);
  CHECK(client.Pins(b) == 0);
  CHECK(*f.manager->Release(client.session, answer->call, 0) == 0);
  CHECK(f.manager->Release(client.session, 0, 0).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Release does not take pins from the next tensor of the slot", "[release]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle first = f.MakeSealed(client, 64);
  const auto answer = f.Acquire(client, first);
  REQUIRE(answer->done());
  client.Unpin(first);
  REQUIRE(f.Free(client, first).ok());
  const Handle next = f.Make(client, 64);
  REQUIRE(next.slot == first.slot);
  REQUIRE(f.manager->Release(client.session, answer->call, 0).ok());
  CHECK(client.Pins(next) == 1);
}

TEST_CASE("a call that comes after its Release pins nothing", "[release]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle a = f.MakeSealed(client, 64);
  CHECK(*f.manager->Release(client.session, client.next_call, 0) == 0);
  CHECK(Is(f.Acquire(client, a)->status(), absl::StatusCode::kCancelled, Reason::kCancelled));
  CHECK(client.Pins(a) == 0);
  CHECK(f.Acquire(client, a)->get().tensors[0].ok());  // the next call is another
}

TEST_CASE("Release of a waiting call ends it", "[release]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle there = f.MakeSealed(client, 64, "ddr0");
  const Handle absent = f.MakeOnFlash(client, 64);
  core::AcquireArgs args;
  args.handles = {there, absent};
  const auto answer = f.Acquire(client, args);
  REQUIRE(client.Pins(there) == 1);
  CHECK(f.manager->Release(client.session, answer->call, 0).ok());
  CHECK(Is(answer->status(), absl::StatusCode::kCancelled, Reason::kCancelled));
  CHECK(client.Pins(there) == 0);
  f.Settle();
  CHECK(client.Pins(absent) == 0);
}

TEST_CASE("Release of an Allocate whose reply was lost frees its tensors and their keys",
          "[release]") {
  CoreFixture f;
  CoreClient client = f.Open();
  core::AllocateArgs args = f.One(kKiB);
  args.tensors[0].key = "k";
  const auto lost = f.Allocate(client, args);
  REQUIRE(lost->done());
  CHECK(*f.manager->Release(client.session, lost->call, 0) == 1);
  f.Run();
  CHECK(f.Used(f.kHbm) == 0);
  CHECK(f.Allocate(client, args)->get().tensors[0].ok());  // the same again
}

TEST_CASE("call ids are used once, rise, and are forgotten when the client says so", "[release]") {
  CoreOptions options;
  options.core.calls_remembered_max = 3;
  CoreFixture f(options);
  CoreClient client = f.Open();
  const Handle a = f.MakeSealed(client, 64);  // call 1
  auto ask = [&](std::uint64_t call, std::uint64_t oldest) {
    client.next_call = call;
    auto answer = std::make_shared<Answer<core::AcquireResult>>();
    core::CallContext context = f.Call(client, milliseconds(10));
    context.oldest_live_call_id = oldest;
    core::AcquireArgs args;
    args.handles = {a};
    (void)f.manager->Acquire(context, args, [answer](absl::StatusOr<core::AcquireResult> result) {
      answer->value = std::move(result);
    });
    return answer->status();
  };
  CHECK(Is(ask(0, 0), absl::StatusCode::kInvalidArgument, Reason::kBadArgument));
  CHECK(Is(ask(1, 0), absl::StatusCode::kInvalidArgument, Reason::kBadArgument));
  CHECK(ask(2, 0).ok());
  CHECK(ask(3, 0).ok());
  CHECK(Is(ask(4, 0), absl::StatusCode::kUnavailable, Reason::kQueueFull));
  CHECK(ask(5, 3).ok());
  CHECK(Is(ask(2, 0), absl::StatusCode::kInvalidArgument, Reason::kBadArgument));
}

}  // namespace
}  // namespace hmm::testing
