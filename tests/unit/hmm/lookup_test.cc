// SPDX-License-Identifier: Apache-2.0
//
// Lookup: the leading run of keys, pinned, with where each was and what bringing it costs.
#include "unit/hmm/core_fixture.h"

namespace hmm::testing {
namespace {

TEST_CASE("Lookup pins the leading run and says why it ended", "[lookup]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle a = f.MakeSealed(client, kKiB, "hbm0", "a");
  const Handle b = f.MakeSealed(client, kKiB, "ddr0", "b");
  const Handle d = f.MakeSealed(client, kKiB, "hbm0", "d");
  const auto answer = f.Lookup(client, {"a", "b", "c", "d"});
  const core::LookupResult& result = answer->get();
  REQUIRE(result.run.size() == 2);
  CHECK(result.run[0].handle == a);
  CHECK(result.run[0].location.tier == f.kHbm);
  CHECK(result.run[0].estimated_us == 0);
  CHECK(result.run[1].handle == b);
  CHECK(result.run[1].found_tier == f.kDdr);
  CHECK(result.miss_reason == "NOT_FOUND");
  CHECK(client.Pins(a) == 1);
  CHECK(client.Pins(b) == 1);
  CHECK(client.Pins(d) == 0);
  CHECK(f.Counted().lookups == 4);
  CHECK(f.Counted().lookup_hits == 2);
  CHECK(f.Counted().misses == 2);
}

TEST_CASE("all found: no reason; nothing found: an empty run", "[lookup]") {
  CoreFixture f;
  CoreClient client = f.Open();
  f.MakeSealed(client, kKiB, "hbm0", "a");
  CHECK(f.Lookup(client, {"a"})->get().miss_reason.empty());
  CHECK(f.Lookup(client, {"x", "a"})->get().run.empty());
  CHECK(f.Lookup(client, std::vector<std::string>{})->get().run.empty());
}

TEST_CASE("an unsealed tensor is invisible: the run ends NOT_SEALED", "[lookup]") {
  CoreFixture f;
  CoreClient client = f.Open();
  f.MakeSealed(client, kKiB, "hbm0", "a");
  core::AllocateArgs args = f.One(kKiB);
  args.tensors[0].key = "b";
  REQUIRE(f.Allocate(client, std::move(args))->get().tensors[0].ok());
  const auto answer = f.Lookup(client, {"a", "b"});
  CHECK(answer->get().run.size() == 1);
  CHECK(answer->get().miss_reason == "NOT_SEALED");
}

TEST_CASE("keys of another tenant are misses", "[lookup]") {
  CoreFixture f;
  CoreClient a = f.Open("a");
  CoreClient b = f.Open("b");
  f.MakeSealed(a, kKiB, "hbm0", "k");
  CHECK(f.Lookup(b, {"k"})->get().miss_reason == "NOT_FOUND");
  f.MakeSealed(b, kKiB, "hbm0", "k");  // its own name space
}

TEST_CASE("no_pin only looks: no move, no pin, no access", "[lookup]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle low = f.MakeOnFlash(client, kKiB, "low");
  const std::uint32_t before = client.Word(low).load();
  core::LookupArgs args;
  args.keys = {"low"};
  args.no_pin = true;
  args.tier = "hbm0";
  const auto answer = f.Lookup(client, std::move(args));
  REQUIRE(answer->get().run.size() == 1);
  CHECK(answer->get().run[0].found_tier == f.kFlash);
  CHECK(answer->get().run[0].estimated_us > 0);
  CHECK(f.copier.size() == 0);
  CHECK(client.Word(low).load() == before);
}

TEST_CASE("Lookup brings up what lies below", "[lookup]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle low = f.MakeOnFlash(client, kKiB, "low");
  const auto answer = f.Lookup(client, {"low"});
  CHECK(!answer->done());
  f.Settle();
  REQUIRE(answer->get().run.size() == 1);
  CHECK(answer->get().run[0].location.tier == f.kDdr);
  CHECK(client.Pins(low) == 1);
}

TEST_CASE("the run is cut where something cannot be had, later pins are undone", "[lookup]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle a = f.MakeSealed(client, kKiB, "ddr0", "a");
  const Handle b = f.MakeOnFlash(client, kKiB, "b");
  const Handle c = f.MakeSealed(client, kKiB, "ddr0", "c");
  const auto answer = f.Lookup(client, {"a", "b", "c"});
  REQUIRE(f.copier.size() == 1);
  f.FailCopy(0, absl::StatusCode::kDataLoss);
  CHECK(answer->get().run.size() == 1);
  CHECK(answer->get().miss_reason == "CHECKSUM");
  CHECK(client.Pins(a) == 1);
  CHECK(client.Pins(c) == 0);
  (void)b;
}

TEST_CASE("no room for a part of the run: FULL, the part before it is pinned", "[lookup]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle there = f.MakeSealed(client, kKiB, "hbm0", "there");
  f.MakeSealed(client, 7 * kKiB, "ddr0", "big");
  f.Make(client, 3 * kKiB);
  core::LookupArgs args;
  args.keys = {"there", "big"};
  args.tier = "hbm0";
  const auto answer = f.Lookup(client, std::move(args), milliseconds(10));
  f.PassSlowly(milliseconds(12));
  f.Settle();
  CHECK(answer->get().run.size() == 1);
  CHECK(!answer->get().miss_reason.empty());
  CHECK(client.Pins(there) == 1);
}

}  // namespace
}  // namespace hmm::testing
