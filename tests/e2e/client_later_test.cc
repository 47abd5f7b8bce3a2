// SPDX-License-Identifier: Apache-2.0
//
// Magazines, SealLater and FreeLater against a real daemon.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "e2e/client_fixture.h"

namespace hmm::testing {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;

std::uint64_t Reserved(const std::string& dir) { return StatusOf(dir).tiers(0).reserved_bytes(); }

struct Fixture {
  DaemonProcess daemon{HMMD_BINARY};
  std::unique_ptr<Client> client = ConnectTo(daemon.dir());

  Held Allocate(std::uint64_t bytes) {
    absl::StatusOr<Held> held = client->Allocate({.bytes = bytes}, {.wait = true});
    INFO(held.status());
    REQUIRE(held.ok());
    return *std::move(held);
  }
  // After this the client's next allocations of the size need no call.
  void FillMagazine(std::uint64_t bytes) {
    for (int i = 0; i < 3; ++i) REQUIRE(client->Free(Allocate(bytes).tensor).ok());
    REQUIRE(Reserved(daemon.dir()) > 0);
  }
};

TEST_CASE("the third allocation alike brings a magazine, which the next ones empty") {
  Fixture f;
  std::vector<Held> held;
  for (int i = 0; i < 2; ++i) held.push_back(f.Allocate(64 * kKiB));
  CHECK(Reserved(f.daemon.dir()) == 0);
  held.push_back(f.Allocate(64 * kKiB));
  CHECK(Reserved(f.daemon.dir()) == 8 * 64 * kKiB);
  // The daemon stands still: these cannot be calls.
  f.daemon.Stop();
  for (int i = 0; i < 8; ++i) {
    absl::StatusOr<Held> one =
        f.client->Allocate({.bytes = 64 * kKiB}, {.timeout = milliseconds(200)});
    REQUIRE(one.ok());
    held.push_back(*std::move(one));
  }
  CHECK(f.client->Allocate({.bytes = 64 * kKiB}, {.timeout = milliseconds(200)}).status().code() ==
        StatusCode::kDeadlineExceeded);
  f.daemon.Continue();
  for (std::size_t i = 0; i < held.size(); ++i) {
    CHECK(held[i].pin.tier() == "hbm0");
    FillPattern(held[i].pin, i);
  }
  for (std::size_t i = 0; i < held.size(); ++i) {
    CHECK(HasPattern(held[i].pin, i));
    f.client->SealLater(held[i].tensor, std::move(held[i].pin), "k" + std::to_string(i));
  }
  CHECK(f.client->Flush().empty());
  const auto other = ConnectTo(f.daemon.dir());
  for (std::size_t i = 0; i < held.size(); ++i) {
    const std::array<std::string, 1> key{"k" + std::to_string(i)};
    const auto found = other->Lookup(key);
    REQUIRE(found.ok());
    REQUIRE(found->size() == 1);
    CHECK(HasPattern((*found)[0].pin, i));
  }
  // And one more where the call that gave up was carried out and undone.
  const std::uint64_t allocations = StatusOf(f.daemon.dir()).counters().allocations();
  CHECK(allocations >= held.size());
  CHECK(allocations <= held.size() + 1);
}

TEST_CASE("magazines and later calls keep to what the daemon takes in one call") {
  const std::string limit = GENERATE("1", "2", "7");
  INFO("batch_max = " << limit);
  const DaemonProcess daemon(HMMD_BINARY,
                             kSmallTiers + std::string("\n[limits]\nbatch_max = ") + limit + "\n");
  const auto client = ConnectTo(daemon.dir());
  std::vector<Tensor> tensors;
  for (int i = 0; i < 100; ++i) {
    absl::StatusOr<Held> held = client->Allocate({.bytes = 64 * kKiB}, {.wait = true});
    INFO(held.status());
    REQUIRE(held.ok());
    tensors.push_back(held->tensor);
    client->SealLater(held->tensor, std::move(held->pin), "k" + std::to_string(i));
  }
  for (const Client::LateError& error : client->Flush()) FAIL(error.status);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CHECK(client->Lookup(std::array<std::string, 1>{"k" + std::to_string(i)})->size() == 1);
  }
  for (const Tensor& tensor : tensors) client->FreeLater(tensor);
  for (const Client::LateError& error : client->Flush()) FAIL(error.status);
  CHECK(WaitUntil([&] { return StatusOf(daemon.dir()).tensors() == 0; }));
}

TEST_CASE("a magazine that is half empty is filled from behind") {
  Fixture f;
  bool filled = false;
  // It goes back after a second, which a busy machine may miss: then once more.
  for (int attempt = 0; attempt < 5 && !filled; ++attempt) {
    f.FillMagazine(64 * kKiB);
    std::vector<Held> held;
    for (int i = 0; i < 4; ++i) held.push_back(f.Allocate(64 * kKiB));
    filled = WaitUntil([&] { return Reserved(f.daemon.dir()) == 16 * 64 * kKiB; },
                       std::chrono::seconds(1));
  }
  CHECK(filled);
}

TEST_CASE("written, put down and not sealed, it survives that others need the room") {
  Fixture f;
  f.FillMagazine(64 * kKiB);
  Held held = f.Allocate(64 * kKiB);
  FillPattern(held.pin, 7);
  held.pin = Pin();
  const auto other = ConnectTo(f.daemon.dir());
  for (std::uint64_t i = 0; i < 200; ++i) Put(*other, 64 * kKiB, i);
  const absl::StatusOr<Pin> again = f.client->Acquire(held.tensor);
  INFO(again.status());
  REQUIRE(again.ok());
  CHECK(HasPattern(*again, 7));
}

TEST_CASE("the daemon takes a magazine back before it demotes, and the client goes on") {
  Fixture f;
  f.FillMagazine(256 * kKiB);
  auto taken_back = [&] { return StatusOf(f.daemon.dir()).counters().ahead_taken_back(); };
  const auto other = ConnectTo(f.daemon.dir());
  std::vector<Held> pinned;
  while (taken_back() == 0 && pinned.size() < 32) {
    auto one = other->Allocate({.bytes = 256 * kKiB, .key = std::to_string(pinned.size())});
    REQUIRE(one.ok());
    pinned.push_back(*std::move(one));
  }
  CHECK(taken_back() > 0);
  CHECK(StatusOf(f.daemon.dir()).counters().demotions() == 0);
  pinned.clear();
  for (std::uint64_t i = 0; i < 40; ++i) {
    const Tensor tensor = Put(*f.client, 256 * kKiB, i);
    const auto pin = f.client->Acquire(tensor);
    REQUIRE(pin.ok());
    CHECK(HasPattern(*pin, i));
  }
}

TEST_CASE("a taken tensor is an ordinary one in every call") {
  Fixture f;
  f.FillMagazine(4 * kKiB);
  auto take = [&](std::uint64_t seed) {
    Held held = f.Allocate(4 * kKiB);
    FillPattern(held.pin, seed);
    return std::move(held.tensor);
  };
  SECTION("Swap is not stopped by the library's own pin") {
    const Tensor tensor = take(1);
    const absl::Status swapped = f.client->Swap(tensor, {.tier = "flash0"});
    INFO(swapped);
    CHECK(swapped.ok());
    const auto pin = f.client->Acquire(tensor);
    REQUIRE(pin.ok());
    CHECK(HasPattern(*pin, 1));
  }
  SECTION("Describe shows no pin and nothing reserved") {
    const Tensor tensor = take(2);
    const auto info = f.client->Describe(tensor);
    REQUIRE(info.ok());
    CHECK(info->pins == 0);
    CHECK(info->state == "resident");
  }
  SECTION("Free") {
    const Tensor tensor = take(3);
    CHECK(f.client->Free(tensor).ok());
    CHECK_FALSE(tensor.TryPin().has_value());
    CHECK(ReasonOfStatus(f.client->Free(tensor)) == "NOT_FOUND");
  }
  SECTION("Seal, Acquire, Prefetch") {
    const Tensor tensor = take(4);
    CHECK(f.client->Prefetch(tensor).ok());
    CHECK(f.client->Acquire(tensor).ok());
    CHECK(f.client->Seal(tensor, "key").ok());
    CHECK(f.client->Describe(tensor)->pins == 0);
    CHECK(HasPattern(*tensor.TryPin(), 4));
  }
  SECTION("told by itself soon, if nothing else is called") {
    const Tensor tensor = take(5);
    CHECK(WaitUntil([&] { return ReadBooks(f.daemon.dir()).pins == 0; }));
  }
}

TEST_CASE("a magazine that is not used goes back") {
  Fixture f;
  f.FillMagazine(64 * kKiB);
  CHECK(WaitUntil([&] { return Reserved(f.daemon.dir()) == 0; }));
  CHECK(ReadBooks(f.daemon.dir()).tensors == 0);
  f.FillMagazine(64 * kKiB);  // and anew
}

TEST_CASE("magazines can be switched off, and bounded in bytes") {
  DaemonProcess daemon{HMMD_BINARY};
  auto off = Client::Connect({.dir = daemon.dir(), .magazine_tensors = 0});
  auto small = Client::Connect({.dir = daemon.dir(), .magazine_bytes = 100 * kKiB});
  REQUIRE(off.ok());
  REQUIRE(small.ok());
  for (int i = 0; i < 10; ++i) REQUIRE((*off)->Allocate({.bytes = 32 * kKiB}).ok());
  CHECK(Reserved(daemon.dir()) == 0);
  for (int i = 0; i < 3; ++i) REQUIRE((*small)->Allocate({.bytes = 32 * kKiB}).ok());
  CHECK(Reserved(daemon.dir()) == 3 * 32 * kKiB);
}

TEST_CASE("later: what follows a call sees what was queued before it") {
  Fixture f;
  for (std::uint64_t i = 0; i < 3; ++i) {
    Held held = f.Allocate(1000);
    FillPattern(held.pin, i);
    const std::array<std::string, 1> key{"k" + std::to_string(i)};
    f.client->SealLater(held.tensor, std::move(held.pin), key[0]);
    auto found = f.client->Lookup(key);
    REQUIRE(found.ok());
    REQUIRE(found->size() == 1);
    CHECK(HasPattern((*found)[0].pin, i));
    found->clear();
    f.client->FreeLater(held.tensor);
    CHECK(f.client->Lookup(key)->empty());
    // The key is free again: in the order of the calls.
    Held next = f.Allocate(1000);
    f.client->SealLater(next.tensor, std::move(next.pin), key[0]);
    f.client->FreeLater(next.tensor);
  }
  CHECK(f.client->Flush().empty());
}

TEST_CASE("later: without another call it is done within moments") {
  Fixture f;
  Held held = f.Allocate(1000);
  f.client->SealLater(held.tensor, std::move(held.pin), "k");
  const auto other = ConnectTo(f.daemon.dir());
  const std::array<std::string, 1> key{"k"};
  CHECK(WaitUntil([&] { return other->Lookup(key)->size() == 1; }));
}

TEST_CASE("later: errors are kept and named by handle and key") {
  Fixture f;
  Held first = f.Allocate(64);
  Held second = f.Allocate(64);
  const Tensor freed = f.Allocate(64).tensor;
  f.client->SealLater(first.tensor, std::move(first.pin), "same");
  f.client->SealLater(second.tensor, std::move(second.pin), "same");
  f.client->FreeLater(freed);
  f.client->FreeLater(freed);
  f.client->FreeLater(Tensor());
  const std::vector<Client::LateError> errors = f.client->Flush();
  REQUIRE(errors.size() == 3);
  CHECK(errors[0].handle == second.tensor.handle());
  CHECK(errors[0].key == "same");
  CHECK(errors[0].status.code() == StatusCode::kAlreadyExists);
  CHECK(errors[1].handle == freed.handle());
  CHECK(ReasonOfStatus(errors[1].status) == "NOT_FOUND");
  CHECK(errors[2].handle == 0);
  CHECK(f.client->Flush().empty());
  CHECK(ReadBooks(f.daemon.dir()).pins == 0);
}

TEST_CASE("later: a Client that goes sends what is queued") {
  Fixture f;
  Held held = f.Allocate(1000);
  FillPattern(held.pin, 1);
  f.client->SealLater(held.tensor, std::move(held.pin), "k");
  f.client.reset();
  const auto other = ConnectTo(f.daemon.dir());
  const std::array<std::string, 1> key{"k"};
  const auto found = other->Lookup(key);
  REQUIRE(found.ok());
  REQUIRE(found->size() == 1);
  CHECK(HasPattern((*found)[0].pin, 1));
}

TEST_CASE("the daemon is killed: what was taken is LOST, the next daemon fills anew") {
  Fixture f;
  f.FillMagazine(64 * kKiB);
  Held held = f.Allocate(64 * kKiB);
  Held sealing = f.Allocate(64 * kKiB);
  FillPattern(held.pin, 3);
  f.daemon.Kill();
  f.client->SealLater(sealing.tensor, std::move(sealing.pin), "k");
  const std::vector<Client::LateError> errors = f.client->Flush();
  REQUIRE(errors.size() == 1);
  CHECK(ReasonOfStatus(errors[0].status) == "LOST");
  f.daemon.Start();
  CHECK(HasPattern(held.pin, 3));  // readable while it is held
  for (std::uint64_t i = 0; i < 20; ++i) {
    Held next = f.Allocate(64 * kKiB);
    FillPattern(next.pin, i);
    f.client->SealLater(next.tensor, std::move(next.pin), "n" + std::to_string(i));
  }
  CHECK(f.client->Flush().empty());
  CHECK(held.tensor.lost());
  CHECK(Reserved(f.daemon.dir()) > 0);
}

TEST_CASE("a fork child queues nothing; its parent goes on") {
  Fixture f;
  f.FillMagazine(4 * kKiB);
  Held held = f.Allocate(4 * kKiB);
  const pid_t child = ::fork();
  if (child == 0) {
    f.client->SealLater(held.tensor, std::move(held.pin), "child");
    f.client->FreeLater(held.tensor);
    const auto errors = f.client->Flush();
    const bool good = errors.size() == 1 && ReasonOfStatus(errors[0].status) == "FORKED" &&
                      ReasonOfStatus(f.client->Allocate({.bytes = 4 * kKiB}).status()) == "FORKED";
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  FillPattern(held.pin, 1);
  f.client->SealLater(held.tensor, std::move(held.pin), "parent");
  CHECK(f.client->Flush().empty());
  const std::array<std::string, 1> key{"parent"};
  CHECK(f.client->Lookup(key)->size() == 1);
}

TEST_CASE("many threads of several clients, more than HBM holds: every block keeps its bytes") {
  DaemonProcess daemon{HMMD_BINARY};
  constexpr int kThreads = 4;
  constexpr std::uint64_t kEach = 150;  // of 32 KiB: 18.75 MiB beside an HBM of 8
  std::array<std::unique_ptr<Client>, 2> clients{ConnectTo(daemon.dir()), ConnectTo(daemon.dir())};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Client& client = *clients[static_cast<std::size_t>(t) % 2];
      for (std::uint64_t i = 0; i < kEach; ++i) {
        auto held = client.Allocate({.bytes = 32 * kKiB}, {.wait = true});
        if (!held.ok()) {
          ++wrong;
          continue;
        }
        const std::uint64_t seed = static_cast<std::uint64_t>(t) * 1000 + i;
        FillPattern(held->pin, seed);
        if (i % 5 == 4) {
          client.FreeLater(held->tensor);
          continue;
        }
        const std::array<std::string, 1> key{std::to_string(seed)};
        client.SealLater(held->tensor, std::move(held->pin), key[0]);
        if (i % 10 != 0) continue;
        auto found = client.Lookup(key);
        if (!found.ok() || found->size() != 1 || !HasPattern((*found)[0].pin, seed)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& client : clients) CHECK(client->Flush().empty());
  CHECK(wrong.load() == 0);
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    for (std::uint64_t i = 0; i < kEach; ++i) {
      if (i % 5 == 4) continue;
      const std::array<std::string, 1> key{std::to_string(t * 1000 + i)};
      const auto found = clients[0]->Lookup(key);
      REQUIRE(found.ok());
      REQUIRE(found->size() == 1);
      CHECK(HasPattern((*found)[0].pin, t * 1000 + i));
    }
  }
  for (auto& client : clients) client.reset();
  CHECK(WaitUntil([&] { return ReadBooks(daemon.dir()).sessions == 0; }));
  const Books books = ReadBooks(daemon.dir());
  CHECK(books.tensors == kThreads * kEach * 4 / 5);
  CHECK(books.pins == 0);
  CHECK(Reserved(daemon.dir()) == 0);
}

}  // namespace
}  // namespace hmm::testing
