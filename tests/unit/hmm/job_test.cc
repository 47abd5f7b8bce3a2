// SPDX-License-Identifier: Apache-2.0
//
// Load and Store: exact bytes, nothing half-visible, one verdict a key, and ends of every kind.
#include "share/bell.h"
#include "unit/hmm/region_fixture.h"

namespace hmm::testing {
namespace {

using absl::StatusCode;

TEST_CASE("a tensor made of fragments round-trips exactly, whatever their cut", "[job]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  std::byte* from = f.LeaseNow(client, 1, 4 * kKiB);
  std::byte* to = f.LeaseNow(client, 2, 4 * kKiB);
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(0, 20)));
  std::mt19937_64 rng(seed);
  FillNoise(from, 4 * kKiB, seed);
  FillNoise(to, 4 * kKiB, seed + 1000);
  // Store may name a byte twice; Load may not, and its cut is another one.
  RegionFixture::Fragments store, load;
  std::vector<std::byte> expected;
  for (int n = 1 + static_cast<int>(rng() % 12); n > 0; --n) {
    const Bytes offset = rng() % (4 * kKiB - 1);
    const Bytes bytes = 1 + rng() % std::min<Bytes>(300, 4 * kKiB - offset);
    store.push_back({1, offset, bytes});
    expected.insert(expected.end(), from + offset, from + offset + bytes);
  }
  std::vector<std::byte> target(to, to + 4 * kKiB);
  Bytes at = rng() % 64;
  for (Bytes left = expected.size(), read = 0; left > 0;) {
    const Bytes bytes = std::min<Bytes>(left, 1 + rng() % 400);
    load.push_back({2, at, bytes});
    std::copy_n(expected.begin() + static_cast<std::ptrdiff_t>(read), bytes,
                target.begin() + static_cast<std::ptrdiff_t>(at));
    at += bytes;
    read += bytes;
    left -= bytes;
    if (at + left + 8 < 4 * kKiB) at += rng() % 8;  // holes, which stay as they were
  }
  REQUIRE(f.StoreOne(client, 1, "k", store).ok());
  FillNoise(from, 4 * kKiB, seed + 2000);
  if (seed % 2 == 1) (void)f.Evict("ddr0", 8 * kKiB);
  f.Settle();
  REQUIRE(f.LoadOne(client, 2, "k", load).ok());
  CHECK(std::equal(target.begin(), target.end(), to));
}

TEST_CASE("a stored tensor is visible when it is whole, and then the tenant's", "[job]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  CoreClient other = f.Open();
  std::byte* bytes = f.LeaseNow(client, 1, kKiB);
  FillNoise(bytes, kKiB, 7);
  REQUIRE(f.Store(client, 1, {{"k", {{1, 0, kKiB}}}}).ok());
  f.Run();
  CHECK(f.Lookup(other, {"k"})->get().run.empty());
  REQUIRE(f.Load(client, 2, {{"k", {{1, 0, kKiB}}}}).ok());
  CHECK(Is(f.Verdict(client, 2), StatusCode::kFailedPrecondition, Reason::kNotSealed));
  const std::vector<std::byte> before(bytes, bytes + kKiB);
  f.Settle();
  CHECK(f.Verdict(client, 1).ok());
  f.manager->ReapSession(client.session);
  f.Run();
  const auto found = f.Lookup(other, {"k"});
  REQUIRE(found->get().run.size() == 1);
  const core::Location at = found->get().run[0].location;
  CHECK(at.bytes == kKiB);
  CHECK(std::equal(before.begin(), before.end(), f.BytesOf(at)));
}

TEST_CASE("nobody can name a tensor that a job is filling", "[job]") {
  RegionFixture f;
  CoreClient client = f.Open();
  (void)f.LeaseNow(client, 1, kKiB);
  REQUIRE(f.Store(client, 1, {{"k", {{1, 0, 512}}}}).ok());
  f.Run();
  const std::vector<std::string> keys = {"k"};
  auto described = f.manager->Describe(client.session, {}, keys);
  REQUIRE(described.ok());
  REQUIRE((*described)[0].ok());
  const Handle handle = (*described)[0]->handle;
  CHECK(Is(f.Seal(client, handle), StatusCode::kNotFound, Reason::kNotFound));
  CHECK(Is(f.Free(client, handle).status(), StatusCode::kNotFound, Reason::kNotFound));
  CHECK(Is(f.Acquire(client, handle)->status(), StatusCode::kNotFound, Reason::kNotFound));
  CHECK(!client.TryPin(handle));
  core::AllocateArgs taken = f.One(64);
  taken.tensors[0].key = "k";
  CHECK(Is(f.Allocate(client, std::move(taken))->status(), StatusCode::kAlreadyExists,
           Reason::kExists));
  // Nor does reclaim move it.
  (void)f.Evict("ddr0", 0);
  f.Run();
  CHECK(f.copier.size() == 0);
  f.Settle();
  CHECK(f.Verdict(client, 1).ok());
  CHECK(f.Free(client, handle).ok());
}

TEST_CASE("of Load's keys that overlap the later ones are refused, the others done", "[job]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  (void)f.LeaseNow(client, 1, 2 * kKiB);
  for (const char* key : {"a", "b", "c", "d", "e"}) {
    REQUIRE(f.StoreOne(client, 10, key, {{1, 0, 100}}).ok());
    const core::JobId job = 10;
    REQUIRE(f.manager->ForgetJobs(client.session, absl::MakeConstSpan(&job, 1)).ok());
  }
  REQUIRE(f.Load(client, 1,
                 {{"a", {{1, 1000, 100}}},
                  {"b", {{1, 950, 51}, {1, 0, 49}}},  // its last byte is a's first
                  {"c", {{1, 900, 100}}},             // overlaps b alone, which is refused
                  {"d", {{1, 100, 60}, {1, 150, 40}}},
                  {"e", {{1, 200, 50}, {1, 1100, 50}}}})
              .ok());
  f.Settle();
  CHECK(f.Verdict(client, 1, 0).ok());
  CHECK(Is(f.Verdict(client, 1, 1), StatusCode::kInvalidArgument, Reason::kBadArgument));
  CHECK(Is(f.Verdict(client, 1, 2), StatusCode::kInvalidArgument, Reason::kBadArgument));
  CHECK(Is(f.Verdict(client, 1, 3), StatusCode::kInvalidArgument, Reason::kBadArgument));
  CHECK(f.Verdict(client, 1, 4).ok());
  // What was refused uses nothing.
  CHECK(f.Drain(client, 1)->get());
}

TEST_CASE("no two keys of a Load that are taken overlap, whatever the list", "[job]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(0, 30)));
  CAPTURE(seed);
  RegionFixture f;
  const CoreClient client = f.Open();
  (void)f.LeaseNow(client, 1, kKiB);
  (void)f.LeaseNow(client, 2, kKiB);
  std::mt19937_64 rng(seed);
  std::vector<std::pair<std::string, RegionFixture::Fragments>> keys;
  for (int i = 0; i < 12; ++i) {
    RegionFixture::Fragments cut;
    for (auto n = 1 + rng() % 3; n > 0; --n)
      cut.push_back({1 + rng() % 2, rng() % 960, 1 + rng() % 64});
    keys.emplace_back(std::to_string(i), cut);
  }
  REQUIRE(f.Load(client, 1, keys).ok());
  f.Settle();
  // None is there: a key that was taken is NOT_FOUND, one that was refused BAD_ARGUMENT.
  std::vector<std::size_t> taken;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const absl::Status verdict = f.Verdict(client, 1, i);
    if (ReasonOf(verdict) == Reason::kNotFound)
      taken.push_back(i);
    else
      CHECK(ReasonOf(verdict) == Reason::kBadArgument);
  }
  CHECK(!taken.empty());
  auto overlap = [&](std::size_t a, std::size_t b) {
    std::size_t found = 0;
    for (const core::FragmentSpec& one : keys[a].second) {
      for (const core::FragmentSpec& two : keys[b].second) {
        found += one.region == two.region && one.offset < two.offset + two.bytes &&
                 two.offset < one.offset + one.bytes;
      }
    }
    return found > (a == b ? keys[a].second.size() : 0);
  };
  for (const std::size_t a : taken) {
    for (const std::size_t b : taken) CHECK(!overlap(a, b));
  }
  // Nor is one refused that overlaps nothing at all.
  for (std::size_t a = 0; a < keys.size(); ++a) {
    bool any = false;
    for (std::size_t b = 0; b < keys.size(); ++b) any = any || overlap(a, b);
    if (!any) CHECK(std::find(taken.begin(), taken.end(), a) != taken.end());
  }
}

TEST_CASE("each key has its own verdict", "[job]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  (void)f.LeaseNow(client, 1, kKiB);
  CHECK(f.StoreOne(client, 1, "there", {{1, 0, 64}}).ok());
  REQUIRE(f.Store(client, 2,
                  {{"a", {{1, 0, 64}}},
                   {"there", {{1, 0, 64}}},
                   {"a", {{1, 64, 64}}},
                   {"b", {{1, 960, 65}}},
                   {"c", {{9, 0, 64}}},
                   {"", {{1, 0, 64}}},
                   {"d", {}},
                   {"e", {{1, 0, 0}}},
                   {"f", {{1, ~Bytes{0}, 2}}},
                   {std::string(257, 'x'), {{1, 0, 1}}},
                   {"g", {{1, 5, 64}, {1, 5, 64}}}})
              .ok());
  f.Settle();
  CHECK(f.Verdict(client, 2, 0).ok());
  CHECK(Is(f.Verdict(client, 2, 1), StatusCode::kAlreadyExists, Reason::kExists));
  CHECK(Is(f.Verdict(client, 2, 2), StatusCode::kAlreadyExists, Reason::kExists));
  CHECK(Is(f.Verdict(client, 2, 3), StatusCode::kInvalidArgument, Reason::kBadArgument));
  CHECK(Is(f.Verdict(client, 2, 4), StatusCode::kNotFound, Reason::kNotFound));
  CHECK(Is(f.Verdict(client, 2, 5), StatusCode::kInvalidArgument, Reason::kBadArgument));
  CHECK(Is(f.Verdict(client, 2, 6), StatusCode::kInvalidArgument, Reason::kBadSize));
  CHECK(Is(f.Verdict(client, 2, 7), StatusCode::kInvalidArgument, Reason::kBadSize));
  CHECK_THAT(std::string(f.Verdict(client, 2, 7).message()),
             Catch::EndsWith("0 bytes at offset 0 are nothing to copy"));
  CHECK(Is(f.Verdict(client, 2, 8), StatusCode::kInvalidArgument, Reason::kBadArgument));
  CHECK(Is(f.Verdict(client, 2, 9), StatusCode::kInvalidArgument, Reason::kBadArgument));
  CHECK(f.Verdict(client, 2, 10).ok());  // the same bytes twice
  REQUIRE(f.Load(client, 3,
                 {{"there", {{1, 0, 64}}},
                  {"none", {{1, 64, 64}}},
                  {"there", {{1, 128, 63}}},
                  {"there", {{1, 256, 32}, {1, 287, 32}}},
                  {"there", {{1, 512, 32}, {1, 768, 31}, {1, 543, 1}}}})
              .ok());
  f.Settle();
  CHECK(f.Verdict(client, 3, 0).ok());
  CHECK(Is(f.Verdict(client, 3, 1), StatusCode::kNotFound, Reason::kNotFound));
  CHECK(Is(f.Verdict(client, 3, 2), StatusCode::kInvalidArgument, Reason::kBadSize));
  CHECK(Is(f.Verdict(client, 3, 3), StatusCode::kInvalidArgument, Reason::kBadArgument));
  CHECK(Is(f.Verdict(client, 3, 4), StatusCode::kInvalidArgument, Reason::kBadArgument));
}

TEST_CASE("another session's region is NOT_FOUND, whoever's tenant it is", "[job]") {
  RegionFixture f;
  const CoreClient owner = f.Open();
  (void)f.LeaseNow(owner, 1, kKiB);
  const CoreClient sibling = f.Open();
  const CoreClient stranger = f.Open("b");
  for (const CoreClient* client : {&sibling, &stranger}) {
    CHECK(Is(f.StoreOne(*client, 1, "k", {{1, 0, 64}}), StatusCode::kNotFound, Reason::kNotFound));
    CHECK(Is(f.manager->CancelJobs(client->session, {2})->at(0), StatusCode::kNotFound,
             Reason::kNotFound));
  }
  CHECK(f.StoreOne(owner, 2, "k", {{1, 0, 64}}).ok());
  const core::JobId foreign = 2;
  CHECK(Is((*f.manager->PollJobs(sibling.session, absl::MakeConstSpan(&foreign, 1)))[0].status(),
           StatusCode::kNotFound, Reason::kNotFound));
  // A key is the tenant's, so a sibling may load it; a stranger may not.
  (void)f.LeaseNow(sibling, 1, 64);
  (void)f.LeaseNow(stranger, 1, 64);
  CHECK(f.LoadOne(sibling, 3, "k", {{1, 0, 64}}).ok());
  CHECK(Is(f.LoadOne(stranger, 3, "k", {{1, 0, 64}}), StatusCode::kNotFound, Reason::kNotFound));
}

TEST_CASE("Load brings a tensor up from flash", "[job]") {
  RegionFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB, "ddr0", "k");
  std::byte* bytes = f.LeaseNow(client, 1, kKiB);
  f.Write(client, handle, 0x5a);
  REQUIRE(f.Swap(client, {handle}, "flash0")->op != 0);
  f.Settle();
  REQUIRE(client.State(handle).state == TensorState::kAbsent);
  SECTION("whole") {
    CHECK(f.LoadOne(client, 1, "k", {{1, 0, kKiB}}).ok());
    CHECK(std::all_of(bytes, bytes + kKiB, [](std::byte b) { return b == std::byte{0x5a}; }));
  }
  SECTION("not if its bytes are lost") {
    REQUIRE(f.Load(client, 1, {{"k", {{1, 0, kKiB}}}}).ok());
    f.Run();
    REQUIRE(f.copier.size() == 1);
    f.copier.Corrupt(0);
    f.Settle();
    f.Pass(milliseconds(2));
    CHECK(Is(f.Verdict(client, 1), StatusCode::kDataLoss, Reason::kChecksum));
  }
}

TEST_CASE("a tensor may move or be freed while a Load copies it", "[job]") {
  RegionFixture f;
  CoreClient client = f.Open();
  std::byte* bytes = f.LeaseNow(client, 1, kKiB);
  const Handle handle = f.MakeSealed(client, kKiB, "ddr0", "k");
  f.Write(client, handle, 0x11);
  REQUIRE(f.Load(client, 1, {{"k", {{1, 0, kKiB}}}}, milliseconds(1000)).ok());
  f.Run();
  REQUIRE(f.fragments.size() == 1);
  if (GENERATE(false, true)) {
    CHECK(f.Free(client, handle).ok());
    f.Run();
    // What is new does not get the extent that is still read.
    for (int i = 0; i < 6; ++i) f.Write(client, f.Make(client, 2 * kKiB, "ddr0"), 0x22);
  } else {
    (void)f.Swap(client, {handle}, "hbm0");
    f.Run();
    f.copier.Complete(0);
    f.Run();
  }
  f.Settle();
  CHECK(f.Verdict(client, 1).ok());
  CHECK(std::all_of(bytes, bytes + kKiB, [](std::byte b) { return b == std::byte{0x11}; }));
}

TEST_CASE("Store waits for room, in turn, and takes a lower tier if it may", "[job]") {
  RegionFixture f;
  CoreClient client = f.Open();
  REQUIRE(f.manager
              ->AttachRegion(
                  client.session, 1,
                  [] {
                    auto file = share::CreateMemoryFile("r", 16 * kKiB);
                    return *share::Mapping::Map(file->get(), 16 * kKiB,
                                                share::Mapping::Access::kReadWrite, false);
                  }(),
                  16 * kKiB)
              .ok());
  for (int i = 0; i < 7; ++i) f.Make(client, kKiB, "hbm0");
  core::JobArgs args = f.Job(core::JobKind::kStore, 1, {{"k", {{1, 0, 2 * kKiB}}}});
  args.tier = "hbm0";
  SECTION("lower") {
    args.allow_lower = true;
    REQUIRE(f.manager->StartJob(client.session, std::move(args)).ok());
    f.Settle();
    CHECK(f.Verdict(client, 1).ok());
    CHECK(f.Lookup(client, {"k"})->get().run[0].location.tier == f.kDdr);
  }
  SECTION("past the deadline: DEADLINE, the others stand, no key is left taken") {
    args.deadline = f.clock.Now() + milliseconds(50);
    args.keys.push_back({.tensor = Spec(0, "l"), .fragments = {{1, 0, 64}}});
    REQUIRE(f.manager->StartJob(client.session, std::move(args)).ok());
    f.Settle();
    CHECK(!f.Ended(client, 1));
    f.PassSlowly(milliseconds(51));
    f.Settle();
    CHECK(Is(f.Verdict(client, 1, 0), StatusCode::kDeadlineExceeded, Reason::kDeadline));
    CHECK(f.StoreOne(client, 2, "k", {{1, 0, 64}}).ok());
  }
  SECTION("larger than any tier") {
    args.keys[0].fragments.assign(5, {1, 0, 16 * kKiB});
    REQUIRE(f.manager->StartJob(client.session, std::move(args)).ok());
    f.Settle();
    CHECK(Is(f.Verdict(client, 1), StatusCode::kFailedPrecondition, Reason::kTooLarge));
  }
}

TEST_CASE("a job is over only when its last copy is, whatever cut it short", "[job]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  (void)f.LeaseNow(client, 1, kKiB);
  const bool late = GENERATE(false, true);
  std::vector<std::pair<std::string, RegionFixture::Fragments>> keys;
  for (int i = 0; i < 40; ++i) keys.push_back({std::to_string(i), {{1, 0, 64}, {1, 64, 64}}});
  REQUIRE(f.Store(client, 1, std::move(keys), milliseconds(20)).ok());
  f.Run();
  CHECK(f.fragments.size() == 16);  // so many keys of a job at once
  if (late) {
    f.PassSlowly(milliseconds(21));
  } else {
    CHECK(f.manager->CancelJobs(client.session, {1})->at(0).ok());
    f.Run();
  }
  CHECK(!f.Ended(client, 1));
  CHECK(f.Tensors() == 0);
  CHECK(f.StatusOf(client, 1).keys_ended == 24);
  f.Settle();
  REQUIRE(f.Ended(client, 1));
  for (std::size_t i = 0; i < 40; ++i) {
    CHECK(ReasonOf(f.Verdict(client, 1, i)) == (late ? Reason::kDeadline : Reason::kCancelled));
  }
  CHECK(f.Used(f.kDdr) == kKiB);
}

TEST_CASE("what may be under way is bounded, and a job is told of once it is forgotten", "[job]") {
  CoreOptions options;
  options.core.jobs.jobs_per_session_max = 2;
  options.core.jobs.fragments_per_key_max = 3;
  options.core.jobs.fragments_per_job_max = 5;
  options.core.jobs.fragments_max = 8;
  RegionFixture f(options);
  const CoreClient client = f.Open();
  (void)f.LeaseNow(client, 1, kKiB);
  const RegionFixture::Fragments three(3, {1, 0, 1});
  const RegionFixture::Fragments four(4, {1, 0, 1});
  CHECK(Is(f.Store(client, 0, {{"a", three}}), StatusCode::kInvalidArgument, Reason::kBadArgument));
  CHECK(Is(f.Store(client, 1, {}), StatusCode::kInvalidArgument, Reason::kBadArgument));
  CHECK(Is(f.Store(client, 1, {{"a", three}, {"b", three}}), StatusCode::kInvalidArgument,
           Reason::kBatchTooLarge));
  CHECK(Is(f.StoreOne(client, 1, "a", four), StatusCode::kInvalidArgument, Reason::kBatchTooLarge));
  CHECK(Is(f.Store(client, 1, {{"a", three}}), StatusCode::kAlreadyExists, Reason::kExists));
  REQUIRE(f.Store(client, 2, {{"a", three}, {"b", {{1, 0, 1}, {1, 0, 1}}}}).ok());
  const absl::Status full = f.Store(client, 3, {{"c", three}});
  CHECK(Is(full, StatusCode::kResourceExhausted, Reason::kQueueFull));
  CHECK(RetryAfter(full).has_value());
  CHECK(std::string(full.message()).find("take the results") != std::string::npos);
  // Others have what one session's share leaves.
  const CoreClient other = f.Open("b");
  (void)f.LeaseNow(other, 1, kKiB);
  CHECK(Is(f.Store(other, 1, {{"a", four}}), StatusCode::kResourceExhausted, Reason::kQueueFull));
  CHECK(f.Store(other, 1, {{"a", three}}).ok());
  f.Settle();
  CHECK(f.manager->ForgetJobs(client.session, {1, 2, 77}).ok());
  CHECK(f.manager->ListJobs(client.session)->empty());
  CHECK(f.Store(client, 2, {{"d", three}}).ok());
  CHECK(f.manager->ForgetJobs(client.session, {2}).ok());  // it runs on
  CHECK(f.manager->ListJobs(client.session)->size() == 1);
  f.Settle();
  CHECK(f.manager->ListJobs(client.session)->empty());
  CHECK(f.StoreOne(client, 3, "d", three).code() == StatusCode::kAlreadyExists);
}

TEST_CASE("AwaitJobs answers when all have ended, or at its deadline with how they stand",
          "[job]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  (void)f.LeaseNow(client, 1, kKiB);
  REQUIRE(f.Store(client, 1, {{"a", {{1, 0, 64}}}}).ok());
  REQUIRE(f.Store(client, 2, {{"b", {{1, 0, 64}}}}).ok());
  std::optional<std::vector<absl::StatusOr<core::JobStatus>>> answer;
  core::CallContext call;
  call.session = client.session;
  call.deadline = f.clock.Now() + milliseconds(10);
  const auto op = f.manager->AwaitJobs(call, {1, 2, 99}, [&](auto result) {
    REQUIRE(result.ok());
    answer = *std::move(result);
  });
  CHECK(op != 0);
  f.Run();
  f.fragments.Complete(1);
  f.Run();
  CHECK(!answer.has_value());
  if (GENERATE(false, true)) {
    f.fragments.Complete(0);
    f.Run();
    REQUIRE(answer.has_value());
    CHECK((*answer)[0]->ended);
  } else {
    f.PassSlowly(milliseconds(11));
    REQUIRE(answer.has_value());
    CHECK(!(*answer)[0]->ended);
    f.Settle();
  }
  CHECK((*answer)[1]->ended);
  CHECK(Is((*answer)[2].status(), StatusCode::kNotFound, Reason::kNotFound));
}

TEST_CASE("the bell rings when a job ends", "[job]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  (void)f.LeaseNow(client, 1, kKiB);
  auto bell = f.manager->OpenJobEvents(client.session);
  REQUIRE(bell.ok());
  REQUIRE(f.Store(client, 1, {{"a", {{1, 0, 64}}}}).ok());
  f.Run();
  CHECK(!share::TakeRings(bell->get()));
  f.Settle();
  CHECK(share::TakeRings(bell->get()));
  CHECK(!share::TakeRings(bell->get()));
  // Who asks late hears of what has ended already.
  auto late = f.manager->OpenJobEvents(client.session);
  REQUIRE(late.ok());
  CHECK(share::TakeRings(late->get()));
}

TEST_CASE("draining ends jobs and takes no new Store", "[job]") {
  RegionFixture f;
  const CoreClient client = f.Open();
  (void)f.LeaseNow(client, 1, kKiB);
  REQUIRE(f.Store(client, 1, {{"a", {{1, 0, 64}}}}).ok());
  f.Run();
  (void)f.manager->Drain(true);
  CHECK(Is(f.Store(client, 2, {{"b", {{1, 0, 64}}}}), StatusCode::kUnavailable, Reason::kDraining));
  f.Settle();
  CHECK(Is(f.Verdict(client, 1), StatusCode::kUnavailable, Reason::kDraining));
  CHECK(f.Tensors() == 0);
}

TEST_CASE("keys that find too many calls waiting begin when there are fewer", "[job]") {
  CoreOptions options;
  options.core.waiting_max = 3;
  RegionFixture f(options);
  CoreClient client = f.Open();
  std::vector<Handle> handles;
  std::vector<std::pair<std::string, RegionFixture::Fragments>> keys;
  std::byte* bytes = f.LeaseNow(client, 1, 2 * kKiB);
  for (std::uint8_t i = 0; i < 8; ++i) {
    const std::string key = std::to_string(i);
    handles.push_back(f.MakeSealed(client, 256, "ddr0", key));
    f.Write(client, handles.back(), i);
    keys.push_back({key, {{1, Bytes{256} * i, 256}}});
  }
  (void)f.Swap(client, handles, "flash0");
  f.Settle();
  REQUIRE(f.Load(client, 1, std::move(keys), milliseconds(1000)).ok());
  for (int i = 0; i < 50; ++i) {
    f.Settle();
    f.Pass(milliseconds(2));
  }
  REQUIRE(f.Ended(client, 1));
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(f.Verdict(client, 1, i).ok());
    CHECK(bytes[256 * i + 5] == static_cast<std::byte>(i));
  }
}

}  // namespace
}  // namespace hmm::testing
