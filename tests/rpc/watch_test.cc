// SPDX-License-Identifier: Apache-2.0
//
// Inspection.Watch and Health.Watch as a client sees them, the slow one included.
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "base/status.h"
#include "hmm/events.h"
#include "rpc/fixture.h"
#include "support/catch.h"
#include "support/wait_until.h"

namespace hmm::testing {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr std::uint64_t kTensor = 4096;

// A watch of its own, on either socket.
class Watch {
 public:
  Watch(Stubs& stubs, const v1::WatchRequest& request, std::unique_ptr<grpc::ClientContext> context)
      : context_(std::move(context)), reader_(stubs.inspection->Watch(context_.get(), request)) {}
  // The admin's.
  Watch(Stubs& stubs, const v1::WatchRequest& request)
      : Watch(stubs, request, std::make_unique<grpc::ClientContext>()) {}
  ~Watch() { context_->TryCancel(); }

  bool Read(v1::WatchResponse& response) { return reader_->Read(&response); }
  // The first message: the watch has begun.
  v1::WatchResponse Begin() {
    v1::WatchResponse response;
    REQUIRE(reader_->Read(&response));
    CHECK(response.events().empty());
    return response;
  }
  // Reads until `wanted` says that it was there; keeps all that came.
  void Until(const std::function<bool(const v1::Event&)>& wanted) {
    v1::WatchResponse response;
    for (bool found = false; !found;) {
      REQUIRE(reader_->Read(&response));
      for (const v1::Event& event : response.events()) {
        events.push_back(event);
        found = found || wanted(event);
      }
    }
  }
  std::string Finish() { return CodeAndReason(reader_->Finish()); }
  void Cancel() { context_->TryCancel(); }

  std::vector<v1::Event> events;

 private:
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchResponse>> reader_;
};

bool GoneOf(const v1::Event& event, std::uint64_t handle) {
  return event.tensor().handle() == handle && event.tensor().to() == v1::TENSOR_STATE_UNSPECIFIED;
}

}  // namespace

TEST_CASE("a watcher sees sessions, tensors, moves and what operators do") {
  InProcessDaemon daemon;
  Stubs admin(daemon.dir(), "admin.sock");
  Watch watch(admin, {});
  CHECK(watch.Begin().epoch() != 0);
  RawClient client(daemon.dir());
  const std::uint64_t handle = client.Allocate(kTensor, "key");
  client.SealAndUnpin(handle);
  v1::SwapRequest swap;
  swap.add_handles(handle);
  swap.set_tier("ddr0");
  v1::SwapResponse swapped;
  REQUIRE(client.stubs().memory->Swap(client.Context().get(), swap, &swapped).ok());
  grpc::ClientContext context;
  v1::CompactRequest compact;
  compact.set_tier("hbm0");
  v1::CompactResponse compacted;
  REQUIRE(admin.admin->Compact(&context, compact, &compacted).ok());
  CHECK(client.Free(handle) == "OK");
  watch.Until([&](const v1::Event& event) { return GoneOf(event, handle); });

  std::map<int, int> of;
  std::uint64_t last = 0;
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  for (const v1::Event& event : watch.events) {
    ++of[event.what_case()];
    CHECK(event.sequence() > last);
    last = event.sequence();
    CHECK(std::abs(event.time_us() - now) < 60'000'000);
    if (event.has_session()) {
      CHECK(event.session().change() == v1::SessionEvent::CHANGE_ATTACHED);
      CHECK(event.session().uid() == getuid());
      CHECK(event.session().pid() == static_cast<std::uint32_t>(getpid()));
    }
    if (event.has_move()) {
      CHECK(event.move().key() == "key");
      CHECK(event.move().move().from() == "hbm0");
      CHECK(event.move().move().to() == "ddr0");
      CHECK(event.move().move().cause() == v1::MOVE_CAUSE_SWAP);
      CHECK(event.move().move().outcome() == v1::MOVE_OUTCOME_MOVED);
      CHECK(event.move().move().bytes() == kTensor);
    }
    if (event.has_admin()) {
      CHECK(event.admin().action() == "Compact");
      CHECK(event.admin().reason().empty());
    }
  }
  CHECK(of[v1::Event::kSession] == 1);
  CHECK(of[v1::Event::kTensor] == 6);
  CHECK(of[v1::Event::kMove] == 1);
  CHECK(of[v1::Event::kAdmin] == 1);
}

TEST_CASE("a watch shows what its filter lets through, and can go on where another ended") {
  InProcessDaemon daemon;
  Stubs admin(daemon.dir(), "admin.sock");
  v1::WatchRequest request;
  request.add_types(v1::EVENT_TYPE_SESSION);
  Watch sessions(admin, request);
  const std::uint64_t start = sessions.Begin().sequence();
  RawClient client(daemon.dir());
  client.Allocate(kTensor);
  RawClient second(daemon.dir());
  int attached = 0;
  sessions.Until([&](const v1::Event& event) {
    CHECK(event.has_session());
    return ++attached == 2;
  });
  CHECK(sessions.events.size() == 2);

  // All of it from there on, although it is over.
  request.clear_types();
  request.set_after_sequence(sessions.events[0].sequence());
  Watch again(admin, request);
  again.Until([](const v1::Event& event) { return event.has_session(); });
  CHECK(again.events.front().sequence() == sessions.events[0].sequence() + 1);
  CHECK(again.events.back().sequence() == sessions.events[1].sequence());
  CHECK(start <= sessions.events[0].sequence());

  request.set_after_sequence(1'000'000);
  CHECK(Watch(admin, request).Finish() == "OUT_OF_RANGE/EVENTS_GONE");
  // From the first on: every event of this start is kept yet.
  request.set_after_sequence(0);
  Watch all(admin, request);
  all.Until([&](const v1::Event& event) { return event.sequence() >= start + 2; });
  CHECK(all.events.front().sequence() == 1);
  request.clear_after_sequence();
  request.set_tier("tape0");
  CHECK(Watch(admin, request).Finish() == "NOT_FOUND/NOT_FOUND");
  request.clear_tier();
  request.set_tenant("nobody");
  CHECK(Watch(admin, request).Finish() == "NOT_FOUND/NOT_FOUND");
  request.clear_tenant();
  request.add_types(static_cast<v1::EventType>(77));
  CHECK(Watch(admin, request).Finish() == "INVALID_ARGUMENT/BAD_ENUM");
  request.clear_types();
  request.set_occupancy_ms(1);
  CHECK(Watch(admin, request).Finish() == "INVALID_ARGUMENT/BAD_ARGUMENT");
}

TEST_CASE("samples of occupancy come at the interval asked for") {
  InProcessDaemon daemon;
  RawClient client(daemon.dir());
  client.Allocate(kTensor);
  Stubs admin(daemon.dir(), "admin.sock");
  v1::WatchRequest request;
  request.add_types(v1::EVENT_TYPE_OCCUPANCY);
  request.set_occupancy_ms(20);
  request.set_tier("hbm0");
  Watch watch(admin, request);
  watch.Begin();
  int samples = 0;
  const auto began = steady_clock::now();
  watch.Until([&](const v1::Event& event) {
    CHECK(event.sequence() == 0);
    REQUIRE(event.occupancy().tiers_size() == 1);
    CHECK(event.occupancy().tiers(0).tier() == "hbm0");
    CHECK(event.occupancy().tiers(0).used_bytes() == kTensor);
    CHECK(event.occupancy().tiers(0).pinned_bytes() == kTensor);
    CHECK(event.occupancy().tiers(0).capacity_bytes() == 2 * kMiB);
    return ++samples == 5;
  });
  CHECK(steady_clock::now() - began >= std::chrono::milliseconds(90));
}

TEST_CASE("a tenant's watch needs a token and shows no operator") {
  InProcessDaemon daemon;
  Stubs tenant(daemon.dir(), "hmm.sock");
  CHECK(Watch(tenant, {}).Finish() == "UNAUTHENTICATED/MISSING_TOKEN");
  RawClient client(daemon.dir());
  v1::WatchRequest request;
  request.set_tenant("uid:4242");
  CHECK(Watch(client.stubs(), request, client.Context()).Finish() == "NOT_FOUND/NOT_FOUND");

  Watch watch(client.stubs(), {}, client.Context());
  watch.Begin();
  Stubs admin(daemon.dir(), "admin.sock");
  grpc::ClientContext context;
  v1::DrainRequest off;
  off.set_off(true);
  v1::DrainResponse drained;
  REQUIRE(admin.admin->Drain(&context, off, &drained).ok());
  const std::uint64_t handle = client.Allocate(kTensor);
  client.SealAndUnpin(handle);
  CHECK(client.Free(handle) == "OK");
  watch.Until([&](const v1::Event& event) { return GoneOf(event, handle); });
  for (const v1::Event& event : watch.events) CHECK(event.has_tensor());
}

TEST_CASE("a tenant's watch ends with its session") {
  InProcessDaemon daemon;
  RawClient lasting(daemon.dir());
  auto client = std::make_unique<RawClient>(daemon.dir());
  // The connection outlives the session.
  auto context = client->Context();
  Watch watch(lasting.stubs(), {}, std::move(context));
  watch.Begin();
  client->session().Close();
  v1::WatchResponse response;
  while (watch.Read(response)) {
  }
  CHECK(watch.Finish() == "UNAUTHENTICATED/UNKNOWN_SESSION");
}

TEST_CASE("a watcher that does not read is dropped; others and callers do not wait for it") {
  InProcessDaemon daemon([](daemon::Config& config) { config.limits.events_kept = 8192; });
  Stubs admin(daemon.dir(), "admin.sock");
  Stubs other(daemon.dir(), "admin.sock");
  Watch slow(admin, {});
  slow.Begin();
  v1::WatchRequest only_sessions;
  only_sessions.add_types(v1::EVENT_TYPE_SESSION);
  Watch quick(other, only_sessions);
  quick.Begin();

  // Far more than HTTP/2 and one message hold.
  RawClient client(daemon.dir());
  v1::AllocateRequest request;
  for (int i = 0; i < 256; ++i) request.add_tensors()->set_bytes(64);
  const std::string key(200, 'k');
  auto longest = steady_clock::duration::zero();
  for (int round = 0; round < 150; ++round) {
    client.Stamp(request.mutable_call());
    for (int i = 0; i < 256; ++i) {
      request.mutable_tensors(i)->set_key(key + std::to_string(i));
    }
    const auto before = steady_clock::now();
    v1::AllocateResponse response;
    REQUIRE(client.Allocate(request, response).ok());
    v1::ReleaseRequest release;  // undoes it: all are freed
    release.set_call_id(request.call().call_id());
    v1::ReleaseResponse released;
    REQUIRE(client.stubs().memory->Release(client.Context().get(), release, &released).ok());
    CHECK(released.undone() == 256);
    longest = std::max(longest, steady_clock::now() - before);
  }
  CHECK(longest < seconds(5));
  RawClient last(daemon.dir());
  int attached = 0;
  quick.Until([&](const v1::Event&) { return ++attached == 2; });

  // It reads again: what was under way, then why it was dropped.
  v1::WatchResponse response;
  std::uint64_t previous = 0;
  while (slow.Read(response)) {
    for (const v1::Event& event : response.events()) {
      CHECK(
          (previous == 0 || event.sequence() == previous + 1));  // nothing left out before the end
      previous = event.sequence();
    }
  }
  CHECK(previous > 0);
  CHECK(slow.Finish() == "RESOURCE_EXHAUSTED/SLOW_WATCHER");
}

TEST_CASE("watchers are bounded, leave room for who steers, and their places come free") {
  InProcessDaemon daemon;
  // A connection each, as those of hmmctl have.
  std::vector<std::unique_ptr<Stubs>> stubs;
  std::vector<std::unique_ptr<Watch>> watches;
  std::string refused;
  while (watches.size() < 64 && refused.empty()) {
    stubs.push_back(std::make_unique<Stubs>(daemon.dir(), "admin.sock"));
    watches.push_back(std::make_unique<Watch>(*stubs.back(), v1::WatchRequest()));
    v1::WatchResponse first;
    if (!watches.back()->Read(first)) refused = watches.back()->Finish();
  }
  CHECK(refused == "UNAVAILABLE/QUEUE_FULL");
  CHECK(watches.size() >= 32);
  CHECK(ReadBooks(daemon.dir()).used == 0);
  watches.resize(watches.size() - 2);  // the refused one, and another
  CHECK(WaitUntil([&] {
    Stubs admin(daemon.dir(), "admin.sock");
    Watch one(admin, v1::WatchRequest());
    v1::WatchResponse response;
    return one.Read(response);
  }));
}

TEST_CASE("watches end when the daemon does, and do not hold it up") {
  InProcessDaemon daemon;
  RawClient client(daemon.dir());
  Stubs admin(daemon.dir(), "admin.sock");
  Watch tenants(client.stubs(), {}, client.Context());
  Watch operators(admin, {});
  tenants.Begin();
  operators.Begin();
  grpc::ClientContext context;
  const auto health = admin.health->Watch(&context, {});
  grpc::health::v1::HealthCheckResponse state;
  REQUIRE(health->Read(&state));
  const auto before = steady_clock::now();
  daemon.daemon().Stop();
  CHECK(steady_clock::now() - before < seconds(3));
  v1::WatchResponse response;
  while (tenants.Read(response)) {
  }
  while (operators.Read(response)) {
  }
  while (health->Read(&state)) {
  }
  CHECK(tenants.Finish() == "UNAVAILABLE/DRAINING");
  CHECK(operators.Finish() == "UNAVAILABLE/DRAINING");
  CHECK(CodeAndReason(health->Finish()) == "UNAVAILABLE/DRAINING");
}

TEST_CASE("health is watched, per tier too") {
  using Response = grpc::health::v1::HealthCheckResponse;
  InProcessDaemon daemon;
  Stubs admin(daemon.dir(), "admin.sock");
  const auto first = [&](const std::string& service) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    const auto reader = admin.health->Watch(&context, request);
    Response response;
    REQUIRE(reader->Read(&response));
    context.TryCancel();
    return response.status();
  };
  CHECK(first("") == Response::SERVING);
  CHECK(first("hmm.tier.flash0") == Response::SERVING);
  CHECK(first("hmm.tier.tape0") == Response::SERVICE_UNKNOWN);

  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("hmm.v1.Memory");
  const auto reader = admin.health->Watch(&context, request);
  Response response;
  REQUIRE(reader->Read(&response));
  CHECK(response.status() == Response::SERVING);
  const auto drain = [&](bool off) {
    grpc::ClientContext one;
    v1::DrainRequest ask;
    ask.set_off(off);
    v1::DrainResponse drained;
    REQUIRE(admin.admin->Drain(&one, ask, &drained).ok());
  };
  drain(false);
  REQUIRE(reader->Read(&response));
  CHECK(response.status() == Response::NOT_SERVING);
  drain(true);
  REQUIRE(reader->Read(&response));
  CHECK(response.status() == Response::SERVING);
  context.TryCancel();
}

}  // namespace hmm::testing
