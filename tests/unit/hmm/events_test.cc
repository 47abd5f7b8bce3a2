// SPDX-License-Identifier: Apache-2.0
//
// What happens is told once, in order, with its cause; nobody is waited for.
#include "hmm/events.h"

#include <algorithm>

#include "base/utf8.h"
#include "unit/hmm/core_fixture.h"

namespace hmm::testing {
namespace {

using core::EventType;
using core::MoveCause;
using core::MoveOutcome;

// Everything after `sequence`, copied.
std::vector<core::Event> After(CoreFixture& f, std::uint64_t sequence) {
  const core::EventBus& bus = f.manager->events();
  REQUIRE(sequence + 1 >= bus.oldest());
  std::vector<core::Event> events;
  for (std::uint64_t n = sequence + 1; n <= bus.last(); ++n) {
    events.push_back(bus.at(n));
    CHECK(events.back().sequence == n);
  }
  return events;
}

std::vector<core::Event> Of(const std::vector<core::Event>& events, EventType type) {
  std::vector<core::Event> some;
  std::copy_if(events.begin(), events.end(), std::back_inserter(some),
               [&](const core::Event& event) { return event.type == type; });
  return some;
}

std::uint64_t Now(CoreFixture& f) { return f.manager->events().last(); }

TEST_CASE("a ring keeps the last events and says which", "[events]") {
  ManualClock clock;
  ManualExecutor executor(clock);
  core::EventBus bus(4, executor, clock);
  CHECK(bus.last() == 0);
  CHECK(bus.oldest() == 1);
  for (int i = 1; i <= 10; ++i) {
    core::Event& event = bus.Emit(EventType::kAdmin);
    CHECK(event.key.empty());  // nothing of who had the slot before
    CHECK(event.bytes == 0);
    event.key = "event " + std::to_string(i);
    event.bytes = static_cast<Bytes>(i);
    CHECK(bus.last() == static_cast<std::uint64_t>(i));
    CHECK(bus.oldest() == static_cast<std::uint64_t>(std::max(1, i - 3)));
    for (std::uint64_t n = bus.oldest(); n <= bus.last(); ++n) {
      CHECK(bus.at(n).key == "event " + std::to_string(n));
    }
  }
}

TEST_CASE("subscribers run once for all that came, later, and never after they left", "[events]") {
  ManualClock clock;
  ManualExecutor executor(clock);
  core::EventBus bus(8, executor, clock);
  int woken = 0;
  const auto subscription = bus.Subscribe([&] { ++woken; });
  for (int i = 0; i < 5; ++i) bus.Emit(EventType::kAdmin);
  executor.RunReady(100);
  CHECK(woken == 0);
  executor.Advance(milliseconds(5), 100);
  CHECK(woken == 1);
  bus.Emit(EventType::kAdmin);
  bus.Unsubscribe(subscription);
  executor.Advance(milliseconds(5), 100);
  CHECK(woken == 1);
}

TEST_CASE("one that leaves another while they are woken keeps it from being woken", "[events]") {
  ManualClock clock;
  ManualExecutor executor(clock);
  core::EventBus bus(8, executor, clock);
  core::EventBus::Subscription second = 0;
  int woken = 0;
  bus.Subscribe([&] { bus.Unsubscribe(second); });
  second = bus.Subscribe([&] { ++woken; });
  bus.Emit(EventType::kAdmin);
  executor.Advance(milliseconds(5), 100);
  CHECK(woken == 0);
}

TEST_CASE("a tensor's life is told state by state", "[events]") {
  CoreFixture f;
  CoreClient client = f.Open("a");
  const std::uint64_t before = Now(f);
  const Handle handle = f.MakeSealed(client, kKiB, "hbm0", "key");
  REQUIRE(f.Free(client, handle).ok());
  const auto events = Of(After(f, before), EventType::kTensor);
  std::vector<std::pair<TensorState, TensorState>> steps;
  for (const core::Event& event : events) {
    steps.emplace_back(event.from, event.to);
    CHECK(event.handle == handle);
    CHECK(event.key == (event.from == TensorState::kGone ? "" : "key"));  // given at Seal
    CHECK(event.bytes == kKiB);
    CHECK(f.manager->tenant_name(event.tenant) == "a");
    CHECK(event.cause == MoveCause::kNone);
  }
  using S = TensorState;
  CHECK(steps == std::vector<std::pair<S, S>>{{S::kGone, S::kCreating},
                                              {S::kCreating, S::kResident},
                                              {S::kResident, S::kDoomed},
                                              {S::kDoomed, S::kGone}});
}

TEST_CASE("each move is told with why it happened", "[events]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB, "hbm0", "key");
  const auto moves_of = [&](const std::function<void()>& act) {
    const std::uint64_t before = Now(f);
    act();
    f.Settle();
    return Of(After(f, before), EventType::kMove);
  };
  auto moves = moves_of([&] { f.Swap(client, {handle}, "ddr0"); });
  REQUIRE(moves.size() == 1);
  CHECK(moves[0].handle == handle);
  CHECK(moves[0].key == "key");
  CHECK(moves[0].move.from == f.kHbm);
  CHECK(moves[0].move.to == f.kDdr);
  CHECK(moves[0].move.outcome == MoveOutcome::kMoved);
  CHECK(moves[0].move.decision.cause == MoveCause::kSwap);
  CHECK(moves[0].move.decision.session == client.session);
  CHECK(moves[0].move.decision.used == kKiB);
  CHECK(moves[0].move.decision.capacity == 8 * kKiB);

  moves = moves_of([&] { f.Acquire(client, handle, "hbm0"); });
  REQUIRE(moves.size() == 1);
  CHECK(moves[0].move.decision.cause == MoveCause::kDemand);
  client.Unpin(handle);

  // Back to the copy it left below: no bytes move.
  moves = moves_of([&] { f.Evict("hbm0", 0); });
  REQUIRE(moves.size() == 1);
  CHECK(moves[0].move.outcome == MoveOutcome::kClean);
  CHECK(moves[0].move.decision.cause == MoveCause::kAdminEvict);

  moves = moves_of([&] { REQUIRE(f.Prefetch(client, handle).ok()); });
  REQUIRE(moves.size() == 1);
  CHECK(moves[0].move.decision.cause == MoveCause::kPrefetch);
}

TEST_CASE("what is moved for another's room, by a watermark or taken back says so", "[events]") {
  CoreOptions options;
  options.high = 0.8;
  options.low = 0.5;
  CoreFixture f(options);
  CoreClient client = f.Open();
  const std::uint64_t before = Now(f);
  std::vector<Handle> made;
  for (int i = 0; i < 7; ++i) made.push_back(f.MakeSealed(client, kKiB));
  f.Run();
  const auto marks = Of(After(f, before), EventType::kWatermark);
  REQUIRE(marks.size() == 1);
  CHECK(marks[0].mark == core::MarkCrossed::kAboveHigh);
  CHECK(marks[0].tier == f.kHbm);
  CHECK(marks[0].used > marks[0].mark_bytes);
  // The coldest is on its way out; who wants it takes it back.
  REQUIRE(client.State(made[0]).state == TensorState::kMoving);
  f.Acquire(client, made[0]);
  auto moves = Of(After(f, before), EventType::kMove);
  REQUIRE(!moves.empty());
  CHECK(moves.back().move.outcome == MoveOutcome::kTakenBack);
  CHECK(moves.back().move.decision.cause == MoveCause::kWatermark);
  f.Settle();
  moves = Of(After(f, before), EventType::kMove);
  CHECK(std::any_of(moves.begin(), moves.end(), [](const core::Event& event) {
    return event.move.outcome == MoveOutcome::kMoved &&
           event.move.decision.cause == MoveCause::kWatermark;
  }));
  CHECK(Of(After(f, before), EventType::kWatermark).back().mark == core::MarkCrossed::kBelowLow);

  const std::uint64_t full = Now(f);
  const auto big = f.AllocateWaiting(client, 6 * kKiB);
  f.Settle();
  big->get();
  moves = Of(After(f, full), EventType::kMove);
  REQUIRE(!moves.empty());
  CHECK(moves[0].move.decision.cause == MoveCause::kRoom);
  CHECK(moves[0].move.decision.session == client.session);
}

TEST_CASE("a copy that fails is told with its reason, and the tier's health with it", "[events]") {
  CoreFixture f;
  CoreClient client = f.Open();
  const Handle handle = f.MakeSealed(client, kKiB, "ddr0");
  const std::uint64_t before = Now(f);
  f.Swap(client, {handle}, "flash0", milliseconds(1000));
  for (int i = 0; i < 3; ++i) f.FailCopy(0);
  f.Pass(milliseconds(5));
  const auto moves = Of(After(f, before), EventType::kMove);
  REQUIRE(moves.size() == 3);
  CHECK(moves[0].move.outcome == MoveOutcome::kFailed);
  CHECK(moves[0].move.error == Reason::kIo);
  const auto health = Of(After(f, before), EventType::kTierHealth);
  REQUIRE(health.size() == 1);
  CHECK(health[0].tier == f.kFlash);
  CHECK(health[0].before == tier::TierState::kOnline);
  CHECK(health[0].after == tier::TierState::kOffline);
  const auto tiers = f.manager->GetHealth("flash0");
  REQUIRE(tiers.ok());
  CHECK((*tiers)[0].state == tier::TierState::kOffline);
  CHECK((*tiers)[0].reason == Reason::kIo);
  CHECK((*tiers)[0].write_errors == 3);
  CHECK((*tiers)[0].read_errors == 0);
  CHECK((*tiers)[0].last_probe.has_value());
  CHECK(!(*tiers)[0].last_probe_ok);
  f.clock.Advance(std::chrono::seconds(2));
  CHECK((*f.manager->GetHealth("flash0"))[0].since >= std::chrono::seconds(2));
  CHECK(f.manager->GetHealth("")->size() == 3);
  CHECK((*f.manager->GetHealth("hbm0"))[0].state == tier::TierState::kOnline);
  CHECK(Is(f.manager->GetHealth("tape0").status(), absl::StatusCode::kNotFound, Reason::kNotFound));
}

TEST_CASE("sessions come and go, operators act, and both are told", "[events]") {
  CoreFixture f;
  const std::uint64_t before = Now(f);
  CoreClient client = f.Open("a");
  const Handle handle = f.Make(client, kKiB);
  REQUIRE(client.State(handle).state == TensorState::kCreating);
  f.manager->CloseSession(client.session);
  f.manager->ReapSession(client.session);
  f.Run();
  const auto sessions = Of(After(f, before), EventType::kSession);
  REQUIRE(sessions.size() == 3);
  CHECK(sessions[0].change == core::SessionChange::kAttached);
  CHECK(sessions[1].change == core::SessionChange::kClosing);
  CHECK(sessions[1].pins == 1);
  CHECK(sessions[2].change == core::SessionChange::kReaped);
  CHECK(sessions[2].session == client.session);

  REQUIRE(f.manager->SetWatermarks("hbm0", 0.9, 0.5, std::nullopt).ok());
  REQUIRE(!f.manager->SetWatermarks("hbm0", 0.5, 0.9, std::nullopt).ok());
  (void)f.manager->Drain(false);
  const auto admin = Of(After(f, before), EventType::kAdmin);
  REQUIRE(admin.size() == 3);
  CHECK(admin[0].key == "SetWatermarks");
  CHECK(admin[0].text.starts_with("hbm0"));
  CHECK(admin[0].why.empty());
  CHECK(admin[1].why == "BAD_ARGUMENT");
  CHECK(admin[2].key == "Drain");
}

TEST_CASE("what an operator chose by is told with what he did", "[events]") {
  CoreFixture f;
  CoreClient client = f.Open("a");
  f.MakeSealed(client, kKiB, "hbm0", "s30/x");
  const std::uint64_t before = Now(f);
  core::TensorSelector selector;
  selector.tenant = "a";
  selector.kind = TensorKind::kKvCache;
  selector.key_prefix = "s30";
  REQUIRE(f.manager->PrefetchMany(selector, "ddr0").ok());
  selector.kind.reset();
  // Longer than what is shown, of characters of two bytes: cut between them.
  selector.key_prefix = "x";
  for (int i = 0; i < 100; ++i) selector.key_prefix += "\u00e9";
  REQUIRE(f.manager->PrefetchMany(selector, "ddr0").ok());
  selector.key_prefix = "s30";
  f.manager->SwapMany(selector, "ddr0", f.clock.Now() + milliseconds(100),
                      [](const absl::StatusOr<core::SwapManyResult>&) {});
  f.Settle();
  const auto admin = Of(After(f, before), EventType::kAdmin);
  REQUIRE(admin.size() == 3);
  CHECK(admin[0].text == "a, kind kv_cache, key prefix 's30', to ddr0");
  CHECK(IsUtf8(admin[1].text));
  CHECK(admin[1].text.ends_with("...', to ddr0"));
  CHECK(admin[2].text == "a, key prefix 's30', to ddr0");
}

TEST_CASE("an expelled session is told with why", "[events]") {
  CoreFixture f;
  CoreClient client = f.Open("a");
  const std::uint64_t before = Now(f);
  f.manager->OnExpel([&](SessionId id, std::string_view) { f.manager->CloseSession(id); });
  f.tier(f.kHbm).ReportExcess(0, kMiB);
  f.Pass(milliseconds(1100));
  const auto sessions = Of(After(f, before), EventType::kSession);
  REQUIRE(!sessions.empty());
  CHECK(sessions[0].change == core::SessionChange::kExpelled);
  CHECK(sessions[0].why.find("hbm0") != std::string::npos);
}

}  // namespace
}  // namespace hmm::testing
