// SPDX-License-Identifier: Apache-2.0
//
// Regions: what is leased stays, is accounted, is nobody else's, and goes when it may.
#include "unit/hmm/region_fixture.h"

namespace hmm::testing {
namespace {

using absl::StatusCode;
using tier::ByteState;

share::Mapping OwnMemory(Bytes bytes) {
  auto file = share::CreateMemoryFile("region-test", bytes);
  REQUIRE(file.ok());
  auto mapping = share::Mapping::Map(file->get(), bytes, share::Mapping::Access::kReadWrite, false);
  REQUIRE(mapping.ok());
  return *std::move(mapping);
}

TEST_CASE("a leased region is reserved, counts for its tenant, and returns when released",
          "[region]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  const auto lease = f.Lease(client, 1, 1000);
  CHECK(lease->get().bytes == 1000);
  CHECK(lease->get().tier == f.kHbm);
  f.Run();
  CHECK(f.In(f.kHbm, ByteState::kReserved) == 1024);
  CHECK(f.tier(f.kHbm).TenantBytes(0) == 1024);
  CHECK(f.manager->ReleaseRegion(client.session, 1).ok());
  f.Run();
  CHECK(f.In(f.kHbm, ByteState::kReserved) == 0);
  CHECK(Is(f.manager->ReleaseRegion(client.session, 1), StatusCode::kNotFound, Reason::kNotFound));
}

TEST_CASE("reclaim goes round a region and never moves it", "[region]") {
  RegionFixture f;
  CoreClient client = f.Open();
  std::byte* bytes = f.LeaseNow(client, 1, 3 * kKiB, "hbm0");
  FillNoise(bytes, 3 * kKiB, 1);
  const std::vector<std::byte> before(bytes, bytes + 3 * kKiB);
  for (int i = 0; i < 20; ++i) {
    core::AllocateArgs args = f.One(kKiB, "hbm0");
    args.wait = true;
    const auto answer = f.Allocate(client, std::move(args));
    f.Settle();
    REQUIRE(f.Seal(client, answer->get().tensors[0]->handle).ok());
    f.Run();
  }
  (void)f.Evict("hbm0", 0);
  f.Settle();
  f.PassSlowly(milliseconds(300));
  CHECK(f.Used(f.kHbm) == 3 * kKiB);
  CHECK(std::equal(before.begin(), before.end(), bytes));
}

TEST_CASE("a lease makes room, and waits for it in its turn", "[region]") {
  RegionFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 7; ++i) f.MakeSealed(client, kKiB, "hbm0");
  const auto now = f.Lease(client, 1, 4 * kKiB);
  CHECK(Is(now->status(), StatusCode::kResourceExhausted, Reason::kFull));
  const auto waits = f.Lease(client, 2, 4 * kKiB, "hbm0", true);
  f.Settle();
  CHECK(waits->get().bytes == 4 * kKiB);
  SECTION("until its deadline") {
    const auto late = f.Lease(client, 3, 8 * kKiB - 64, "hbm0", true);
    f.Settle();
    f.PassSlowly(milliseconds(101));
    CHECK(!late->status().ok());
  }
}

TEST_CASE("leases and pins together stay within a session's share", "[region]") {
  CoreOptions options;
  options.core.session_pinned_max = 0.5;
  RegionFixture f(options);
  CoreClient client = f.Open();
  CHECK(f.Lease(client, 1, 3 * kKiB)->value->ok());
  CHECK(Is(f.Lease(client, 2, 2 * kKiB)->status(), StatusCode::kResourceExhausted, Reason::kQuota));
  CHECK(Is(f.Allocate(client, f.One(2 * kKiB))->status(), StatusCode::kResourceExhausted,
           Reason::kQuota));
  CHECK(f.manager->ReleaseRegion(client.session, 1).ok());
  CHECK(f.Lease(client, 2, 2 * kKiB)->value->ok());
}

TEST_CASE("a region counts towards what the tenant may hold", "[region]") {
  CoreOptions options;
  options.core.tenant_resident_max = 0.5;
  RegionFixture f(options);
  const CoreClient client = f.Open();
  CHECK(f.Lease(client, 1, 3 * kKiB)->value->ok());
  CHECK(Is(f.Lease(client, 2, 2 * kKiB)->status(), StatusCode::kResourceExhausted, Reason::kQuota));
  const CoreClient other = f.Open("b");
  CHECK(f.Lease(other, 1, 2 * kKiB)->value->ok());
}

TEST_CASE("bad leases are refused by name", "[region]") {
  CoreOptions options;
  options.core.jobs.regions_per_session_max = 2;
  options.core.jobs.attached_bytes_max = 8192;
  RegionFixture f(options);
  const CoreClient client = f.Open();
  CHECK(Is(f.Lease(client, 0, 64)->status(), StatusCode::kInvalidArgument, Reason::kBadArgument));
  CHECK(Is(f.Lease(client, 1, 0)->status(), StatusCode::kInvalidArgument, Reason::kBadSize));
  CHECK(Is(f.Lease(client, 1, ~Bytes{0})->status(), StatusCode::kFailedPrecondition,
           Reason::kTooLarge));
  CHECK(Is(f.Lease(client, 1, 64, "flash0")->status(), StatusCode::kInvalidArgument,
           Reason::kBadArgument));
  CHECK(Is(f.Lease(client, 1, 64, "hbm9")->status(), StatusCode::kNotFound, Reason::kNotFound));
  CHECK(f.Lease(client, 1, 64)->value->ok());
  CHECK(Is(f.Lease(client, 1, 64)->status(), StatusCode::kAlreadyExists, Reason::kExists));
  CHECK(Is(f.manager->AttachRegion(client.session, 2, OwnMemory(12288), 12288),
           StatusCode::kResourceExhausted, Reason::kQuota));
  CHECK(f.manager->AttachRegion(client.session, 2, OwnMemory(4096), 4096).ok());
  CHECK(Is(f.Lease(client, 3, 64)->status(), StatusCode::kResourceExhausted, Reason::kQuota));
  // Ids are each session's own: another's region has no name here.
  const CoreClient other = f.Open("b");
  CHECK(Is(f.manager->ReleaseRegion(other.session, 1), StatusCode::kNotFound, Reason::kNotFound));
  CHECK(Is(f.Drain(other, 1)->status(), StatusCode::kNotFound, Reason::kNotFound));
  CHECK(f.Lease(other, 1, 64)->value->ok());
  (void)f.manager->Drain(true);
  CHECK(Is(f.Lease(other, 2, 64)->status(), StatusCode::kUnavailable, Reason::kDraining));
}

TEST_CASE("one tenant's regions leave room for another's, those still in use counted", "[region]") {
  CoreOptions options;
  options.core.jobs.regions_max = 4;
  RegionFixture f(options);
  const CoreClient first = f.Open("greedy");
  const CoreClient second = f.Open("greedy");
  const CoreClient other = f.Open("other");
  REQUIRE(f.Lease(first, 1, 64)->value->ok());
  REQUIRE(f.manager->AttachRegion(first.session, 2, OwnMemory(4096), 4096).ok());
  REQUIRE(f.Lease(second, 1, 64)->value->ok());
  const auto fourth = f.Lease(second, 2, 64);
  CHECK(Is(fourth->status(), StatusCode::kResourceExhausted, Reason::kQuota));
  CHECK_THAT(std::string(fourth->status().message()), Catch::Contains("the tenant has 3 regions"));
  CHECK(f.Lease(other, 1, 64)->value->ok());
  CHECK(Is(f.Lease(other, 2, 64)->status(), StatusCode::kResourceExhausted, Reason::kQuota));
  // Released, but a copier is still at it.
  REQUIRE(f.Store(first, 1, {{"a", {{1, 0, 64}}}}).ok());
  f.Run();
  REQUIRE(f.manager->ReleaseRegion(first.session, 1).ok());
  CHECK(Is(f.Lease(second, 2, 64)->status(), StatusCode::kResourceExhausted, Reason::kQuota));
  f.Settle();
  CHECK(f.Lease(second, 2, 64)->value->ok());
}

TEST_CASE("one tenant's fragments leave room for another's", "[job]") {
  CoreOptions options;
  options.core.jobs.fragments_max = 8;
  RegionFixture f(options);
  const CoreClient first = f.Open("greedy");
  const CoreClient second = f.Open("greedy");
  const CoreClient other = f.Open("other");
  for (const CoreClient* client : {&first, &second, &other}) (void)f.LeaseNow(*client, 1, kKiB);
  const auto pieces = [](std::size_t count) { return RegionFixture::Fragments(count, {1, 0, 1}); };
  REQUIRE(f.Store(first, 1, {{"a", pieces(4)}}).ok());
  const absl::Status full = f.Store(second, 1, {{"b", pieces(3)}});
  CHECK(Is(full, StatusCode::kResourceExhausted, Reason::kQueueFull));
  CHECK(RetryAfter(full).has_value());
  CHECK(f.Store(second, 1, {{"b", pieces(2)}}).ok());
  CHECK(f.Store(other, 1, {{"a", pieces(2)}}).ok());
  f.Settle();
  // Alone, one job may have all.
  CHECK(f.StoreOne(second, 2, "c", pieces(8)).ok());
}

TEST_CASE("regions stay while their process lives and go when it is reaped", "[region]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  (void)f.LeaseNow(client, 1, kKiB);
  (void)f.LeaseNow(client, 2, kKiB);
  f.manager->CloseSession(client.session);
  f.Run();
  CHECK(f.In(f.kDdr, ByteState::kReserved) == 2 * kKiB);
  f.manager->ReapSession(client.session);
  f.Run();
  CHECK(f.Used(f.kDdr) == 0);
}

TEST_CASE("a copier that is at a region outlives its release and its session", "[region]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  std::byte* bytes = f.LeaseNow(client, 1, kKiB);
  REQUIRE(f.Store(client, 1, {{"k", {{1, 0, kKiB}}}}).ok());
  f.Run();
  REQUIRE(f.fragments.Touches(bytes, kKiB));
  const bool reap = GENERATE(false, true);
  if (reap) {
    f.manager->ReapSession(client.session);
  } else {
    CHECK(f.manager->ReleaseRegion(client.session, 1).ok());
  }
  f.Run();
  CHECK(f.fragments.Stopped(0));
  // Both ends are still set aside: a new tensor cannot get them.
  CHECK(f.Used(f.kDdr) == 2 * kKiB);
  CHECK(f.Tensors() == 0);
  f.Settle();
  CHECK(f.Used(f.kDdr) == 0);
  if (!reap) CHECK(Is(f.Verdict(client, 1), StatusCode::kCancelled, Reason::kCancelled));
}

TEST_CASE("several regions of a session that are used when it goes all go in the end", "[region]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  for (core::RegionId id = 1; id <= 3; ++id) {
    (void)f.LeaseNow(client, id, 64);
    REQUIRE(f.Store(client, id, {{std::to_string(id), {{id, 0, 64}}}}).ok());
  }
  REQUIRE(f.manager->AttachRegion(client.session, 4, OwnMemory(4096), 4096).ok());
  REQUIRE(f.Store(client, 4, {{"4", {{4, 0, 64}}}}).ok());
  f.Run();
  REQUIRE(f.fragments.size() == 4);
  f.manager->ReapSession(client.session);
  f.Settle();
  CHECK(f.Used(f.kDdr) == 0);
}

TEST_CASE("an attached region costs no tier anything and is copied like any other", "[region]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  share::Mapping mine = OwnMemory(2 * 4096);
  std::byte* bytes = mine.data();
  FillNoise(bytes, 4096, 3);
  REQUIRE(f.manager->AttachRegion(client.session, 5, std::move(mine), 8192).ok());
  CHECK(f.Used(f.kDdr) == 0);
  CHECK(f.StoreOne(client, 1, "k", {{5, 100, 1000}, {5, 3000, 7}}).ok());
  CHECK(f.LoadOne(client, 2, "k", {{5, 4096, 1007}}).ok());
  CHECK(std::equal(bytes + 100, bytes + 1100, bytes + 4096));
  CHECK(std::equal(bytes + 3000, bytes + 3007, bytes + 5096));
}

TEST_CASE("Drain answers when nothing touches the region, and lets nothing begin", "[region]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  std::byte* bytes = f.LeaseNow(client, 1, kKiB);
  (void)f.LeaseNow(client, 2, kKiB);
  CHECK(f.Drain(client, 1)->get());
  REQUIRE(f.Store(client, 1, {{"k", {{1, 0, 64}}}}).ok());
  f.Run();
  const auto drain = f.Drain(client, 1);
  f.Run();
  CHECK(!drain->done());
  REQUIRE(f.Store(client, 2, {{"l", {{1, 0, 64}}}, {"m", {{2, 0, 64}}}}).ok());
  f.fragments.Complete(0);
  f.Run();
  CHECK(drain->get());
  CHECK(!f.fragments.Touches(bytes, kKiB));
  f.Settle();
  CHECK(f.Verdict(client, 1).ok());
  CHECK(Is(f.Verdict(client, 2, 0), StatusCode::kUnavailable, Reason::kDraining));
  CHECK(f.Verdict(client, 2, 1).ok());
  // Drained is not closed.
  CHECK(f.StoreOne(client, 3, "l", {{1, 0, 64}}).ok());
}

TEST_CASE("Drain at its deadline, with cancel, and of a region that is released", "[region]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  (void)f.LeaseNow(client, 1, kKiB);
  REQUIRE(f.Store(client, 1, {{"k", {{1, 0, 64}}}}, milliseconds(1000)).ok());
  f.Run();
  const auto late = f.Drain(client, 1);
  f.PassSlowly(milliseconds(101));
  CHECK(Is(late->status(), StatusCode::kDeadlineExceeded, Reason::kDeadline));
  const auto cancelled = f.Drain(client, 1, true);
  const auto twice = f.Drain(client, 1);
  f.Run();
  CHECK(!cancelled->done());
  CHECK(f.manager->ReleaseRegion(client.session, 1).ok());
  // Its id is free again; the new region has nothing to do with the calls that wait.
  (void)f.LeaseNow(client, 1, kKiB);
  f.Run();
  CHECK(!twice->done());
  f.Settle();
  CHECK(cancelled->get());
  CHECK(twice->get());
  CHECK(Is(f.Verdict(client, 1), StatusCode::kCancelled, Reason::kCancelled));
  CHECK(f.StoreOne(client, 2, "k", {{1, 0, 64}}).ok());
}

TEST_CASE("a job says what it carries over the links of paced tiers", "[job]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  (void)f.LeaseNow(client, 1, kKiB, "hbm0");
  (void)f.LeaseNow(client, 2, kKiB, "ddr0");
  // Store puts the tensor into ddr0, Load takes it out.
  const auto crossings = [&](core::JobKind kind, core::JobId id) {
    const RegionFixture::Fragments cut = {{1, 0, 300}, {2, 0, 200}, {1, 512, 100}};
    REQUIRE((kind == core::JobKind::kStore ? f.Store(client, id, {{"k", cut}})
                                           : f.Load(client, id, {{"k", cut}}))
                .ok());
    f.Run();
    REQUIRE(f.fragments.size() == 1);
    const std::vector<copy::Crossing> found = f.fragments.job(0).crossings;
    f.Settle();
    return found;
  };
  SECTION("none is paced") {
    CHECK(crossings(core::JobKind::kStore, 1).empty());
    CHECK(crossings(core::JobKind::kLoad, 2).empty());
  }
  SECTION("the tensor's") {
    f.tier(1).mutable_options().link_bandwidth = kMiB;
    for (const bool store : {true, false}) {
      const auto found =
          crossings(store ? core::JobKind::kStore : core::JobKind::kLoad, store ? 1 : 2);
      REQUIRE(found.size() == 1);
      CHECK(found[0].tier == &f.tier(1));
      CHECK(found[0].into == store);
      CHECK(found[0].bytes == 400);  // the fragment in ddr0 stays there
    }
  }
  SECTION("the region's") {
    f.tier(0).mutable_options().link_bandwidth = kMiB;
    for (const bool store : {true, false}) {
      const auto found =
          crossings(store ? core::JobKind::kStore : core::JobKind::kLoad, store ? 1 : 2);
      REQUIRE(found.size() == 1);
      CHECK(found[0].tier == &f.tier(0));
      CHECK(found[0].into == !store);
      CHECK(found[0].bytes == 400);
    }
  }
}

}  // namespace
}  // namespace hmm::testing
