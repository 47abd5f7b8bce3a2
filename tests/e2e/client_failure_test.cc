// SPDX-License-Identifier: Apache-2.0
//
// The client library when processes die, stop or fork, against a real daemon.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "e2e/client_fixture.h"

namespace hmm::testing {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;

TEST_CASE("no daemon: the error says where it looked and how to start one") {
  const TempDir empty;
  const absl::Status status =
      Client::Connect({.dir = empty.path(), .connect_timeout = milliseconds(20)}).status();
  CHECK(status.code() == StatusCode::kUnavailable);
  CHECK(ReasonOfStatus(status) == "NO_DAEMON");
  const std::string message(status.message());
  CHECK(message.find(empty.path() + "/session.sock") != std::string::npos);
  CHECK(message.find("hmmd --dir " + empty.path()) != std::string::npos);
}

TEST_CASE("a daemon that turns a connection away runs: said so, and when to try again") {
  const DaemonProcess daemon(HMMD_BINARY,
                             std::string(kSmallTiers) + "[limits]\nconnections_max = 4\n");
  std::vector<std::unique_ptr<Client>> clients;
  absl::Status status;
  while (status.ok() && clients.size() < 8) {
    clients.push_back(ConnectTo(daemon.dir()));
    status = clients.back()->Allocate({.bytes = 64}, {.timeout = milliseconds(3000)}).status();
  }
  INFO(status);
  CHECK(status.code() == StatusCode::kUnavailable);
  CHECK(ReasonOfStatus(status) == "REFUSED");
  CHECK(RetryAfterOf(status).has_value());
  CHECK(status.message().find(daemon.dir() + " runs") != std::string::npos);
  // It lasts no longer than the others do.
  clients.erase(clients.begin(), clients.end() - 1);
  CHECK(WaitUntil([&] { return clients.back()->Allocate({.bytes = 64}).ok(); }));
}

TEST_CASE("Connect waits for a daemon that starts meanwhile") {
  DaemonProcess daemon(HMMD_BINARY);
  daemon.Kill();
  std::unique_ptr<Client> client;
  std::thread connecting([&] {
    auto made = Client::Connect({.dir = daemon.dir(), .connect_timeout = milliseconds(60'000)});
    if (made.ok()) client = *std::move(made);
  });
  daemon.Start();
  connecting.join();
  REQUIRE(client != nullptr);
  CHECK(client->Allocate({.bytes = 64}).ok());
}

TEST_CASE("the daemon is killed under readers: no crash, then LOST, then the next daemon",
          "[case 11]") {
  DaemonProcess daemon(HMMD_BINARY);
  const auto client = ConnectTo(daemon.dir());
  const std::uint64_t epoch = client->epoch();
  std::vector<Tensor> tensors;
  for (std::uint64_t i = 0; i < 8; ++i) tensors.push_back(Put(*client, 64 * kKiB, i));
  Pin held = *client->Acquire(tensors[7]);

  // Readers that pin and read all the time, until the client says that the daemon is gone.
  std::atomic<int> wrong{0};
  std::atomic<int> reading{0};
  std::vector<std::thread> readers;
  for (unsigned t = 0; t < 4; ++t) {
    readers.emplace_back([&, t] {
      while (!tensors[t].lost()) {
        const std::optional<Pin> pin = tensors[t].TryPin();
        if (!pin.has_value()) continue;
        if (!HasPattern(*pin, t)) ++wrong;
        ++reading;
      }
    });
  }
  CHECK(WaitUntil([&] { return reading > 100; }));
  daemon.Kill();
  for (std::thread& reader : readers) reader.join();
  CHECK(wrong == 0);

  CHECK(HasPattern(held, 7));
  CHECK_FALSE(tensors[0].TryPin().has_value());
  const absl::Status lost = client->Acquire(tensors[0]).status();
  CHECK(lost.code() == StatusCode::kAborted);
  CHECK(ReasonOfStatus(lost) == "LOST");
  CHECK(ReasonOfStatus(client->Allocate({.bytes = 64}, {.timeout = milliseconds(50)}).status()) ==
        "NO_DAEMON");

  daemon.Start();
  const Tensor fresh = Put(*client, 64 * kKiB, 99, "fresh");
  CHECK(client->epoch() != epoch);
  CHECK(fresh.TryPin().has_value());
  for (const Tensor& tensor : tensors) CHECK(tensor.lost());
  CHECK(ReasonOfStatus(client->Free(tensors[1])) == "LOST");
  CHECK(ReasonOfStatus(client->Seal(tensors[2])) == "LOST");
  CHECK(ReasonOfStatus(client->Describe(tensors[3]).status()) == "LOST");
  const auto mixed = client->AcquireBatch(std::array<Tensor, 2>{tensors[4], fresh});
  REQUIRE(mixed.ok());
  CHECK(ReasonOfStatus((*mixed)[0].status()) == "LOST");
  CHECK((*mixed)[1].ok());
  CHECK(ReasonOfStatus(client->AcquireBatch(std::array<Tensor, 2>{tensors[4], fresh}, {.all = true})
                           .status()) == "LOST");
  CHECK(HasPattern(held, 7));
  CHECK(held.Release().ok());
}

TEST_CASE("a call under way when the daemon dies is answered, and repeated on the next") {
  DaemonProcess daemon(HMMD_BINARY);
  const auto client = ConnectTo(daemon.dir());
  std::vector<Held> full;  // HBM has no room and all is pinned: the next Allocate waits
  for (absl::StatusOr<Held> held = client->Allocate({.bytes = kMiB}); held.ok();
       held = client->Allocate({.bytes = kMiB})) {
    full.push_back(*std::move(held));
  }
  absl::Status status = absl::UnknownError("not answered");
  std::thread waiting([&] {
    status =
        client->Allocate({.bytes = kMiB}, {.wait = true, .timeout = milliseconds(60'000)}).status();
  });
  daemon.Kill();
  daemon.Start();
  waiting.join();
  INFO(status);
  CHECK(status.ok());
}

TEST_CASE("a daemon that answers nothing: the deadline ends the call, and nothing stays held") {
  DaemonProcess daemon(HMMD_BINARY);
  const auto client = ConnectTo(daemon.dir());
  const Tensor tensor = Put(*client, 64 * kKiB, 5);
  daemon.Stop();
  const absl::Status late = client->Acquire(tensor, {.timeout = milliseconds(50)}).status();
  CHECK(late.code() == StatusCode::kDeadlineExceeded);
  CHECK(ReasonOfStatus(late) == "DEADLINE");
  CHECK(tensor.TryPin().has_value());  // needs no daemon
  daemon.Continue();
  CHECK(WaitUntil([&] {
    const auto info = client->Describe(tensor);
    return info.ok() && info->pins == 0;
  }));
}

TEST_CASE("a fork child gets FORKED from everything, and the parent's pins are right",
          "[case 35]") {
  DaemonProcess daemon(HMMD_BINARY);
  auto client = ConnectTo(daemon.dir());
  const Tensor tensor = Put(*client, 64 * kKiB, 6);
  auto pin = std::make_unique<Pin>(*client->Acquire(tensor));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto forked = [](const absl::Status& status) {
      return status.code() == StatusCode::kFailedPrecondition && ReasonOfStatus(status) == "FORKED";
    };
    const std::array<std::string, 1> keys{"k"};
    int bad = 0;
    bad += !forked(client->Allocate({.bytes = 8}).status());
    bad += !forked(client->Acquire(tensor).status());
    bad += !forked(client->Seal(tensor));
    bad += !forked(client->Free(tensor));
    bad += !forked(client->Prefetch(tensor));
    bad += !forked(client->Swap(tensor, {.tier = "ddr0"}));
    bad += !forked(client->Lookup(keys).status());
    bad += !forked(client->Describe(tensor).status());
    bad += !forked(pin->Release());
    bad += tensor.TryPin().has_value();
    bad += client->epoch() != 0;
    pin.reset();
    client.reset();
    bad += !forked(Client::Connect({.dir = daemon.dir()}).status());
    ::_exit(bad);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(client->Describe(tensor)->pins == 1);
  CHECK(HasPattern(*pin, 6));
  pin.reset();
  CHECK(client->Describe(tensor)->pins == 0);
  CHECK(client->Allocate({.bytes = 8}).ok());
}

TEST_CASE("a client is killed: its pins and bytes return") {
  DaemonProcess daemon(HMMD_BINARY);
  const auto client = ConnectTo(daemon.dir());
  Put(*client, 64 * kKiB, 7, "shared");
  const Books before = ReadBooks(daemon.dir());
  const std::string ready = daemon.dir() + "/holder-ready";
  ChildProcess holder({HOLDER_BINARY, daemon.dir(), ready}, daemon.dir() + "/holder-log");
  REQUIRE(WaitUntil([&] { return std::filesystem::exists(ready) || !holder.Running(); }));
  REQUIRE(holder.Running());
  const Books during = ReadBooks(daemon.dir());
  CHECK(during.sessions == before.sessions + 1);
  CHECK(during.tensors > before.tensors);
  CHECK(during.used_bytes[0] > before.used_bytes[0]);
  holder.Signal(SIGKILL);
  CHECK(holder.Wait() == 128 + SIGKILL);
  CHECK(WaitUntil([&] { return ReadBooks(daemon.dir()) == before; }));
  const std::array<std::string, 1> keys{"shared"};
  CHECK(client->Lookup(keys)->size() == 1);
}

TEST_CASE("a Client that goes leaves its Pins good and its Tensors lost") {
  DaemonProcess daemon(HMMD_BINARY);
  auto client = ConnectTo(daemon.dir());
  const Tensor tensor = Put(*client, 64 * kKiB, 8, "stays");
  const Pin pin = *client->Acquire(tensor);
  client.reset();
  CHECK(HasPattern(pin, 8));
  const auto next = ConnectTo(daemon.dir());
  const std::array<std::string, 1> keys{"stays"};
  const auto found = next->Lookup(keys);
  REQUIRE(found.ok());
  REQUIRE(found->size() == 1);
  CHECK(HasPattern((*found)[0].pin, 8));
}

TEST_CASE("Clients that come and go leave no session behind in a process that lives on") {
  DaemonProcess daemon(HMMD_BINARY);
  const Books before = ReadBooks(daemon.dir());
  for (int i = 0; i < 20; ++i) {
    const auto client = ConnectTo(daemon.dir());
    REQUIRE(client->Allocate({.bytes = 64 * kKiB}).ok());  // never sealed: dies with its session
  }
  CHECK(WaitUntil([&] { return ReadBooks(daemon.dir()) == before; }));
  // A Pin and a Tensor that outlive their Client: the session ends with the Pin.
  auto client = ConnectTo(daemon.dir());
  absl::StatusOr<Held> held = client->Allocate({.bytes = 64 * kKiB});
  REQUIRE(held.ok());
  FillPattern(held->pin, 1);
  client.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(ReadBooks(daemon.dir()).sessions == 1);
  CHECK(ReadBooks(daemon.dir()).pins == 1);
  CHECK(HasPattern(held->pin, 1));
  held->pin = Pin();
  CHECK(WaitUntil([&] { return ReadBooks(daemon.dir()) == before; }));
}

}  // namespace
}  // namespace hmm::testing
