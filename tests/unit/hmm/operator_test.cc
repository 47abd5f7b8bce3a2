// SPDX-License-Identifier: Apache-2.0
//
// What operators ask: Evict, what leaves for their moves and sizes, watermarks, listings, status.
#include <algorithm>

#include "unit/hmm/core_fixture.h"

namespace hmm::testing {
namespace {

TEST_CASE("Evict empties a tier down to what was asked for", "[evict]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 6; ++i) f.MakeSealed(client, kKiB);
  const auto answer = f.Evict("hbm0", 2 * kKiB);
  f.Settle();
  CHECK(answer->get().freed_bytes == 4 * kKiB);
  CHECK(answer->get().tensors == 4);
  CHECK(answer->get().dropped == 0);
  CHECK(answer->get().pinned_tensors == 0);
  CHECK(f.Used(f.kHbm) == 2 * kKiB);
}

TEST_CASE("Evict ends when only pinned ones are left, and counts them", "[evict]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 2; ++i) f.MakeSealed(client, kKiB);
  for (int i = 0; i < 3; ++i) f.Make(client, kKiB);
  const auto answer = f.Evict("hbm0", 0, milliseconds(100000));
  f.Settle();
  CHECK(!answer->done());
  for (int i = 0; i < 120 && !answer->done(); ++i) f.Pass(milliseconds(2));
  CHECK(answer->get().freed_bytes == 2 * kKiB);
  CHECK(answer->get().pinned_tensors == 3);
}

TEST_CASE("Evict to what a tier holds already: no pinned one had to stay", "[evict]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 3; ++i) f.Make(client, kKiB);
  f.MakeSealed(client, kKiB);
  const auto nothing = f.Evict("hbm0", 4 * kKiB);
  f.Settle();
  CHECK(nothing->get().tensors == 0);
  CHECK(nothing->get().pinned_tensors == 0);
  const auto enough = f.Evict("hbm0", 3 * kKiB);
  f.Settle();
  CHECK(enough->get().tensors == 1);
  CHECK(enough->get().pinned_tensors == 0);
}

TEST_CASE("Evict answers with what it has at its deadline", "[evict]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 4; ++i) f.MakeSealed(client, kKiB);
  const auto answer = f.Evict("hbm0", 0, milliseconds(5));
  f.copier.Complete(0);
  f.PassSlowly(milliseconds(6));
  CHECK(answer->get().freed_bytes == kKiB);
  CHECK(Is(f.Evict("none", 0)->status(), absl::StatusCode::kNotFound, Reason::kNotFound));
}

TEST_CASE("Evict of a bottom that nothing can leave ends soon, and says why", "[evict]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 3; ++i) f.MakeOnFlash(client, kKiB);
  const auto answer = f.Evict("flash0", 0, milliseconds(100000));
  for (int i = 0; i < 120 && !answer->done(); ++i) f.Pass(milliseconds(2));
  REQUIRE(answer->done());
  CHECK(answer->get().freed_bytes == 0);
  CHECK(answer->get().pinned_tensors == 0);
  CHECK(answer->get().kept_tensors == 3);
}

TEST_CASE("Evict of the bottom drops what may be dropped", "[evict]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle kept = f.MakeOnFlash(client, kKiB);
  const Handle gone = f.MakeOnFlash(client, kKiB, "", /*droppable=*/true);
  const auto answer = f.Evict("flash0", 0);
  f.PassSlowly(milliseconds(150));
  CHECK(answer->get().freed_bytes == kKiB);
  CHECK(answer->get().tensors == 1);
  CHECK(answer->get().dropped == 1);
  CHECK(f.Describe(client, kept).ok());
  CHECK(!f.Describe(client, gone).ok());
}

TEST_CASE("Evict of very many clean copies does not hold the executor for all of them",
          "[evict][case 8]") {
  CoreOptions options;
  options.hbm = 64 * kKiB;
  options.ddr = 64 * kKiB;
  CoreFixture f(options);
  CoreClient client = f.Open();
  core::AllocateArgs args;
  for (int i = 0; i < 400; ++i) args.tensors.push_back(Spec(64));
  args.tier = "ddr0";
  const auto made = f.Allocate(client, std::move(args));
  std::vector<Handle> handles;
  for (const auto& one : made->get().tensors) {
    handles.push_back(one->handle);
    REQUIRE(f.Seal(client, one->handle).ok());
  }
  (void)f.Swap(client, handles, "hbm0");
  f.Settle();
  REQUIRE(f.manager->ListTiers(std::nullopt)[f.kDdr].clean_copies == 400 * 64);
  const auto answer = f.Evict("ddr0", 0);
  CHECK(f.manager->ListTiers(std::nullopt)[f.kDdr].clean_copies == (400 - 256) * 64);
  f.Run();
  CHECK(answer->get().freed_bytes == 400 * 64);
}

TEST_CASE("a tier that shrinks tells those that it drops from those that move, in their own bytes",
          "[resize]") {
  CoreOptions options;
  options.flash = 16 * kKiB;
  CoreFixture f(options);
  CoreClient client = f.Open();
  // A clean copy stays in flash for each that came up again: what goes first, and is no tensor.
  for (int i = 0; i < 4; ++i) {
    const Handle up = f.MakeOnFlash(client, kKiB);
    (void)f.Swap(client, {up}, "ddr0");
    f.Settle();
  }
  for (int i = 0; i < 8; ++i) f.MakeOnFlash(client, kKiB, "", /*droppable=*/true);
  REQUIRE(f.Used(f.kFlash) == 12 * kKiB);
  auto answer = std::make_shared<Answer<core::ResizeResult>>();
  f.manager->ResizeTier(
      "flash0", 5 * kKiB, f.clock.Now() + milliseconds(5000),
      [answer](absl::StatusOr<core::ResizeResult> result) { answer->value = std::move(result); });
  for (int i = 0; i < 500 && !answer->done(); ++i) {
    f.Settle();
    f.Pass(milliseconds(2));
  }
  CHECK(answer->get().tensors == 3);
  CHECK(answer->get().dropped == 3);
  CHECK(answer->get().freed_bytes == 3 * kKiB);
  CHECK(f.Counted().evictions == 3);
}

TEST_CASE("what an operator's move pushes out is not said to be there", "[swapmany]") {
  CoreOptions options;
  options.flash = 8 * kKiB;
  CoreFixture f(options);
  CoreClient client = f.Open("a");
  for (int i = 0; i < 16; ++i) f.MakeOnFlash(client, 512, "", /*droppable=*/true);
  for (int i = 0; i < 4; ++i) f.MakeSealed(client, 512, "ddr0");
  core::TensorSelector selector;
  selector.tenant = "a";
  auto answer = std::make_shared<Answer<core::SwapManyResult>>();
  f.manager->SwapMany(
      selector, "flash0", f.clock.Now() + milliseconds(5000),
      [answer](absl::StatusOr<core::SwapManyResult> result) { answer->value = std::move(result); });
  for (int i = 0; i < 500 && !answer->done(); ++i) {
    f.Settle();
    f.Pass(milliseconds(2));
  }
  const core::SwapManyResult& result = answer->get();
  CHECK(result.tensors == 4);
  CHECK(result.left == 4);
  CHECK(result.there == 12);
  CHECK(result.tensors + result.there == f.manager->ListTiers(std::nullopt)[f.kFlash].tensors);
}

TEST_CASE("SetWatermarks checks, takes effect at once, and is shown", "[watermarks]") {
  CoreFixture f;
  CoreClient client = f.Open();
  for (int i = 0; i < 6; ++i) f.MakeSealed(client, kKiB);
  CHECK(f.manager->SetWatermarks("hbm0", 0.5, 0.6, std::nullopt).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(f.manager->SetWatermarks("hbm0", 0.5, 0.4, 8 * kKiB).code() ==
        absl::StatusCode::kInvalidArgument);
  // Accepted, it would empty the tier.
  CHECK(f.manager->SetWatermarks("hbm0", 0.5, 0.4, 5 * kKiB).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(f.manager->SetWatermarks("what", 0.5, 0.4, std::nullopt).code() ==
        absl::StatusCode::kNotFound);
  f.Settle();
  CHECK(f.Used(f.kHbm) == 6 * kKiB);
  REQUIRE(f.manager->SetWatermarks("hbm0", 0.5, 0.25, 2 * kKiB).ok());
  f.Settle();
  CHECK(f.Used(f.kHbm) == 2 * kKiB);
  const core::TierInfo info = f.manager->ListTiers(std::nullopt)[f.kHbm];
  CHECK(info.high == 0.5);
  CHECK(info.low == 0.25);
  CHECK(info.reserve == 2 * kKiB);
}

TEST_CASE("ListTensors goes through all, in pages, filtered by tier and tenant", "[list]") {
  CoreFixture f;
  CoreClient a = f.Open("a");
  CoreClient b = f.Open("b");
  std::vector<Handle> made;
  for (int i = 0; i < 5; ++i) made.push_back(f.MakeSealed(a, 64));
  f.MakeSealed(a, 64, "ddr0");
  f.MakeSealed(b, 64);
  REQUIRE(f.Free(a, made[2]).ok());
  auto list = [&](std::optional<SessionId> viewer, std::string_view tier, std::size_t limit) {
    std::vector<core::TensorInfo> all;
    std::uint64_t cursor = 0;
    do {
      auto page = f.manager->ListTensors(viewer, {.tier = std::string(tier)}, cursor, limit);
      REQUIRE(page.ok());
      REQUIRE(page->tensors.size() <= limit);
      for (auto& tensor : page->tensors) all.push_back(tensor);
      REQUIRE((page->next == 0 || page->next > cursor));
      cursor = page->next;
    } while (cursor != 0);
    return all;
  };
  CHECK(list(std::nullopt, "", 2).size() == 6);
  CHECK(list(std::nullopt, "", 100).size() == 6);
  CHECK(list(std::nullopt, "ddr0", 1).size() == 1);
  CHECK(list(a.session, "", 2).size() == 5);
  CHECK(list(b.session, "hbm0", 3).size() == 1);
  CHECK(list(b.session, "", 3)[0].tenant == "b");
  CHECK(ReasonOf(f.manager->ListTensors(999, {}, 0, 3).status()) == Reason::kUnknownSession);
  CHECK(f.manager->ListTensors(std::nullopt, {.tier = "none"}, 0, 1).status().code() ==
        absl::StatusCode::kNotFound);
}

TEST_CASE("a page of the listing looks at a bounded number of slots", "[list]") {
  CoreFixture f;
  CoreClient client = f.Open();
  std::vector<Handle> made;
  for (int i = 0; i < 100; ++i) made.push_back(f.MakeSealed(client, 64));
  for (int i = 0; i < 99; ++i) {
    REQUIRE(f.Free(client, made[static_cast<std::size_t>(i)]).ok());
  }
  auto page = f.manager->ListTensors(std::nullopt, {}, 0, 1);
  REQUIRE(page.ok());
  CHECK(page->tensors.empty());
  CHECK(page->next != 0);
}

TEST_CASE("Describe says what is known", "[describe]") {
  CoreFixture f;
  CoreClient client = f.Open();
  CoreClient other = f.Open();
  core::AllocateArgs args = f.One(1000, "ddr0");
  args.tensors[0].kind = TensorKind::kWeight;
  args.tensors[0].key = "w";
  args.tensors[0].priority = 3;
  args.tensors[0].recompute_us = 42;
  args.tensors[0].droppable = true;
  const Handle handle = f.Allocate(client, args)->get().tensors[0]->handle;
  REQUIRE(f.Seal(client, handle, "", false).ok());
  REQUIRE(other.TryPin(handle));
  REQUIRE(other.TryPin(handle));
  f.clock.Advance(milliseconds(500));
  const core::TensorInfo info = *f.Describe(client, handle);
  CHECK(info.handle == handle);
  CHECK(info.kind == TensorKind::kWeight);
  CHECK(info.key == "w");
  CHECK(info.bytes == 1000);
  CHECK(info.priority == 3);
  CHECK(info.recompute_us == 42);
  CHECK(info.droppable);
  CHECK(info.sealed);
  CHECK(info.state == TensorState::kResident);
  CHECK(info.tier == f.kDdr);
  CHECK(info.age == milliseconds(500));
  CHECK(info.pins ==
        std::vector<std::pair<SessionId, std::uint32_t>>{{client.session, 1}, {other.session, 2}});
  const std::vector<std::string> keys = {"w", "none"};
  const auto by_key = f.manager->Describe(client.session, {}, keys);
  CHECK((*by_key)[0]->handle == handle);
  CHECK((*by_key)[1].status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("the tiers' bytes by state always sum to the capacity", "[list]") {
  CoreFixture f;
  CoreClient client = f.Open();
  f.Make(client, kKiB);
  f.MakeSealed(client, kKiB);
  const Handle moving = f.MakeSealed(client, kKiB);
  (void)f.Swap(client, {moving}, "ddr0");
  for (const core::TierInfo& tier : f.manager->ListTiers(std::nullopt)) {
    Bytes sum = 0;
    for (const Bytes bytes : tier.by_state) sum += bytes;
    CHECK(sum == tier.capacity);
  }
  const core::StatusInfo status = f.manager->GetStatus(std::nullopt);
  CHECK(status.sessions == 1);
  CHECK(status.tensors == 3);
  CHECK(status.pins == 1);
  CHECK(status.epoch == 7);
  REQUIRE(status.links.size() == 1);
  CHECK(status.links[0].stats.running == 1);
}

}  // namespace
}  // namespace hmm::testing
