// SPDX-License-Identifier: Apache-2.0
//
// Cases about life and death: of clients that wait, of daemons between two calls, of replies on
// their way, of processes that fork. Numbers as in docs/guarantees.md.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <list>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "e2e/case_peer.h"
#include "e2e/client_fixture.h"
#include "hmm/region.h"

namespace hmm::testing {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;

TEST_CASE("case 5: killed while it waited for a tensor that then comes", "[case 5]") {
  DaemonProcess daemon(HMMD_BINARY);
  const auto client = ConnectTo(daemon.dir());
  const Tensor wanted = Put(*client, 64 * kKiB, 4, "wanted");
  REQUIRE(client->Swap(wanted, {.tier = "flash0"}).ok());
  for (int round = 0; round < 10; ++round) {
    // Pinned where the waiter does not want it: it waits.
    auto held = client->Acquire(wanted, {.tier = "ddr0"});
    INFO(held.status());
    REQUIRE(held.ok());
    const std::string ready = daemon.dir() + "/waits" + std::to_string(round);
    ChildProcess waiter({PEER_BINARY, "await", daemon.dir(), ready}, daemon.dir() + "/waiter-log");
    REQUIRE(WaitUntil([&] { return std::filesystem::exists(ready) || !waiter.Running(); }));
    std::this_thread::sleep_for(milliseconds(10));
    REQUIRE(waiter.Running());
    waiter.Signal(SIGKILL);
    if (round % 2 == 0) waiter.Wait();  // else the answer and the death race
    *held = Pin();
    REQUIRE(client->Acquire(wanted, {.tier = "hbm0"}).ok());
    waiter.Wait();
    // Its pin, if the answer was first, goes with its session, which the daemon has yet to see end.
    REQUIRE(WaitUntil([&] { return ReadBooks(daemon.dir()).sessions == 1; }));
    REQUIRE(client->Swap(wanted, {.tier = "flash0"}).ok());
  }
  CHECK(WaitUntil([&] { return ReadBooks(daemon.dir()).sessions == 1; }));
  CHECK(ReadBooks(daemon.dir()).pins == 0);
}

TEST_CASE("case 10: a restart between two calls is said, and survived", "[case 10]") {
  DaemonProcess daemon(HMMD_BINARY);
  const auto client = ConnectTo(daemon.dir());
  for (int round = 0; round < 5; ++round) {
    const std::uint64_t epoch = client->epoch();
    const Tensor before = Put(*client, 64 * kKiB, 1, "before");
    if (round % 2 == 0) {
      daemon.Kill();
    } else {
      CHECK(daemon.Terminate() == 0);
    }
    daemon.Start();  // nothing is called meanwhile
    const absl::Status lost = client->Acquire(before).status();
    INFO(lost);
    CHECK(lost.code() == StatusCode::kAborted);
    CHECK(ReasonOfStatus(lost) == "LOST");
    CHECK(client->Lookup(std::vector<std::string>{"before"})->empty());
    CHECK(client->epoch() != epoch);
  }
}

TEST_CASE("case 19: SIGTERM with every kind of call under way and one that is stuck", "[case 19]") {
  DaemonProcess daemon(HMMD_BINARY);
  const auto client = ConnectTo(daemon.dir());
  std::vector<Held> full;  // nothing can move: whoever waits for room is stuck
  for (auto held = client->Allocate({.bytes = 512 * kKiB}); held.ok();
       held = client->Allocate({.bytes = 512 * kKiB})) {
    full.push_back(*std::move(held));
  }
  const Tensor flash = [&] {
    auto held = client->Allocate({.bytes = 64 * kKiB, .key = "low"}, {.tier = "ddr0"});
    REQUIRE(held.ok());
    REQUIRE(client->Seal(held->tensor, std::move(held->pin)).ok());
    return held->tensor;
  }();
  std::atomic<bool> over{false};
  std::list<std::thread> callers;  // of a vector g++ 12 warns at -O3, wrongly
  const auto loop = [&](auto call) {
    callers.emplace_back([&over, call] {
      while (!over) (void)call();
    });
  };
  const PlaceOptions soon{.timeout = milliseconds(50)};
  const std::vector<std::string> keys{"low", "none"};
  loop([&] {
    return client->Allocate({.bytes = kMiB}, {.wait = true, .timeout = milliseconds(0)});
  });
  loop([&] {
    auto held = client->Allocate({.bytes = 64}, soon);
    if (!held.ok()) return held.status();
    if (absl::Status sealed = client->Seal(held->tensor, std::move(held->pin)); !sealed.ok()) {
      return sealed;
    }
    return client->Free(held->tensor);
  });
  loop([&] { return client->Acquire(flash, {.tier = "hbm0", .timeout = milliseconds(60'000)}); });
  loop([&] { return client->Lookup(keys, soon); });
  loop([&] { return client->Prefetch(flash, soon); });
  loop([&] { return client->Swap(flash, {.tier = "flash0", .timeout = milliseconds(50)}); });
  loop([&] { return client->Describe(flash); });
  Regions regions(*client);
  loop([&] { return regions.Lease(8 * kMiB, {.wait = true, .timeout = milliseconds(0)}); });
  const auto region = regions.Lease(64 * kKiB, {.tier = "ddr0"});
  REQUIRE(region.ok());
  const LoadItem load{.key = "low", .fragments = {{.region = &*region, .bytes = 64 * kKiB}}};
  loop([&] {
    auto job = regions.Load({&load, 1});
    return job.ok() ? regions.Wait(*job).status() : job.status();
  });
  loop([&] { return regions.Drain(*region, {.timeout = milliseconds(50)}); });
  loop([&] { return Evict(daemon.dir(), "hbm0"); });
  loop([&] {
    const auto stub =
        v1::Inspection::NewStub(client_internal::UnixChannel(daemon.dir() + "/admin.sock"));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const auto watch = stub->Watch(&context, {});
    v1::WatchResponse event;
    while (!over && watch->Read(&event)) {
    }
    context.TryCancel();
    return watch->Finish();
  });
  std::this_thread::sleep_for(milliseconds(100));
  const auto start = std::chrono::steady_clock::now();
  CHECK(daemon.Terminate() == 0);
  // TimeoutStopSec of deploy/systemd is far beyond; a stuck daemon would be killed there.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  over = true;
  daemon.Start();  // so that those between two attempts end soon
  for (std::thread& caller : callers) caller.join();
}

TEST_CASE("clients that are only connected do not hold up a stop") {
  DaemonProcess daemon(HMMD_BINARY);
  const auto client = ConnectTo(daemon.dir());
  const Tensor tensor = Put(*client, 64 * kKiB, 1);
  const Pin pin = *client->Acquire(tensor);
  const auto start = std::chrono::steady_clock::now();
  CHECK(daemon.Terminate() == 0);
  // Far below [daemon] stop_timeout, which is for calls under way.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(3));
  CHECK(HasPattern(pin, 1));
}

TEST_CASE("case 23: killed and started again at once, in a loop", "[case 23]") {
  DaemonProcess daemon(HMMD_BINARY);
  for (int round = 0; round < 60; ++round) {
    const std::string ready = daemon.dir() + "/ready" + std::to_string(round);
    ChildProcess holder({HOLDER_BINARY, daemon.dir(), ready}, daemon.dir() + "/holder-log");
    // Every third gets as far as holding something.
    if (round % 3 == 0) {
      WaitUntil([&] { return std::filesystem::exists(ready) || !holder.Running(); },
                milliseconds(500));
    } else {
      ::usleep(static_cast<useconds_t>(1000 * (round % 20)));
    }
    holder.Signal(SIGKILL);
    holder.Wait();
  }
  CHECK(WaitUntil([&] {
    const Books now = ReadBooks(daemon.dir());
    return now.sessions == 0 && now.pins == 0 && now.tensors == 0;
  }));
  const std::string log = daemon.Log();
  INFO(log);
  CHECK(log.find("[error]") == std::string::npos);
  CHECK(log.find("[critical]") == std::string::npos);
}

TEST_CASE("case 34: replies that come too late leave no pin", "[case 34]") {
  DaemonProcess daemon(HMMD_BINARY);
  const auto client = ConnectTo(daemon.dir());
  std::vector<Tensor> tensors;
  std::vector<std::string> keys;
  for (std::uint64_t i = 0; i < 8; ++i) {
    keys.push_back("late:" + std::to_string(i));
    tensors.push_back(Put(*client, 64 * kKiB, i, keys.back()));
  }
  const Books before = ReadBooks(daemon.dir());
  std::atomic<int> late{0};
  std::vector<std::thread> callers;
  for (unsigned t = 0; t < 3; ++t) {
    callers.emplace_back([&, t] {
      std::mt19937_64 rng(t + 1);
      for (int i = 0; i < 1500; ++i) {
        // From hopeless to comfortable: most answers and deadlines meet.
        const PlaceOptions soon{.timeout = milliseconds(1 + rng() % 2)};
        absl::Status status;
        switch (i % 3) {
          case 0:
            status = client->AcquireBatch(tensors, soon).status();
            break;
          case 1:
            status = client->Lookup(keys, soon).status();
            break;
          default: {
            auto held = client->Allocate({.bytes = 32 * kKiB}, soon);
            status = held.status();
            if (held.ok()) client->Free(held->tensor).IgnoreError();
          }
        }
        late += absl::IsDeadlineExceeded(status) ? 1 : 0;
      }
    });
  }
  // Now and then the daemon stands still for longer than they wait.
  std::atomic<int> calling{3};
  std::thread watcher([&] {
    for (std::thread& caller : callers) {
      caller.join();
      --calling;
    }
  });
  while (calling > 0) {
    daemon.Stop();
    ::poll(nullptr, 0, 4);
    daemon.Continue();
    ::poll(nullptr, 0, 15);
  }
  watcher.join();
  std::printf("late replies: %d of 4500\n", late.load());
  CHECK(late > 0);
  CHECK(WaitUntil([&] {
    const Books now = ReadBooks(daemon.dir());
    return now.pins == before.pins && now.tensors == before.tensors;
  }));
  for (std::uint64_t i = 0; i < 8; ++i) CHECK(HasPattern(*client->Acquire(tensors[i]), i));
}

TEST_CASE("case 35: a child that outlives its parent keeps no session alive", "[case 35]") {
  DaemonProcess daemon(HMMD_BINARY);
  for (int round = 0; round < 3; ++round) {
    const std::string ready = daemon.dir() + "/left" + std::to_string(round);
    ChildProcess parent({PEER_BINARY, "leave", daemon.dir(), ready}, daemon.dir() + "/leaver-log");
    REQUIRE(parent.Wait() == kGot);
    REQUIRE(WaitUntil([&] { return std::filesystem::exists(ready); }));
    pid_t child = 0;
    std::ifstream(ready) >> child;
    REQUIRE(child > 0);
    CHECK(WaitUntil([&] { return ReadBooks(daemon.dir()).sessions == 0; }, milliseconds(1500)));
    CHECK(::kill(child, 0) == 0);  // it lives on, with the socket and the mappings
    ::kill(child, SIGKILL);
  }
}

}  // namespace
}  // namespace hmm::testing
