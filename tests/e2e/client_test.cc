// SPDX-License-Identifier: Apache-2.0
//
// Every verb of the client library against a real daemon on a temporary directory.
#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "e2e/client_fixture.h"

namespace hmm::testing {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;

struct Fixture {
  DaemonProcess daemon{HMMD_BINARY};
  std::unique_ptr<Client> client = ConnectTo(daemon.dir());
};

TEST_CASE("allocate, write, seal, look up, read") {
  Fixture f;
  absl::StatusOr<Held> held =
      f.client->Allocate({.bytes = 100'000, .kind = Kind::kKvCache, .key = "b0"});
  REQUIRE(held.ok());
  CHECK(held->tensor.size() == 100'000);
  CHECK(held->pin.size() == 100'000);
  CHECK(held->pin.tier() == "hbm0");
  FillPattern(held->pin, 1);

  SECTION("invisible until it is sealed") {
    const std::array<std::string, 1> keys{"b0"};
    const auto found = f.client->Lookup(keys);
    REQUIRE(found.ok());
    CHECK(found->empty());
    CHECK_FALSE(held->tensor.TryPin().has_value());
  }
  SECTION("sealed: found by key by another client, in place") {
    REQUIRE(f.client->Seal(held->tensor, std::move(held->pin)).ok());
    const auto other = ConnectTo(f.daemon.dir());
    const std::array<std::string, 2> keys{"b0", "none"};
    const auto found = other->Lookup(keys);
    REQUIRE(found.ok());
    REQUIRE(found->size() == 1);
    CHECK(HasPattern((*found)[0].pin, 1));
    CHECK((*found)[0].found_tier == "hbm0");
    CHECK(ReasonOfStatus(f.client->Seal(held->tensor)) == "SEALED");
  }
  SECTION("the key may come with the seal") {
    auto unnamed = f.client->Allocate({.bytes = 64});
    REQUIRE(unnamed.ok());
    REQUIRE(f.client->Seal(unnamed->tensor, std::move(unnamed->pin), "later").ok());
    const std::array<std::string, 1> keys{"later"};
    CHECK(f.client->Lookup(keys)->size() == 1);
  }
  SECTION("a key is taken once") {
    CHECK(f.client->Allocate({.bytes = 64, .key = "b0"}).status().code() ==
          StatusCode::kAlreadyExists);
  }
}

TEST_CASE("TryPin, Acquire, Swap and Prefetch move a tensor up and down, bytes unharmed") {
  Fixture f;
  const Tensor tensor = Put(*f.client, 256 * kKiB, 2, "t");
  {
    const std::optional<Pin> pin = tensor.TryPin();
    REQUIRE(pin.has_value());
    CHECK(HasPattern(*pin, 2));
    const absl::Status pinned =
        f.client->Swap(tensor, {.tier = "ddr0", .timeout = milliseconds(100)});
    CHECK(ReasonOfStatus(pinned) == "PINNED");
  }
  for (const std::string tier : {"ddr0", "flash0", "hbm0", "flash0", "ddr0"}) {
    const absl::Status moved = f.client->Swap(tensor, {.tier = tier});
    INFO(tier << ": " << moved);
    REQUIRE(moved.ok());
    const absl::StatusOr<Client::Info> info = f.client->Describe(tensor);
    REQUIRE(info.ok());
    CHECK(info->tier == tier);
    CHECK(info->pins == 0);
    const std::optional<Pin> pin = tensor.TryPin();
    CHECK(pin.has_value() == (tier != "flash0"));
    if (pin.has_value()) {
      CHECK(pin->tier() == tier);
      CHECK(HasPattern(*pin, 2));
    }
  }
  REQUIRE(f.client->Swap(tensor, {.tier = "flash0"}).ok());
  const auto acquired = f.client->Acquire(tensor, {.tier = "hbm0"});
  INFO(acquired.status());
  REQUIRE(acquired.ok());
  CHECK(acquired->tier() == "hbm0");
  CHECK(HasPattern(*acquired, 2));
  CHECK(f.client->Describe(tensor)->pins == 1);

  const Tensor low = Put(*f.client, 64 * kKiB, 3);
  REQUIRE(f.client->Swap(low, {.tier = "flash0"}).ok());
  REQUIRE(f.client->Prefetch(low, {.tier = "hbm0"}).ok());
  CHECK(WaitUntil([&] { return low.TryPin().has_value(); }));
  CHECK(HasPattern(*low.TryPin(), 3));
}

TEST_CASE("Free kills the handle at once; bytes under a pin stay until it goes") {
  Fixture f;
  const Tensor tensor = Put(*f.client, 64 * kKiB, 4, "f");
  std::optional<Pin> pin = tensor.TryPin();
  REQUIRE(pin.has_value());
  REQUIRE(f.client->Free(tensor).ok());
  CHECK(HasPattern(*pin, 4));
  CHECK_FALSE(tensor.TryPin().has_value());
  CHECK(f.client->Acquire(tensor).status().code() == StatusCode::kNotFound);
  CHECK(f.client->Free(tensor).code() == StatusCode::kNotFound);
  CHECK(f.client->Describe(tensor).status().code() == StatusCode::kNotFound);
  CHECK(pin->Release().ok());
  CHECK(ReasonOfStatus(pin->Release()) == "NOT_PINNED");
  CHECK(WaitUntil([&] { return ReadBooks(f.daemon.dir()).tensors == 0; }));
}

TEST_CASE("batches: one answer an element, in order") {
  Fixture f;
  std::vector<AllocateOptions> what;
  for (int i = 0; i < 16; ++i) {
    what.push_back({.bytes = 4 * kKiB, .key = "k" + std::to_string(i == 5 ? 4 : i)});
  }
  auto held = f.client->AllocateBatch(what);
  REQUIRE(held.ok());
  REQUIRE(held->size() == 16);
  std::vector<Client::SealItem> seals;
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < 16; ++i) {
    CHECK((*held)[i].ok() == (i != 5));
    if (i == 5) {
      CHECK((*held)[i].status().code() == StatusCode::kAlreadyExists);
      tensors.emplace_back();
      continue;
    }
    FillPattern((*held)[i]->pin, i);
    tensors.push_back((*held)[i]->tensor);
    seals.push_back({(*held)[i]->tensor, std::move((*held)[i]->pin), ""});
  }
  const auto sealed = f.client->SealBatch(std::move(seals));
  REQUIRE(sealed.ok());
  for (const absl::Status& status : *sealed) CHECK(status.ok());

  const auto pins = f.client->AcquireBatch(tensors);
  REQUIRE(pins.ok());
  for (std::size_t i = 0; i < 16; ++i) {
    if (i == 5) {
      CHECK((*pins)[i].status().code() == StatusCode::kNotFound);
    } else {
      REQUIRE((*pins)[i].ok());
      CHECK(HasPattern(*(*pins)[i], i));
    }
  }
  const std::vector<std::string> keys{"k0", "k1", "k2", "gap", "k3"};
  const auto run = f.client->Lookup(keys);
  REQUIRE(run.ok());
  REQUIRE(run->size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(HasPattern((*run)[i].pin, i));

  const auto freed = f.client->FreeBatch(tensors);
  REQUIRE(freed.ok());
  for (std::size_t i = 0; i < 16; ++i) CHECK((*freed)[i].ok() == (i != 5));
}

TEST_CASE("with `all` a batch is all or nothing") {
  Fixture f;
  const Books before = ReadBooks(f.daemon.dir());
  std::vector<AllocateOptions> what(4, {.bytes = 4 * kKiB});
  what[3].bytes = 1024 * kMiB;
  const auto refused = f.client->AllocateBatch(what, {.all = true});
  CHECK(ReasonOfStatus(refused.status()) == "TOO_LARGE");
  CHECK(WaitUntil([&] { return ReadBooks(f.daemon.dir()) == before; }));

  const std::vector<Tensor> tensors{Put(*f.client, 4 * kKiB, 1), Tensor()};
  CHECK(f.client->AcquireBatch(tensors, {.all = true}).status().code() == StatusCode::kNotFound);
  CHECK(f.client->Describe(tensors[0])->pins == 0);
}

TEST_CASE("what is wrong with a request is said, with its reason") {
  Fixture f;
  CHECK(ReasonOfStatus(f.client->Allocate({.bytes = 0}).status()) == "BAD_SIZE");
  CHECK(ReasonOfStatus(f.client->Allocate({.bytes = 64 * kMiB}).status()) == "TOO_LARGE");
  CHECK(f.client->Allocate({.bytes = 8}, {.tier = "hbm7"}).status().code() ==
        StatusCode::kNotFound);
  const std::vector<AllocateOptions> many(4097, {.bytes = 1});
  const absl::Status too_many = f.client->AllocateBatch(many).status();
  CHECK(too_many.code() == StatusCode::kInvalidArgument);
  CHECK(ReasonOfStatus(too_many) == "BATCH_TOO_LARGE");
  CHECK(f.client->Swap(Put(*f.client, 64, 1), {}).code() == StatusCode::kInvalidArgument);
  CHECK(f.client->Free(Tensor()).code() == StatusCode::kNotFound);
  const auto other = ConnectTo(f.daemon.dir());
  CHECK(ReasonOfStatus(other->Free(Put(*f.client, 64, 1))) == "BAD_ARGUMENT");
}

TEST_CASE("no room: an error with a retry delay, or a wait that room ends or the deadline does") {
  Fixture f;
  std::vector<Held> all;
  absl::Status full;
  for (;;) {
    absl::StatusOr<Held> held = f.client->Allocate({.bytes = kMiB});
    if (!held.ok()) {
      full = held.status();
      break;
    }
    all.push_back(*std::move(held));
    REQUIRE(all.size() < 9);
  }
  CHECK(full.code() == StatusCode::kResourceExhausted);
  CHECK(RetryAfterOf(full).has_value());

  const absl::Status late =
      f.client->Allocate({.bytes = kMiB}, {.wait = true, .timeout = milliseconds(50)}).status();
  INFO(late);
  CHECK((late.code() == StatusCode::kDeadlineExceeded ||
         late.code() == StatusCode::kResourceExhausted));

  absl::Status waited = absl::UnknownError("not answered");
  std::thread waiting(
      [&] { waited = f.client->Allocate({.bytes = kMiB}, {.wait = true}).status(); });
  for (Held& held : all) {
    CHECK(f.client->Seal(held.tensor, std::move(held.pin), "").ok());
  }
  waiting.join();
  INFO(waited);
  CHECK(waited.ok());
}

// A working set of three times the HBM, so that the daemon moves tensors all the time.
TEST_CASE("eight threads hammering: every byte read is the byte written") {
  Fixture f;
  constexpr std::size_t kTensors = 48;
  constexpr std::uint64_t kBytes = 256 * kKiB;
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < kTensors; ++i) {
    tensors.push_back(Put(*f.client, kBytes, i, "h" + std::to_string(i)));
  }
  std::atomic<int> wrong{0};
  std::atomic<int> read{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::minstd_rand random(t + 1);
      for (int i = 0; i < 200; ++i) {
        const std::size_t at = random() % kTensors;
        std::optional<Pin> pin = tensors[at].TryPin();
        if (!pin.has_value()) {
          absl::StatusOr<Pin> acquired = f.client->Acquire(tensors[at]);
          if (acquired.ok()) pin = *std::move(acquired);
        }
        if (i % 16 == 0) {
          // Own tensors come and go meanwhile.
          absl::StatusOr<Held> held = f.client->Allocate({.bytes = 8 * kKiB}, {.wait = true});
          if (held.ok()) {
            FillPattern(held->pin, at);
            if (!HasPattern(held->pin, at)) ++wrong;
            if (!f.client->Free(held->tensor).ok()) ++wrong;
          }
        }
        if (!pin.has_value()) continue;
        ++read;
        if (!HasPattern(*pin, at)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(read > 0);
  CHECK(WaitUntil([&] { return ReadBooks(f.daemon.dir()).pins == 0; }));
}

}  // namespace
}  // namespace hmm::testing
