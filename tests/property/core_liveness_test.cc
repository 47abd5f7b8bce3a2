// SPDX-License-Identifier: Apache-2.0
//
// The core under two kinds of stubbornness, in one thread with a manual clock: hints that are taken
// back at every point, and many small calls against one large one. A failure prints the seed;
// TEST_SEED=n runs that one.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "support/catch.h"
#include "unit/hmm/core_fixture.h"

namespace hmm::testing {
namespace {

std::uint64_t SeedOf(std::uint64_t otherwise) {
  const char* text = std::getenv("TEST_SEED");
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

#ifdef HMM_SANITIZED
constexpr std::uint64_t kHints = 50'000;
#else
constexpr std::uint64_t kHints = 1'000'000;
#endif

struct Hinted {
  Handle handle;
  std::uint8_t value;
};

class HintWorld : public CoreFixture {
 public:
  explicit HintWorld(std::uint64_t seed) : rng_(seed), client_(Open()) {
    for (std::uint8_t i = 0; i < 14; ++i) Make(i);
    Settle();
  }

  void Hint() {
    Hinted& one = Any();
    const TimePoint end = Pick(3) == 0 ? TimePoint::max() : clock.Now() + milliseconds(Pick(3));
    (void)CoreFixture::Prefetch(client_, one.handle, end);
    ++hints;
  }
  // One of the things that can become of a hint.
  void Disturb() {
    Hinted& one = Any();
    switch (Pick(9)) {
      case 0: {  // a demand takes it over, and is given up
        const auto asked = CoreFixture::Acquire(client_, one.handle, "hbm0", milliseconds(50));
        if (!asked->done()) manager->Cancel(asked->op);
        Finish(asked, one);
        break;
      }
      case 1: {  // a demand takes it over, and waits its time
        asked_.push_back({CoreFixture::Acquire(client_, one.handle, "hbm0", milliseconds(2)), one});
        break;
      }
      case 2:
        (void)CoreFixture::Swap(client_, {one.handle}, "flash0", milliseconds(1));
        break;
      case 3:  // gone under it
        (void)Free(client_, one.handle);
        Make(one.value, &one);
        break;
      case 4:
        clock.Advance(milliseconds(1));
        break;
      case 5:
        if (copier.size() > 0) copier.Fail(Pick(copier.size()), Failure());
        break;
      default:
        if (copier.size() > 0) copier.Complete(Pick(copier.size()));
    }
    REQUIRE(executor.RunReady(5000) < 5000);
    for (std::size_t i = asked_.size(); i-- > 0;) {
      if (!asked_[i].answer->done()) continue;
      Finish(asked_[i].answer, asked_[i].tensor);
      asked_.erase(asked_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  void Check() {
    const absl::Status valid = manager->Validate();
    INFO(valid);
    REQUIRE(valid.ok());
  }
  // All copies end, all deadlines pass; then each tensor is whole or says that it is lost.
  void End() {
    for (int i = 0; i < 200; ++i) Settle(), Pass(milliseconds(1));
    REQUIRE(copier.size() == 0);
    for (const Hinted& one : tensors_) {
      const auto got = CoreFixture::Acquire(client_, one.handle, "", milliseconds(100));
      Settle();
      // There is room for all of them and nothing fails any more: whole, or lost before.
      const absl::Status answer =
          got->value->ok() ? (**got->value).tensors[0].status() : got->value->status();
      INFO(answer);
      REQUIRE((answer.ok() || absl::IsDataLoss(answer) || absl::IsNotFound(answer)));
      if (answer.ok()) ++whole;
      Finish(got, one);
      REQUIRE(Free(client_, one.handle).ok());
    }
    Settle();
    for (const TierId id : {kHbm, kDdr, kFlash}) REQUIRE(Used(id) == 0);
  }

  std::uint64_t hints = 0;
  std::uint64_t read = 0;
  std::uint64_t whole = 0;

 private:
  struct Asked {
    AnswerPtr<core::AcquireResult> answer;
    Hinted tensor;
  };

  std::size_t Pick(std::size_t n) { return static_cast<std::size_t>(rng_() % n); }
  Hinted& Any() { return tensors_[Pick(tensors_.size())]; }
  static absl::Status Failure() {
    return Error(absl::StatusCode::kInternal, Reason::kIo, "injected");
  }
  void Make(std::uint8_t value, Hinted* place = nullptr) {
    core::AllocateArgs args = One(1024, "ddr0");
    const auto made = Allocate(client_, std::move(args));
    if (!made->done() || !made->value->ok()) {  // no room just now: what it was stays gone
      manager->Cancel(made->op);
      if (place != nullptr) *place = {Handle{}, value};
      return;
    }
    const Handle handle = made->get().tensors[0]->handle;
    Write(client_, handle, value);
    REQUIRE(Seal(client_, handle).ok());
    if (place != nullptr) {
      *place = {handle, value};
    } else {
      tensors_.push_back({handle, value});
    }
  }
  void Finish(const AnswerPtr<core::AcquireResult>& answer, const Hinted& one) {
    REQUIRE(answer->done());
    if (!answer->value->ok() || !(**answer->value).tensors[0].ok()) return;
    REQUIRE(Holds(client_, one.handle, one.value));
    ++read;
    client_.Unpin(one.handle);
  }

  std::mt19937_64 rng_;
  CoreClient client_;
  std::vector<Hinted> tensors_;
  std::vector<Asked> asked_;
};

TEST_CASE("case 15: prefetches taken back at every point, a million of them", "[case 15]") {
  const std::uint64_t seed = SeedOf(15);
  std::printf("hints: TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::uint64_t hints = 0;
  std::uint64_t read = 0;
  std::uint64_t whole = 0;
  for (std::uint64_t world_at = 0; hints < kHints; ++world_at) {
    HintWorld world(seed * 1000 + world_at);
    for (int step = 0; step < 10'000; ++step) {
      world.Hint();
      world.Disturb();
      if (step % 16 == 0) world.Check();
    }
    world.End();
    hints += world.hints;
    read += world.read;
    whole += world.whole;
  }
  std::printf("hints: %llu, blocks read meanwhile %llu, whole at the end %llu\n",
              static_cast<unsigned long long>(hints), static_cast<unsigned long long>(read),
              static_cast<unsigned long long>(whole));
  CHECK(read > hints / 1000);
  CHECK(whole > 0);
}

TEST_CASE("63 small loopers against one call for 60% of the pool: answered by its deadline") {
  for (std::uint64_t seed = SeedOf(1); seed < SeedOf(1) + 20; ++seed) {
    INFO("TEST_SEED=" << seed);
    std::mt19937_64 rng(seed);
    CoreOptions options;
    options.hbm = 64 * kKiB;
    options.ddr = 8 * kKiB;  // nothing much can go down: the room must come from the loopers
    options.flash = 8 * kKiB;
    CoreFixture core(options);
    struct Looper {
      CoreClient client;
      AnswerPtr<core::AllocateResult> asked;
      std::optional<Handle> held;
      std::uint64_t rounds = 0;
    };
    std::vector<Looper> loopers(63);
    for (Looper& looper : loopers) looper.client = core.Open();
    CoreClient large = core.Open();
    AnswerPtr<core::AllocateResult> wanted;
    bool served = false;
    for (int ms = 0; ms < 1200; ++ms) {
      for (Looper& looper : loopers) {
        if (looper.asked != nullptr && looper.asked->done()) {
          if (looper.asked->value->ok()) looper.held = looper.asked->get().tensors[0]->handle;
          looper.asked = nullptr;
        }
        if (looper.held.has_value() && rng() % 3 == 0) {  // done with it
          looper.client.Unpin(*looper.held);
          REQUIRE(core.Free(looper.client, *looper.held).ok());
          looper.held.reset();
          ++looper.rounds;
        }
        if (!looper.held.has_value() && looper.asked == nullptr) {
          looper.asked = core.AllocateWaiting(looper.client, 512, milliseconds(20));
        }
      }
      if (ms == 100) wanted = core.AllocateWaiting(large, 38 * kKiB, milliseconds(1000));
      core.Pass(milliseconds(1));
      if (wanted != nullptr && wanted->done() && !served) {
        served = wanted->value->ok();
        INFO(wanted->value->status());
        CHECK((served || absl::IsResourceExhausted(wanted->value->status())));
        break;
      }
    }
    REQUIRE(wanted->done());
    CHECK(served);  // the loopers let go all the time: the room is there to be had
    std::uint64_t least = ~std::uint64_t{0};
    for (const Looper& looper : loopers) least = std::min(least, looper.rounds);
    CHECK(least > 0);  // and before it came, none of them was shut out
  }
}

}  // namespace
}  // namespace hmm::testing
