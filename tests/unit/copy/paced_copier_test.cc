// SPDX-License-Identifier: Apache-2.0
#include "copy/paced_copier.h"

#include <atomic>
#include <memory>
#include <vector>

#include "base/status.h"
#include "support/catch.h"
#include "support/fake_copier.h"
#include "support/fake_fragment_copier.h"
#include "support/manual_executor.h"
#include "unit/copy/small_tiers.h"

namespace hmm::testing {
namespace {

using std::chrono::milliseconds;

constexpr Bytes kBlock = 64 * kKiB;
constexpr Bytes kRate = 64 * kMiB;  // a second: a block a 1/1024 s

struct Paced {
  Paced() : executor(clock) {
    auto fake = std::make_unique<FakeCopier>(executor);
    inner = fake.get();
    const auto links = std::make_shared<copy::PacedLinks>(clock);
    copier = copy::CreatePacedCopier(std::move(fake), links, executor, clock);
    auto lists = std::make_unique<FakeFragmentCopier>(executor);
    inner_lists = lists.get();
    fragments = copy::CreatePacedFragmentCopier(std::move(lists), links, executor, clock);
    remote.mutable_options().link_bandwidth = kRate;
  }

  // Submitted as slot `slot` of either tier; ends at once as far as the memory goes.
  void Move(const tier::Tier& from, const tier::Tier& to, Bytes slot) {
    const tier::Extent extent{0, slot * kBlock, kBlock};
    ++under_way;
    copier->Submit({&from, extent, &to, extent, kBlock, std::nullopt},
                   [this](copy::CopyResult result) {
                     CHECK(result.status.ok());
                     results.push_back(result.elapsed);
                     ended.push_back(clock.Now());
                     --under_way;
                   });
    inner->Complete(inner->size() - 1);
    executor.RunReady();
  }

  // A job of regions whose bytes go over these links; stopped half-way or not.
  void Carry(std::vector<copy::Crossing> crossings, bool stopped = false) {
    ++under_way;
    copy::FragmentJob job;
    job.stop = std::make_shared<const std::atomic<bool>>(stopped);
    job.crossings = std::move(crossings);
    fragments->Submit(std::move(job), [this, stopped](copy::FragmentResult result) {
      CHECK(result.complete == !stopped);
      results.push_back(result.elapsed);
      ended.push_back(clock.Now());
      --under_way;
    });
    inner_lists->Complete(inner_lists->size() - 1);
    executor.RunReady();
  }

  ManualClock clock;
  ManualExecutor executor;
  FakeCopier* inner = nullptr;
  MemoryTier local{"ddr0", 64 * kBlock};
  MemoryTier other{"hbm0", 64 * kBlock};
  MemoryTier remote{"remote", 64 * kBlock};
  std::unique_ptr<copy::Copier> copier;
  FakeFragmentCopier* inner_lists = nullptr;
  std::unique_ptr<copy::FragmentCopier> fragments;
  int under_way = 0;
  std::vector<Duration> results;
  std::vector<TimePoint> ended;
};

TEST_CASE("tiers without a bandwidth are not held up") {
  Paced p;
  for (Bytes i = 0; i < 32; ++i) p.Move(p.local, p.other, i);
  CHECK(p.under_way == 0);
  CHECK(p.results.front() == std::chrono::microseconds(1));  // the fake's own word
}

TEST_CASE("a link carries its bandwidth and no more, however coarse the timers") {
  Paced p;
  const TimePoint start = p.clock.Now();
  constexpr int kMoves = 1000;
  int begun = 0;
  // Four at a time, as the mover has them; time passes by a millisecond and a half.
  while (static_cast<int>(p.ended.size()) < kMoves) {
    while (p.under_way < 4 && begun < kMoves) {
      p.Move(p.local, p.remote, static_cast<Bytes>(begun++ % 64));
    }
    if (p.under_way > 0) p.executor.Advance(std::chrono::microseconds(1500));
  }
  const double seconds = std::chrono::duration<double>(p.ended.back() - start).count();
  const double expected = kMoves * static_cast<double>(kBlock) / static_cast<double>(kRate);
  CHECK(seconds > expected - 0.005);  // the slack, and a tick
  CHECK(seconds < expected * 1.02);
  // The time that the link was taken for, so that statistics show its rate.
  CHECK(p.results.back() >= std::chrono::nanoseconds(976'562));
}

TEST_CASE("the two directions do not share a wire, and links to other tiers wait for nobody") {
  Paced p;
  for (Bytes i = 0; i < 16; ++i) {
    p.Move(p.local, p.remote, i);
    p.Move(p.remote, p.local, 32 + i);
  }
  CHECK(p.under_way > 0);
  const int waiting = p.under_way;
  p.Move(p.local, p.other, 20);
  CHECK(p.under_way == waiting);
  p.executor.Advance(milliseconds(16));  // 16 blocks a direction take 15.6 ms
  CHECK(p.under_way == 0);
}

TEST_CASE("moves from one paced tier to another wait for the slower") {
  Paced p;
  p.other.mutable_options().link_bandwidth = kRate / 4;
  for (Bytes i = 0; i < 4; ++i) p.Move(p.remote, p.other, i);
  p.executor.Advance(milliseconds(8));
  CHECK(p.under_way > 0);
  p.executor.Advance(milliseconds(8));
  CHECK(p.under_way == 0);
}

TEST_CASE("jobs of regions take the link as moves do, and share it with them") {
  Paced p;
  const TimePoint start = p.clock.Now();
  // 16 blocks of moves and 16 of jobs the same way: 31.25 ms, of which 2 are made up for.
  for (Bytes i = 0; i < 16; ++i) {
    p.Move(p.local, p.remote, i);
    p.Carry({{&p.remote, true, kBlock}});
  }
  while (p.under_way > 0) p.executor.Advance(milliseconds(1));
  CHECK(p.clock.Now() - start >= milliseconds(29));
  CHECK(p.clock.Now() - start <= milliseconds(31));
  CHECK(p.results.back() >= std::chrono::nanoseconds(976'562));
  // The other way is free, and so are tiers without a bandwidth.
  p.Carry({{&p.remote, false, kBlock}});
  p.Carry({{&p.local, true, kBlock}});
  p.Carry({});
  CHECK(p.under_way == 0);
}

TEST_CASE("a job between two paced tiers waits for the slower; one that was stopped does not") {
  Paced p;
  p.other.mutable_options().link_bandwidth = kRate / 4;
  p.Carry({{&p.remote, false, 4 * kBlock}, {&p.other, true, 4 * kBlock}});
  p.executor.Advance(milliseconds(8));
  CHECK(p.under_way == 1);
  p.Carry({{&p.other, true, 4 * kBlock}}, /*stopped=*/true);
  CHECK(p.under_way == 1);
  p.executor.Advance(milliseconds(8));
  CHECK(p.under_way == 0);
}

TEST_CASE("a failure keeps its status") {
  Paced p;
  const tier::Extent extent{0, 0, kBlock};
  absl::Status status;
  p.copier->Submit({&p.local, extent, &p.remote, extent, kBlock, std::nullopt},
                   [&](copy::CopyResult result) { status = result.status; });
  p.inner->Fail(0, Error(absl::StatusCode::kDataLoss, Reason::kIo, "injected"));
  p.executor.RunReady();
  p.executor.Advance(milliseconds(5));
  CHECK(status.message() == "injected");
}

}  // namespace
}  // namespace hmm::testing
