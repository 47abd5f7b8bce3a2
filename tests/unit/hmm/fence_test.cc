// SPDX-License-Identifier: Apache-2.0
//
// The daemon's side of fences: a pin whose value is reached is in nobody's way.
#include "share/fence.h"

#include <cstring>

#include "unit/hmm/region_fixture.h"

namespace hmm::testing {
namespace {

share::FenceArea& FencesOf(const CoreClient& client) {
  return share::Fences(const_cast<std::byte*>(client.page.data()));
}

TEST_CASE("a pin at a fence holds until its value is reached, then yields to a move", "[fence]") {
  RegionFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB, "hbm0");
  REQUIRE(client.TryPin(handle));
  REQUIRE(share::ArmFence(FencesOf(client), handle.slot, 0, 5).has_value());
  const auto held = f.Swap(client, {handle}, "ddr0");
  CHECK(
      Is(held->get().tensors[0].status(), absl::StatusCode::kFailedPrecondition, Reason::kPinned));
  // Signalled by nobody who would tell the daemon.
  FencesOf(client).timelines[0].value.store(5);
  f.Pass(milliseconds(1));
  const auto moved = f.Swap(client, {handle}, "ddr0");
  f.Settle();
  CHECK(moved->get().tensors[0].ok());
  CHECK(client.Pins(handle) == 0);
}

TEST_CASE("the audit ends what is reached, and the session's share is free again", "[fence]") {
  CoreOptions options;
  options.core.session_pinned_max = 0.5;
  RegionFixture f(options);
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, 3 * kKiB, "hbm0");
  REQUIRE(f.Acquire(client, handle)->value->ok());
  REQUIRE(share::ArmFence(FencesOf(client), handle.slot, 1, 1).has_value());
  CHECK(ReasonOf(f.Allocate(client, f.One(2 * kKiB))->status()) == Reason::kQuota);
  share::Signal(FencesOf(client).timelines[1], 1);
  f.Pass(milliseconds(1001));
  CHECK(client.Pins(handle) == 0);
  CHECK(f.Allocate(client, f.One(2 * kKiB))->value->ok());
}

TEST_CASE("a page full of nonsense hurts its own tenant alone", "[fence]") {
  RegionFixture f;
  CoreClient liar = f.Open("a");
  CoreClient honest = f.Open("b");
  const Handle theirs = f.MakeSealed(honest, kKiB, "hbm0");
  REQUIRE(honest.TryPin(theirs));
  const Handle mine = f.MakeSealed(liar, kKiB, "hbm0");
  std::mt19937_64 rng(1);
  for (int round = 0; round < 50; ++round) {
    share::FenceArea& area = FencesOf(liar);
    for (share::FenceEntry& entry : area.entries) {
      entry.state = rng() % 2 == 0 ? rng() : share::WithState(rng(), share::FenceState::kArmed);
      entry.slot = static_cast<std::uint32_t>(rng() % 3 == 0 ? rng() : rng() % 600);
      entry.timeline = static_cast<std::uint32_t>(rng() % 2 == 0 ? rng() : rng() % 64);
      entry.value = rng() % 4;
    }
    area.used = static_cast<std::uint32_t>(rng());
    (void)liar.TryPin(mine);
    (void)f.Swap(liar, {mine}, round % 2 == 0 ? "ddr0" : "hbm0");
    f.Pass(milliseconds(600));
    f.Settle();
  }
  CHECK(honest.Pins(theirs) == 1);
  CHECK(honest.State(theirs).state == TensorState::kResident);
}

}  // namespace
}  // namespace hmm::testing
