// SPDX-License-Identifier: Apache-2.0
#include "share/pin.h"

#include <array>
#include <thread>
#include <vector>

#include "support/catch.h"

namespace hmm::share {
namespace {

constexpr std::uint32_t kGeneration = 7;

// A slot in a state, and one session's word for it.
struct Fixture {
  explicit Fixture(TensorState state = TensorState::kResident,
                   std::uint32_t generation = kGeneration) {
    PublishState(slot, {.state = state, .tier = 2, .generation = generation});
  }
  bool Try(std::uint32_t generation = kGeneration) { return TryPin(word, slot, generation); }

  TableSlot slot{};
  std::atomic<std::uint32_t> word{0};
};

TEST_CASE("a state word survives packing, with every field at its largest") {
  const StateWord word{.state = TensorState::kDoomed, .tier = 0xff, .generation = 0xffff'ffff};
  CHECK(word.Pack() == 0xffff'ffff'0000'ff05);
  const StateWord back = StateWord::Unpack(word.Pack());
  CHECK(back.state == TensorState::kDoomed);
  CHECK(back.tier == 0xff);
  CHECK(back.generation == 0xffff'ffff);
  CHECK(StateWord{}.Pack() == 0);  // a sparse table's zeros: nothing there
}

TEST_CASE("a resident tensor of the right generation is pinned and counted as accessed") {
  Fixture f;
  CHECK_FALSE(IsPinned(f.word));
  REQUIRE(f.Try());
  REQUIRE(f.Try());
  CHECK(IsPinned(f.word));
  CHECK(PinsOf(f.word) == 2);
  CHECK(AccessesOf(f.word) == 2);
  Unpin(f.word);
  CHECK(IsPinned(f.word));
  Unpin(f.word);
  CHECK_FALSE(IsPinned(f.word));
  CHECK(AccessesOf(f.word) == 2);  // stay until the daemon has seen them
}

TEST_CASE("in every other state nothing is held") {
  const TensorState state =
      GENERATE(TensorState::kGone, TensorState::kCreating, TensorState::kMoving,
               TensorState::kAbsent, TensorState::kDoomed);
  CAPTURE(TensorStateName(state));
  Fixture f(state);
  CHECK_FALSE(f.Try());
  CHECK(f.word == 0);
}

TEST_CASE("another generation is refused, older or newer or differing in its top bit only") {
  Fixture f;
  CHECK_FALSE(f.Try(kGeneration - 1));
  CHECK_FALSE(f.Try(kGeneration + 1));
  CHECK_FALSE(f.Try(kGeneration ^ 0x8000'0000));
  CHECK_FALSE(f.Try(0));
  CHECK(f.word == 0);
}

TEST_CASE("an unused slot is refused to the null handle") {
  Fixture f(TensorState::kGone, 0);
  CHECK_FALSE(f.Try(0));
}

TEST_CASE("a refused pin leaves the pins of others alone") {
  Fixture f;
  REQUIRE(f.Try());
  PublishState(f.slot, {.state = TensorState::kMoving, .generation = kGeneration});
  CHECK_FALSE(f.Try());
  CHECK(PinsOf(f.word) == 1);
  CHECK(AccessesOf(f.word) == 1);
  PublishState(f.slot, {.state = TensorState::kResident, .generation = kGeneration});  // taken back
  CHECK(f.Try());
  CHECK(PinsOf(f.word) == 2);
}

TEST_CASE("the last pin below the maximum is given, the next is refused") {
  Fixture f;
  f.word = kPinMax - 1;
  CHECK(f.Try());
  CHECK(PinsOf(f.word) == kPinMax);
  CHECK_FALSE(f.Try());
  CHECK(PinsOf(f.word) == kPinMax);
  CHECK(AccessesOf(f.word) == 1);
  CHECK_FALSE(PinFor(f.word));
  CHECK(PinsOf(f.word) == kPinMax);
  Unpin(f.word);
  CHECK(PinFor(f.word));
  CHECK(PinsOf(f.word) == kPinMax);
}

TEST_CASE("a count that a client scribbled past the maximum counts as pinned and gets no more") {
  Fixture f;
  f.word = kPinMask;
  CHECK(IsPinned(f.word));
  CHECK_FALSE(PinFor(f.word));
  CHECK(f.word == kPinMask);
  UnpinFor(f.word);
  CHECK(f.word == kPinMask - 1);
}

TEST_CASE("accesses wrap out at the top and never reach the pins") {
  Fixture f;
  f.word = 0xffff'0000 | 3;
  REQUIRE(f.Try());
  CHECK(PinsOf(f.word) == 4);
  CHECK(AccessesOf(f.word) == 0);
  Unpin(f.word);
  CHECK(f.word == 3);
}

TEST_CASE("a refused pin undoes an access that wrapped") {
  Fixture f(TensorState::kMoving);
  f.word = 0xffff'0000 | 3;
  CHECK_FALSE(f.Try());
  CHECK(f.word == (0xffff'0000 | 3));
}

TEST_CASE("accesses alone are no pin") {
  Fixture f;
  f.word = 0xffff'0000;
  CHECK_FALSE(IsPinned(f.word));
}

TEST_CASE("a pin given by the daemon is the client's to give back, or the daemon's to take back") {
  Fixture f;
  REQUIRE(PinFor(f.word));
  REQUIRE(PinFor(f.word));
  CHECK(f.word == 2);  // no access: the daemon counts its own
  Unpin(f.word);
  UnpinFor(f.word);
  CHECK(f.word == 0);
}

TEST_CASE("taking back from a word without pins changes nothing, accesses included") {
  Fixture f;
  UnpinFor(f.word);
  CHECK(f.word == 0);
  f.word = 0x5'0000;
  UnpinFor(f.word);
  CHECK(f.word == 0x5'0000);
}

TEST_CASE("the words of slots lie apart and behind the header and the fences") {
  alignas(4096) static std::array<std::byte, PageBytes(1024)> page{};
  std::atomic<std::uint32_t>* words = PinWords(page.data());
  CHECK(reinterpret_cast<std::byte*>(words) == page.data() + kHeaderBytes + kFenceBytes);
  CHECK(reinterpret_cast<std::byte*>(&Fences(page.data()) + 1) <=
        reinterpret_cast<std::byte*>(words));
  Fixture f;
  REQUIRE(TryPin(words[1], f.slot, kGeneration));
  CHECK(words[0] == 0);
  CHECK(IsPinned(words[1]));
  CHECK(words[2] == 0);
}

// Threads of one client share a word with each other and with the daemon. The value under the pin
// is no atomic, so that TSan reports a pin that does not protect it.
TEST_CASE("pins protect the bytes, and none is lost between threads") {
  constexpr int kThreads = 3;
  constexpr int kTries = 20'000;
  Fixture f;
  std::array<int, 2> bytes{};  // both alike, except while they move
  std::atomic<int> wrong{0};
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < kTries; ++n) {
        if (!f.Try()) continue;
        if (bytes[0] != bytes[1]) ++wrong;
        Unpin(f.word);
      }
      --running;
    });
  }
  int moves = 0;
  do {  // the daemon
    PublishState(f.slot, {.state = TensorState::kMoving, .generation = kGeneration});
    if (!IsPinned(f.word)) {
      ++moves;
      bytes = {moves, moves};
    }
    PublishState(f.slot, {.state = TensorState::kResident, .generation = kGeneration});
    if (PinFor(f.word)) UnpinFor(f.word);
  } while (running > 0 || moves == 0);
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(PinsOf(f.word) == 0);
}

}  // namespace
}  // namespace hmm::share
