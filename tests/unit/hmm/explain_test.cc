// SPDX-License-Identifier: Apache-2.0
//
// Explain, the filters of the listing, and how long pins are known to be held.
#include "hmm/pin_ages.h"
#include "unit/hmm/core_fixture.h"

namespace hmm::testing {
namespace {

using std::chrono::seconds;

TEST_CASE("Explain says what evicting would cost, and what the daemon would do", "[explain]") {
  CoreFixture f;
  CoreClient client = f.Open("a");
  const Handle cold = f.MakeSealed(client, kKiB, "hbm0", "cold", /*droppable=*/true);
  const Handle warm = f.MakeSealed(client, kKiB, "hbm0", "warm");
  for (int i = 0; i < 10; ++i) {
    REQUIRE(client.TryPin(warm));
    client.Unpin(warm);
  }
  f.clock.Advance(seconds(2));
  auto why = f.manager->Explain(client.session, "", cold, "", 8);
  REQUIRE(why.ok());
  CHECK(why->tensor.key == "cold");
  CHECK(why->rank == 0);
  CHECK(why->of_tensors == 2);
  CHECK(why->cost.below == f.kDdr);
  CHECK(!why->cost.bring_back_measured);
  CHECK(why->cost.cost.use_probability == 0);
  CHECK(why->cost.cost.us_per_byte == 0);
  CHECK(why->cost.idle == seconds(2));
  CHECK(why->next.find("moved to ddr0") != std::string::npos);
  CHECK(why->moves.empty());
  CHECK(!why->moves_forgotten);

  why = f.manager->Explain(std::nullopt, "a", {}, "warm", 8);
  REQUIRE(why.ok());
  CHECK(why->rank == 1);
  CHECK(why->cost.accesses == 10);
  CHECK(why->cost.cost.use_probability > 0.9);
  CHECK(why->cost.cost.us_per_byte > 0);

  REQUIRE(client.TryPin(warm));
  CHECK(f.manager->Explain(client.session, "", warm, "", 8)->next == "stays while it is pinned");
  client.Unpin(warm);
  f.Swap(client, {cold}, "ddr0");
  CHECK(f.manager->Explain(client.session, "", cold, "", 8)->next == "is on its way to ddr0");
  f.Settle();
  f.Acquire(client, cold, "hbm0");
  f.Settle();
  client.Unpin(cold);
  why = f.manager->Explain(client.session, "", cold, "", 8);
  REQUIRE(why.ok());
  CHECK(why->cost.bring_back_measured);
  CHECK(why->cost.clean_below);
  CHECK(why->next.find("without moving bytes") != std::string::npos);
  REQUIRE(why->moves.size() == 2);
  CHECK(why->moves[0].to == f.kHbm);  // newest first
  CHECK(why->moves[1].to == f.kDdr);
  CHECK(f.manager->Explain(client.session, "", cold, "", 1)->moves.size() == 1);
}

TEST_CASE("Explain tells of moves that are kept, and that others were", "[explain]") {
  CoreOptions options;
  options.core.moves_kept = 4;
  CoreFixture f(options);
  CoreClient client = f.Open("a");
  const Handle handle = f.MakeSealed(client, kKiB);
  for (int i = 0; i < 4; ++i) {
    f.Swap(client, {handle}, "ddr0");
    f.Settle();
    f.Swap(client, {handle}, "hbm0");
    f.Settle();
  }
  const auto why = f.manager->Explain(client.session, "", handle, "", 16);
  REQUIRE(why.ok());
  CHECK(why->moves.size() == 4);
  CHECK(why->moves_forgotten);
  const auto few = f.manager->Explain(client.session, "", handle, "", 2);
  CHECK(!few->moves_forgotten);  // they are kept, and were not asked for
}

TEST_CASE("Explain names nothing of others", "[explain]") {
  CoreFixture f;
  CoreClient a = f.Open("a");
  CoreClient b = f.Open("b");
  const Handle handle = f.MakeSealed(a, kKiB, "hbm0", "k");
  CHECK(Is(f.manager->Explain(b.session, "", handle, "", 1).status(), absl::StatusCode::kNotFound,
           Reason::kNotFound));
  CHECK(Is(f.manager->Explain(b.session, "a", handle, "", 1).status(), absl::StatusCode::kNotFound,
           Reason::kNotFound));
  CHECK(Is(f.manager->Explain(std::nullopt, "nobody", handle, "", 1).status(),
           absl::StatusCode::kNotFound, Reason::kNotFound));
  CHECK(Is(f.manager->Explain(999, "", handle, "", 1).status(), absl::StatusCode::kUnauthenticated,
           Reason::kUnknownSession));
}

TEST_CASE("Explain without a tenant is of the one that has such a tensor, or names them",
          "[explain]") {
  CoreFixture f;
  CoreClient a = f.Open("a");
  CoreClient b = f.Open("b");
  CoreClient c = f.Open("c");
  const Handle both = f.MakeSealed(a, kKiB, "hbm0", "k");
  REQUIRE(f.MakeSealed(c, kKiB, "hbm0", "k") == both);  // a handle is a tenant's own
  const Handle alone = f.MakeSealed(c, kKiB, "hbm0", "alone");
  const auto explain = [&](Handle handle, std::string_view key, std::string_view tenant = "") {
    return f.manager->Explain(std::nullopt, tenant, handle, key, 1);
  };
  CHECK(explain(alone, "")->tensor.tenant == "c");
  CHECK(explain({}, "alone")->tensor.tenant == "c");
  CHECK(explain(both, "", "a")->tensor.tenant == "a");
  CHECK(explain({}, "k", "c")->tensor.tenant == "c");
  for (const auto& which : {explain(both, ""), explain({}, "k")}) {
    CHECK(Is(which.status(), absl::StatusCode::kInvalidArgument, Reason::kBadArgument));
    CHECK(which.status().message().find("tenants a, c has one") != std::string::npos);
  }
  // Freed, and a pin keeps it: the operator who looks for that pin is told, its tenant is not.
  REQUIRE(c.TryPin(alone));
  REQUIRE(f.Free(c, alone).ok());
  CHECK(explain(alone, "")->tensor.state == TensorState::kDoomed);
  CHECK(Is(f.manager->Explain(c.session, "", alone, "", 1).status(), absl::StatusCode::kNotFound,
           Reason::kNotFound));
  c.Unpin(alone);
  CHECK(Is(explain({}, "none").status(), absl::StatusCode::kNotFound, Reason::kNotFound));
  CHECK(Is(explain(both, "", "b").status(), absl::StatusCode::kNotFound, Reason::kNotFound));
}

TEST_CASE("the listing shows what passes all of its filters", "[list]") {
  CoreFixture f;
  CoreClient a = f.Open("a");
  CoreClient b = f.Open("b");
  core::AllocateArgs args = CoreFixture::One(64);
  args.tensors[0].kind = TensorKind::kWeight;
  args.tensors[0].key = "w/1";
  const Handle weight = f.Allocate(a, args)->get().tensors[0]->handle;  // pinned, creating
  f.MakeSealed(a, 64, "ddr0", "w/2");
  f.MakeSealed(a, 64, "hbm0", "x");
  f.MakeSealed(b, 64, "hbm0", "w/3");
  const auto count = [&](core::TensorFilter filter, std::optional<SessionId> viewer = {}) {
    const auto page = f.manager->ListTensors(viewer, filter, 0, 100);
    REQUIRE(page.ok());
    CHECK(page->next == 0);
    return page->tensors.size();
  };
  CHECK(count({}) == 4);
  CHECK(count({.tier = "hbm0"}) == 3);
  CHECK(count({.tenant = "b"}) == 1);
  CHECK(count({.kind = TensorKind::kWeight}) == 1);
  CHECK(count({.state = TensorState::kCreating}) == 1);
  CHECK(count({.state = TensorState::kAbsent}) == 0);
  CHECK(count({.key_prefix = "w/"}) == 3);
  CHECK(count({.pinned = true}) == 1);
  CHECK(count({.pinned = false}) == 3);
  CHECK(count({.tier = "hbm0", .tenant = "a", .key_prefix = "w/"}) == 1);
  CHECK(count({.key_prefix = "w/"}, a.session) == 2);
  CHECK(count({.tenant = "a"}, a.session) == 3);
  const auto status = [&](core::TensorFilter filter, std::optional<SessionId> viewer = {}) {
    return f.manager->ListTensors(viewer, filter, 0, 100).status();
  };
  CHECK(Is(status({.tenant = "b"}, a.session), absl::StatusCode::kNotFound, Reason::kNotFound));
  CHECK(Is(status({.tenant = "nobody"}), absl::StatusCode::kNotFound, Reason::kNotFound));
  CHECK(Is(status({.key_prefix = std::string(257, 'k')}), absl::StatusCode::kInvalidArgument,
           Reason::kBadArgument));
  CHECK(a.Pins(weight) == 1);
}

TEST_CASE("a pin's age is a lower bound that an audit begins", "[pinage]") {
  CoreFixture f;
  CoreClient client = f.Open("a");
  const Handle first = f.MakeSealed(client, 64);
  const Handle second = f.MakeSealed(client, 64);
  const auto oldest = [&] { return f.manager->ListSessions(std::nullopt)[0]; };
  REQUIRE(client.TryPin(first));
  CHECK(oldest().oldest_pin == Duration{});
  f.Pass(milliseconds(1001));
  REQUIRE(client.TryPin(second));
  for (int i = 0; i < 3; ++i) f.Pass(milliseconds(1000));
  CHECK(oldest().oldest_pin == milliseconds(3000));
  CHECK(oldest().oldest_pin_of == first);
  // Pinned once more: the first pin may be gone by now, for all one can know.
  REQUIRE(client.TryPin(first));
  f.Pass(milliseconds(1000));
  CHECK(oldest().oldest_pin_of == second);
  client.Unpin(second);
  f.Pass(milliseconds(1000));
  CHECK(oldest().oldest_pin_of == first);
  CHECK(oldest().oldest_pin == milliseconds(1000));
}

TEST_CASE("a pin that the daemon takes for the client begins anew", "[pinage]") {
  core::PinAges ages;
  const TimePoint start{seconds(100)};
  ages.Saw(5, 1, 1, start);
  CHECK(ages.Find(start + seconds(4))->held == seconds(4));
  ages.PinnedAgain(5, start + seconds(3));
  CHECK(ages.Find(start + seconds(4))->held == seconds(1));
  ages.Saw(5, 2, 1, start + seconds(5));  // another tensor in the slot
  CHECK(ages.Find(start + seconds(5))->held == seconds(0));
  ages.Saw(5, 2, 0, start + seconds(6));
  CHECK(!ages.Find(start + seconds(6)).has_value());
  for (std::uint32_t slot = 0; slot < 2 * core::PinAges::kTracked; ++slot) {
    ages.Saw(slot, 1, 1, start + seconds(slot == 0 ? 0 : 1));
  }
  CHECK(ages.Find(start + seconds(2))->tensor == Handle{0, 1});
}

}  // namespace
}  // namespace hmm::testing
