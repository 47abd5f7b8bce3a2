// SPDX-License-Identifier: Apache-2.0
//
// Several tiers of a kind: where a session's tensors go, what is below what, and what is made of
// measured links.
#include <set>

#include "unit/hmm/core_fixture.h"

namespace hmm::testing {
namespace {

using std::chrono::microseconds;

// hbm0, hbm1 -> ddr0 -> remote -> flash0
constexpr TierId kHbm1 = 1;
constexpr TierId kDdr0 = 2;
constexpr TierId kRemote = 3;
constexpr TierId kFlash0 = 4;

CoreOptions Many() {
  CoreOptions options;
  options.many = true;
  return options;
}

std::string PathOf(CoreFixture& f) {
  std::string out;
  for (const auto& to : f.manager->GetTopology().demote_to) {
    out += to.has_value() ? f.manager->tier(*to).name() + " " : "- ";
  }
  return out;
}

copy::LinkModel Link(TierId from, TierId to, Duration latency, double rate) {
  copy::LinkModel link;
  link.from = from;
  link.to = to;
  link.latency = latency;
  link.curve = {{kMiB, rate}};
  link.contention_group = 1;
  return link;
}

TEST_CASE("a session's tensors go to its device", "[path]") {
  CoreFixture f(Many());
  CoreClient first = f.Open("a");
  CoreClient second = f.Open("a", "hbm1");
  const auto a = f.Allocate(first, f.One(kKiB));
  const auto b = f.Allocate(second, f.One(kKiB));
  CHECK(a->get().tensors[0]->location.tier == f.kHbm);
  CHECK(b->get().tensors[0]->location.tier == kHbm1);
  // A hint without a tier brings to the device.
  const Handle handle = f.MakeSealed(first, kKiB, "ddr0");
  REQUIRE(f.Prefetch(second, handle).ok());
  f.Settle();
  CHECK(f.Describe(second, handle)->tier == kHbm1);
}

TEST_CASE("each device demotes to what it is told, and an offline tier is passed by", "[path]") {
  CoreFixture f(Many());
  CHECK(PathOf(f) == "ddr0 ddr0 remote flash0 - ");
  CoreClient client = f.Open("a", "hbm1");
  const Handle handle = f.MakeSealed(client, kKiB, "hbm1");
  f.Evict("hbm1", 0);
  f.Settle();
  CHECK(f.Describe(client, handle)->tier == kDdr0);
  f.Evict("ddr0", 0);
  f.Settle();
  CHECK(f.Describe(client, handle)->tier == kRemote);
  f.Evict("remote", 0);
  f.Settle();
  CHECK(f.Describe(client, handle)->tier == kFlash0);
}

// Pins all of ddr0, the reserve too: that is for exchanges, so one more is brought up into it.
void PinAllOfDdr(CoreFixture& f, CoreClient& holder) {
  const Handle exchanged = f.MakeOnFlash(holder, kKiB);
  for (int i = 0; i < 15; ++i) f.Make(holder, kKiB, "ddr0");
  const auto last = f.Acquire(holder, exchanged, "ddr0");
  f.Settle();
  REQUIRE(last->get().tensors[0].ok());
  REQUIRE(f.Used(f.kDdr) == 16 * kKiB);
}

TEST_CASE("a tier that pins have filled is passed by, down and up: nothing is lost", "[path]") {
  CoreFixture f;
  CoreClient holder = f.Open();
  CoreClient client = f.Open();
  PinAllOfDdr(f, holder);
  std::vector<Handle> cache;
  for (std::uint8_t i = 0; i < 24; ++i) {
    core::AllocateArgs args = CoreFixture::One(kKiB);
    args.tensors[0].droppable = true;
    args.wait = true;
    const auto made = f.Allocate(client, std::move(args));
    f.Settle();
    cache.push_back(made->get().tensors[0]->handle);
    f.Write(client, cache.back(), i);
    REQUIRE(f.Seal(client, cache.back()).ok());
  }
  for (std::uint8_t i = 0; i < 24; ++i) {
    const auto again = f.Acquire(client, cache[i], "hbm0");
    f.Settle();
    REQUIRE(again->get().tensors[0].ok());
    CHECK(f.Describe(client, cache[i])->tier == f.kHbm);
    CHECK(f.Holds(client, cache[i], i));
    client.Unpin(cache[i]);
  }
  CHECK(f.Counted().evictions == 0);
}

TEST_CASE("what is above its watermark goes past pins, too, before anything is lost", "[path]") {
  CoreOptions options;
  options.high = 0.5;
  options.low = 0.25;
  CoreFixture f(options);
  CoreClient holder = f.Open();
  CoreClient client = f.Open();
  for (int i = 0; i < 15; ++i) f.Make(holder, kKiB, "ddr0");
  for (int i = 0; i < 6; ++i) f.MakeSealed(client, kKiB, "hbm0", "", /*droppable=*/true);
  f.Settle();
  f.Pass(milliseconds(10));
  f.Settle();
  CHECK(f.Used(f.kHbm) == 2 * kKiB);
  CHECK(f.Counted().evictions == 0);
}

TEST_CASE("droppable ones are dropped where nothing further down takes them either", "[path]") {
  CoreFixture f;
  CoreClient holder = f.Open();
  CoreClient client = f.Open();
  PinAllOfDdr(f, holder);
  while (f.Used(f.kFlash) < 32 * kKiB) {
    const auto more = f.AllocateWaiting(client, kKiB);
    f.Settle();
    REQUIRE(f.Seal(client, more->get().tensors[0]->handle).ok());
    f.Evict("hbm0", 0);
    f.Settle();
  }
  for (int i = 0; i < 7; ++i) f.MakeSealed(client, kKiB, "hbm0", "", /*droppable=*/i == 3);
  std::uint64_t served = 0;
  absl::Status refused;
  for (; refused.ok() && served < 10; served += refused.ok()) {
    const auto next = f.AllocateWaiting(client, kKiB);
    f.Settle();
    f.PassSlowly(milliseconds(110));
    refused = next->value->status();
  }
  CHECK(f.Counted().evictions == 1);
  CHECK(served <= 2);  // its room, and that of a clean copy on flash
  CHECK(ReasonOf(refused) == Reason::kPinned);
}

TEST_CASE("on the way from flash one tier of each kind is enough", "[path]") {
  CoreFixture f(Many());
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB, "hbm0");
  const auto down = f.Swap(client, {handle}, "flash0");
  f.Settle();
  REQUIRE(down->get().tensors[0].ok());
  // ddr0 took part, the slower pool did not.
  CHECK(f.Used(kRemote) == 0);
  std::set<std::string> links;
  for (const core::LinkInfo& link : f.manager->GetStatus(std::nullopt).links) {
    links.insert(f.manager->tier(link.from).name() + ">" + f.manager->tier(link.to).name());
  }
  CHECK(links == std::set<std::string>{"hbm0>ddr0", "ddr0>flash0"});
  const auto up = f.Acquire(client, handle, "hbm1");
  f.Settle();
  CHECK(up->get().tensors[0]->location.tier == kHbm1);
  links.clear();
  for (const core::LinkInfo& link : f.manager->GetStatus(std::nullopt).links) {
    links.insert(f.manager->tier(link.from).name() + ">" + f.manager->tier(link.to).name());
  }
  CHECK(links == std::set<std::string>{"hbm0>ddr0", "ddr0>flash0", "flash0>ddr0", "ddr0>hbm1"});
}

TEST_CASE("memory is copied across directly", "[path]") {
  CoreFixture f(Many());
  CoreClient client = f.Open("a", "hbm1");
  const Handle handle = f.MakeSealed(client, kKiB, "remote");
  const auto up = f.Acquire(client, handle, "hbm0");
  f.Settle();
  CHECK(up->get().tensors[0]->location.tier == f.kHbm);
  const auto status = f.manager->GetStatus(std::nullopt);
  REQUIRE(status.links.size() == 1);
  CHECK(status.links[0].from == kRemote);
}

TEST_CASE("Lookup's estimates are the measured links'", "[path]") {
  CoreFixture f;
  CoreClient client = f.Open();
  f.MakeOnFlash(client, 2 * kKiB, "k");
  core::LookupArgs args;
  args.keys = {"k"};
  args.tier = "hbm0";
  args.no_pin = true;
  f.manager->SetMeasurement({.links = {Link(f.kFlash, f.kDdr, microseconds(100), 2048e4),
                                       Link(f.kDdr, f.kHbm, microseconds(7), 2048e6)}});
  CHECK(f.Lookup(client, args)->get().run[0].estimated_us == 100 + 100 + 7 + 1);
  // A link that was not measured is guessed by what it moved, or by nothing.
  f.manager->SetMeasurement({});
  CHECK(f.Lookup(client, args)->get().run[0].estimated_us < 100);
}

TEST_CASE("what is sooner recomputed than brought back is dropped", "[path]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const auto make = [&](std::uint64_t recompute_us, bool droppable) {
    core::AllocateArgs args = f.One(kKiB, "hbm0");
    args.tensors[0].recompute_us = recompute_us;
    args.tensors[0].droppable = droppable;
    const Handle handle = f.Allocate(client, std::move(args))->get().tensors[0]->handle;
    REQUIRE(f.Seal(client, handle).ok());
    return handle;
  };
  const auto kept = [&](Handle handle) { return f.Describe(client, handle).ok(); };
  const auto evict = [&] {
    f.Evict("hbm0", 0);
    f.Settle();
  };
  // 50 us back: 40 to start, and 10 for a KiB.
  f.manager->SetMeasurement({.links = {Link(f.kDdr, f.kHbm, microseconds(40), 1024e5)}});
  const Handle cheap = make(49, true);
  const Handle dear = make(51, true);
  const Handle needed = make(49, false);
  const Handle unknown = make(0, true);
  evict();
  CHECK_FALSE(kept(cheap));
  CHECK(kept(dear));
  CHECK(kept(needed));
  CHECK(kept(unknown));
  // Nothing measured, nothing compared.
  f.manager->SetMeasurement({});
  const Handle later = make(1, true);
  evict();
  CHECK(kept(later));
}

struct Calibrated {
  std::optional<absl::StatusOr<std::vector<copy::LinkModel>>> value;
};

CoreOptions Large() {
  CoreOptions options;
  options.hbm = options.ddr = options.flash = 2 * kMiB;
  return options;
}

TEST_CASE("Calibrate: one at a time, cancelled like any call, and used", "[path]") {
  CoreFixture f(Large());
  Calibrated first;
  Calibrated second;
  const auto start = [&](Calibrated& into) {
    return f.manager->Calibrate(f.clock.Now() + std::chrono::seconds(5),
                                [&into](auto links) { into.value = std::move(links); });
  };
  const auto op = start(first);
  CHECK(op != 0);
  f.executor.RunReady();
  CHECK(f.copier.size() > 0);
  start(second);
  REQUIRE(second.value.has_value());
  CHECK(Is(second.value->status(), absl::StatusCode::kUnavailable, Reason::kQueueFull));
  f.manager->Cancel(op);
  REQUIRE(first.value.has_value());
  CHECK(Is(first.value->status(), absl::StatusCode::kCancelled, Reason::kCancelled));
  CHECK(f.Used(f.kHbm) > 0);  // the copier still has it
  f.Settle();
  CHECK(f.Used(f.kHbm) == 0);
  CHECK(f.Used(f.kDdr) == 0);

  std::size_t told = 0;
  f.manager->OnCalibrated([&](const auto& links) { told = links.size(); });
  first.value.reset();
  start(first);
  for (int i = 0; i < 100'000 && !first.value.has_value(); ++i) {
    while (f.copier.size() > 0) f.copier.Complete(0);
    f.executor.Advance(microseconds(200));
  }
  REQUIRE(first.value.has_value());
  REQUIRE(first.value->ok());
  CHECK((*first.value)->size() == 4);
  CHECK(told == 4);
  CHECK(f.manager->GetTopology().measured.links == **first.value);
  for (const TierId tier : {f.kHbm, f.kDdr, f.kFlash}) CHECK(f.Used(tier) == 0);
  f.Run();
}

TEST_CASE("a link that cannot be measured now keeps what was known of it", "[path]") {
  CoreFixture f;  // far too small for scratch
  f.manager->SetMeasurement({.links = {Link(f.kHbm, f.kDdr, microseconds(3), 1e9)}});
  Calibrated again;
  f.manager->Calibrate(f.clock.Now() + std::chrono::seconds(5),
                       [&](auto links) { again.value = std::move(links); });
  f.Settle();
  REQUIRE(again.value.has_value());
  const std::vector<copy::LinkModel>& links = **again.value;
  REQUIRE(links.size() == 4);
  CHECK(links[0].measured());
  CHECK(links[0].latency == microseconds(3));
  CHECK(links[0].note == "of an earlier time; now not measured: no room for scratch in hbm0");
  CHECK_FALSE(links[1].measured());
}

TEST_CASE("Calibrate past its deadline, and while draining", "[path]") {
  CoreFixture f(Large());
  Calibrated late;
  f.manager->Calibrate(f.clock.Now() + milliseconds(10),
                       [&](auto links) { late.value = std::move(links); });
  f.executor.RunReady();
  f.executor.Advance(milliseconds(11));
  REQUIRE(late.value.has_value());
  CHECK(Is(late.value->status(), absl::StatusCode::kDeadlineExceeded, Reason::kDeadline));
  f.Settle();
  CHECK(f.Used(f.kHbm) == 0);
  f.manager->Drain(true);
  Calibrated drained;
  f.manager->Calibrate(f.clock.Now() + milliseconds(10),
                       [&](auto links) { drained.value = std::move(links); });
  REQUIRE(drained.value.has_value());
  CHECK(Is(drained.value->status(), absl::StatusCode::kUnavailable, Reason::kDraining));
}

}  // namespace
}  // namespace hmm::testing
