// SPDX-License-Identifier: Apache-2.0
//
// What a victim of the torture does until it is killed, and how it tells of itself. A process has
// one; it asserts nothing: what it finds wrong ends it, by an exit code of victims.h.
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "hmm/client.h"
#include "torture/victims.h"

namespace hmm::testing {

// What the victims tell: in memory that all of them share.
inline constexpr std::size_t kPlaces = 128;
struct Shared {
  std::array<std::atomic<std::uint64_t>, kPlaces> progress{};
  std::array<std::atomic<Act>, kPlaces> acts{};
};
inline Shared* shared = nullptr;

class Victim {
  using milliseconds = std::chrono::milliseconds;

 public:
  Victim(const std::string& dir, std::uint64_t seed, std::size_t place)
      : dir_(dir), rng_(seed), act_(shared->acts[place]) {}

  void Attach() {
    for (;;) client_.reset(), Connect();
  }
  // Waits for blocks, held for a moment.
  void Acquire() {
    Connect();
    for (;;) ReadShared(1 + rng_() % 6);
  }
  // Killed in the middle of a block, of a Seal, or of a wait for room.
  void Write() {
    Connect();
    for (std::uint64_t seed = rng_();; ++seed) {
      auto held = client_->Allocate({.bytes = 64 * 1024 + rng_() % (512 * 1024)},
                                    {.wait = rng_() % 2 == 0, .timeout = milliseconds(200)});
      if (!held.ok()) {
        Expect(held.status());
        continue;
      }
      {
        const Doing doing(act_, Act::kWrite);
        for (std::size_t i = 0; i < held->pin.size(); ++i)
          held->pin.data()[i] = TortureByte(seed, i);
        Expect(client_->Seal(held->tensor, std::move(held->pin)));
      }
      mine_.push_back({held->tensor, seed});
      if (mine_.size() > 3) VerifyMine();
    }
  }
  // Holds pins, on shared blocks and on its own, taken and given back without a call.
  void Pin() {
    Connect();
    auto own = client_->Allocate({.bytes = 128 * 1024});
    std::vector<std::string> keys;
    for (int i = 0; i < 4; ++i) keys.push_back(SharedKey(rng_() % kSharedBlocks));
    auto found = client_->Lookup(keys, {.timeout = milliseconds(500)});
    if (!found.ok()) Expect(found.status());
    const Doing doing(act_, own.ok() || found.ok() ? Act::kPinned : Act::kOther);
    std::vector<hmm::Pin> pins;
    for (;;) {
      if (found.ok()) {
        for (const Held& held : *found) {
          if (auto pin = held.tensor.TryPin()) pins.push_back(*std::move(pin));
        }
      }
      if (pins.size() > 64) pins.clear();
    }
  }
  // Sends blocks up and down, so that death finds them on their way.
  void Move() {
    Connect();
    const std::array<std::string, 3> tiers{"hbm0", "ddr0", "flash0"};
    for (;;) {
      const std::vector<Tensor> some = SharedTensors(4);
      const Doing doing(act_, Act::kMove);
      const auto swapped =
          client_->SwapBatch(some, {.tier = tiers[rng_() % 3], .timeout = milliseconds(200)});
      if (!swapped.ok()) Expect(swapped.status());
      (void)client_->PrefetchBatch(some, {.timeout = milliseconds(5)});
    }
  }
  // Has a child, which holds its sockets and mappings for a moment longer than it lives.
  void Fork() {
    Connect();
    const std::vector<Tensor> some = SharedTensors(2);
    std::vector<hmm::Pin> pins;
    for (const Tensor& tensor : some) {
      if (auto pin = tensor.TryPin()) pins.push_back(*std::move(pin));
    }
    const Doing doing(act_, Act::kFork);
    const pid_t parent = ::getpid();
    if (::fork() == 0) {
      while (::getppid() == parent) ::usleep(1'000);
      ::usleep(static_cast<useconds_t>(rng_() % 40'000));
      ::_exit(0);
    }
    for (;;) ReadShared(2);
  }
  void Hold(std::size_t place) {
    Connect();
    auto own = client_->Allocate({.bytes = 32 * 1024});
    std::vector<hmm::Pin> pins;
    for (const Tensor& tensor : SharedTensors(4)) {
      if (auto pin = tensor.TryPin()) pins.push_back(*std::move(pin));
    }
    shared->progress[place] = 1;
    for (;;) ::pause();
  }
  // An engine: what it does not find it makes anew. Survives the daemon.
  void Read(std::size_t place) {
    Connect();
    for (;;) {
      const std::uint64_t block = rng_() % kSharedBlocks;
      if (ReadShared(1, block) == 0) Make(block, SharedKey(block), /*droppable=*/false);
      shared->progress[place].fetch_add(1);
    }
  }
  // An engine with more blocks than all tiers can hold, droppable, some of them hot.
  void Soak(std::size_t place) {
    Connect();
    constexpr std::uint64_t kBlocks = 900;  // of 96 KiB: 84 MiB, in 56 MiB of tiers
    for (;;) {
      const std::uint64_t block = rng_() % 3 == 0 ? rng_() % kBlocks : rng_() % (kBlocks / 8);
      const std::string key = "soak:" + std::to_string(block);
      const auto found =
          client_->Lookup(std::vector<std::string>{key}, {.timeout = milliseconds(2000)});
      if (!found.ok()) {
        Expect(found.status());
      } else if (!found->empty()) {
        Verify(found->front().pin, block);
        shared->progress[place].fetch_add(1);
      } else {
        Make(block, key, /*droppable=*/true);
      }
    }
  }
  // Stops for its tracer, then pins and unpins for ever.
  void Step() {
    Connect();
    const std::vector<Tensor> some = SharedTensors(1);
    if (some.empty()) ::_exit(kBadAnswer);
    // The first one binds the symbols, by hundreds of instructions of the loader.
    if (!some.front().TryPin().has_value()) ::_exit(kBadAnswer);
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kBadAnswer);
    ::raise(SIGSTOP);
    for (;;) {
      const auto pin = some.front().TryPin();
      (void)pin;
    }
  }

 private:
  struct Own {
    Tensor tensor;
    std::uint64_t seed;
  };

  // Says what it is at while in scope; the outermost that says so is believed.
  class Doing {
   public:
    Doing(std::atomic<Act>& act, Act now) : act_(act), outer_(act) {
      if (outer_ == Act::kOther) act_ = now;
    }
    ~Doing() { act_ = outer_; }
    Doing(const Doing&) = delete;
    Doing& operator=(const Doing&) = delete;

   private:
    std::atomic<Act>& act_;
    const Act outer_;
  };

  void Connect() {
    const Doing doing(act_, Act::kAttach);
    auto client = Client::Connect({.dir = dir_, .connect_timeout = milliseconds(20'000)});
    if (!client.ok()) Die(kBadAnswer, client.status().ToString());
    client_ = *std::move(client);
  }
  // Answers that a client of a full, restarting daemon may get.
  void Expect(const absl::Status& status) {
    if (status.ok() || absl::IsResourceExhausted(status) || absl::IsDeadlineExceeded(status) ||
        absl::IsUnavailable(status) || absl::IsAborted(status) ||
        ReasonOfStatus(status) == "PINNED") {
      return;
    }
    Die(kBadAnswer, status.ToString());
  }
  static void Die(int code, const std::string& why) {
    const std::string line = "victim: " + why + "\n";
    (void)!::write(STDERR_FILENO, line.data(), line.size());
    ::_exit(code);
  }
  static void Verify(const hmm::Pin& pin, std::uint64_t seed) {
    for (std::size_t i = 0; i < pin.size(); ++i) {
      if (pin.data()[i] != TortureByte(seed, i)) {
        Die(kWrongBytes, "wrong byte " + std::to_string(i) + " of block " + std::to_string(seed));
      }
    }
  }
  void VerifyMine() {
    for (const Own& own : mine_) {
      auto pin = client_->Acquire(own.tensor, {.timeout = milliseconds(500)});
      if (pin.ok()) {
        Verify(*pin, own.seed);
      } else {
        Expect(pin.status());
      }
      Expect(client_->Free(own.tensor));
    }
    mine_.clear();
  }
  // Blocks found, from `first` on.
  std::size_t ReadShared(std::size_t count) { return ReadShared(count, rng_() % kSharedBlocks); }
  std::size_t ReadShared(std::size_t count, std::uint64_t first) {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < count; ++i) keys.push_back(SharedKey((first + i) % kSharedBlocks));
    const Doing doing(act_, Act::kAcquire);
    const auto found = client_->Lookup(keys, {.timeout = milliseconds(500)});
    if (!found.ok()) {
      Expect(found.status());
      return 0;
    }
    for (std::size_t i = 0; i < found->size(); ++i) {
      Verify((*found)[i].pin, (first + i) % kSharedBlocks);
    }
    return found->size();
  }
  std::vector<Tensor> SharedTensors(std::size_t count) {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < count; ++i) keys.push_back(SharedKey(rng_() % kSharedBlocks));
    std::vector<Tensor> out;
    const auto found = client_->Lookup(keys, {.timeout = milliseconds(500)});
    if (!found.ok()) {
      Expect(found.status());
      return out;
    }
    for (const Held& held : *found) out.push_back(held.tensor);
    return out;
  }
  void Make(std::uint64_t block, const std::string& key, bool droppable) {
    auto held = client_->Allocate({.bytes = kSharedBytes, .key = key, .droppable = droppable},
                                  {.wait = true, .timeout = milliseconds(500)});
    if (!held.ok()) {
      if (!absl::IsAlreadyExists(held.status())) Expect(held.status());
      return;
    }
    for (std::size_t i = 0; i < held->pin.size(); ++i) held->pin.data()[i] = TortureByte(block, i);
    Expect(client_->Seal(held->tensor, std::move(held->pin)));
  }

  const std::string dir_;
  std::mt19937_64 rng_;
  std::atomic<Act>& act_;
  std::unique_ptr<Client> client_;
  std::vector<Own> mine_;
};

}  // namespace hmm::testing
