// SPDX-License-Identifier: Apache-2.0
#include "copy/mover.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "support/catch.h"
#include "support/fake_copier.h"
#include "support/manual_clock.h"
#include "support/manual_executor.h"
#include "unit/copy/small_tiers.h"

namespace hmm::copy {
namespace {

using hmm::testing::FakeCopier;
using hmm::testing::ManualClock;
using hmm::testing::ManualExecutor;
using hmm::testing::MemoryTier;

constexpr Bytes kEach = 64;

struct Rig {
  explicit Rig(MoverOptions options = {.queued_max = 8, .running_max = 1})
      : mover(std::make_unique<Mover>(copier, executor, options)) {}

  // The n-th job of a link has its own extents, n also being its name in `ended`.
  CopyJob Job(std::uint64_t n, bool out = false) const {
    const tier::Extent extent{.offset = n * kEach, .length = kEach};
    return out ? CopyJob{&hbm, extent, &ddr, extent, kEach, {}}
               : CopyJob{&ddr, extent, &hbm, extent, kEach, {}};
  }
  MoveId Submit(std::uint64_t n, Priority priority, bool out = false) {
    auto id = mover->Submit(Job(n, out), priority, Done(n));
    REQUIRE(id.ok());
    REQUIRE(*id != 0);
    return *id;
  }
  CopyDone Done(std::uint64_t n) {
    return [this, n](CopyResult result) {
      ended.push_back(n);
      last = std::move(result.status);
    };
  }
  // Name of the i-th job that the copier holds.
  std::uint64_t Held(std::size_t i) const { return copier.job(i).source.offset / kEach; }
  // Completes whatever runs, one after the other, and returns the order in which jobs started.
  std::vector<std::uint64_t> StartOrder() {
    std::vector<std::uint64_t> order;
    while (copier.size() > 0) {
      order.push_back(Held(0));
      copier.Complete(0);
      executor.RunReady();
    }
    return order;
  }
  const LinkStats& In() const { return mover->stats({&ddr, &hbm}); }

  ManualClock clock;
  ManualExecutor executor{clock};
  FakeCopier copier{executor};
  MemoryTier hbm{"hbm0", 64 * kEach};
  MemoryTier ddr{"ddr0", 64 * kEach};
  std::vector<std::uint64_t> ended;
  absl::Status last;
  std::unique_ptr<Mover> mover;
};

using Order = std::vector<std::uint64_t>;

TEST_CASE("moves start by priority and, within one, in the order of Submit") {
  Rig rig;
  rig.Submit(0, Priority::kBackground);  // starts at once
  rig.Submit(1, Priority::kBackground);
  rig.Submit(2, Priority::kMakeRoom);
  rig.Submit(3, Priority::kPrefetch);
  rig.Submit(4, Priority::kPlanned);
  rig.Submit(5, Priority::kDemand);
  rig.Submit(6, Priority::kPrefetch);
  rig.Submit(7, Priority::kDemand);
  REQUIRE(rig.StartOrder() == Order{0, 5, 7, 4, 3, 6, 2, 1});
  REQUIRE(rig.ended == Order{0, 5, 7, 4, 3, 6, 2, 1});
  REQUIRE(rig.mover->idle());
}

TEST_CASE("Raise serves a queued move sooner, never later, and no running or ended one") {
  Rig rig;
  const MoveId running = rig.Submit(0, Priority::kBackground);
  const MoveId first = rig.Submit(1, Priority::kPrefetch);
  rig.Submit(2, Priority::kDemand);
  const MoveId third = rig.Submit(3, Priority::kPrefetch);
  const MoveId fourth = rig.Submit(4, Priority::kPlanned);
  rig.mover->Raise(third, Priority::kDemand);       // after 2: Submit's order holds among equals
  rig.mover->Raise(fourth, Priority::kBackground);  // later: no effect
  rig.mover->Raise(running, Priority::kDemand);
  rig.mover->Raise(9999, Priority::kDemand);
  REQUIRE(rig.StartOrder() == Order{0, 2, 3, 4, 1});
  rig.mover->Raise(first, Priority::kDemand);
  REQUIRE(rig.mover->idle());
}

TEST_CASE("an early move that is raised is served before its new equals that came later") {
  Rig rig;
  rig.Submit(0, Priority::kDemand);
  const MoveId early = rig.Submit(1, Priority::kPrefetch);
  rig.Submit(2, Priority::kDemand);
  rig.mover->Raise(early, Priority::kDemand);
  REQUIRE(rig.StartOrder() == Order{0, 1, 2});
}

TEST_CASE("Cancel of a queued move posts CANCELLED and the copier never sees it") {
  Rig rig;
  rig.Submit(0, Priority::kDemand);
  const MoveId queued = rig.Submit(1, Priority::kDemand);
  rig.Submit(2, Priority::kDemand);
  REQUIRE(rig.In().queued == 2);
  REQUIRE(rig.mover->Cancel(queued));
  REQUIRE(rig.ended.empty());  // not inline
  REQUIRE(rig.In().queued == 1);
  REQUIRE_FALSE(rig.mover->Cancel(queued));
  rig.executor.RunReady();
  REQUIRE(rig.ended == Order{1});
  REQUIRE(rig.last.code() == absl::StatusCode::kCancelled);
  REQUIRE(ReasonOf(rig.last) == Reason::kCancelled);
  REQUIRE(rig.StartOrder() == Order{0, 2});
  REQUIRE(rig.In().failed == 0);
}

TEST_CASE("Cancel of a running, ended or unknown move is refused and changes nothing") {
  Rig rig;
  const MoveId id = rig.Submit(0, Priority::kDemand);
  REQUIRE_FALSE(rig.mover->Cancel(id));
  rig.copier.Complete(0);
  REQUIRE_FALSE(rig.mover->Cancel(id));  // its completion is posted, not run
  rig.executor.RunReady();
  REQUIRE(rig.last.ok());
  REQUIRE_FALSE(rig.mover->Cancel(id));
  REQUIRE_FALSE(rig.mover->Cancel(0));
  REQUIRE(rig.ended == Order{0});
}

TEST_CASE("at most running_max moves of a link are with the copier; links do not share") {
  Rig rig({.queued_max = 8, .running_max = 3});
  for (std::uint64_t n = 0; n < 5; ++n) rig.Submit(n, Priority::kDemand);
  REQUIRE(rig.copier.size() == 3);
  for (std::uint64_t n = 10; n < 15; ++n) rig.Submit(n, Priority::kDemand, /*out=*/true);
  REQUIRE(rig.copier.size() == 6);
  rig.copier.Complete(1);
  REQUIRE(rig.copier.size() == 5);  // the place is free once the executor knows
  rig.executor.RunReady();
  REQUIRE(rig.copier.size() == 6);
  REQUIRE(rig.ended == Order{1});
  REQUIRE(rig.In().running == 3);
  REQUIRE(rig.In().queued == 1);
  rig.StartOrder();
  REQUIRE(rig.ended.size() == 10);
}

TEST_CASE("a link of a file runs more while they are few bytes; links of memory do not") {
  Rig rig(
      {.queued_max = 8, .running_max = 2, .file_running_max = 5, .file_running_bytes = 4 * kEach});
  const hmm::testing::StoreTier flash{"flash0", 64 * kEach};
  const auto submit = [&](std::uint64_t n, Bytes bytes) {
    const tier::Extent extent{.offset = n * kEach, .length = bytes};
    REQUIRE(
        rig.mover
            ->Submit({&rig.ddr, extent, &flash, extent, bytes, {}}, Priority::kDemand, rig.Done(n))
            .ok());
  };
  for (std::uint64_t n = 0; n < 4; ++n) rig.Submit(n, Priority::kDemand);
  REQUIRE(rig.copier.size() == 2);
  rig.StartOrder();

  for (std::uint64_t n = 0; n < 8; ++n) submit(n, kEach / 4);
  REQUIRE(rig.copier.size() == 5);  // by number
  rig.StartOrder();
  for (std::uint64_t n = 0; n < 8; ++n) submit(8 * n, 3 * kEach);
  REQUIRE(rig.copier.size() == 2);  // by bytes, but never fewer than running_max
  rig.copier.Complete(0);
  rig.executor.RunReady();
  REQUIRE(rig.copier.size() == 2);
  rig.StartOrder();
  for (std::uint64_t n = 0; n < 8; ++n) submit(2 * n, 3 * kEach / 2);
  REQUIRE(rig.copier.size() == 3);  // the third passed the bound
  REQUIRE(rig.mover->HasRoom(rig.ddr, flash));
  rig.StartOrder();
  REQUIRE(rig.mover->idle());
}

TEST_CASE("a full queue refuses with a retry delay and drops done unrun") {
  Rig rig({.queued_max = 2, .running_max = 1, .retry_delay = std::chrono::milliseconds(25)});
  REQUIRE(rig.mover->HasRoom(rig.ddr, rig.hbm));
  for (std::uint64_t n = 0; n < 3; ++n) rig.Submit(n, Priority::kDemand);
  REQUIRE_FALSE(rig.mover->HasRoom(rig.ddr, rig.hbm));
  REQUIRE(rig.mover->HasRoom(rig.hbm, rig.ddr));
  auto alive = std::make_shared<int>(0);
  const auto refused = rig.mover->Submit(
      rig.Job(3), Priority::kDemand, [alive](CopyResult) { FAIL("a refused move's done ran"); });
  REQUIRE(refused.status().code() == absl::StatusCode::kUnavailable);
  REQUIRE(ReasonOf(refused.status()) == Reason::kQueueFull);
  REQUIRE(RetryAfter(refused.status()) == std::chrono::milliseconds(25));
  REQUIRE(std::string(refused.status().message()).find("ddr0 -> hbm0") != std::string::npos);
  REQUIRE(alive.use_count() == 1);
  rig.copier.Complete(0);
  rig.executor.RunReady();
  REQUIRE(rig.mover->HasRoom(rig.ddr, rig.hbm));
  rig.Submit(3, Priority::kDemand);
  REQUIRE(rig.StartOrder() == Order{1, 2, 3});
}

TEST_CASE("with no queue at all a free place still takes a move") {
  Rig rig({.queued_max = 0, .running_max = 1});
  rig.Submit(0, Priority::kDemand);
  REQUIRE_FALSE(rig.mover->HasRoom(rig.ddr, rig.hbm));
  REQUIRE_FALSE(rig.mover->Submit(rig.Job(1), Priority::kDemand, rig.Done(1)).ok());
}

TEST_CASE("done runs exactly once, never inside Submit, Raise, Cancel or the copier's end") {
  Rig rig;
  rig.Submit(0, Priority::kDemand);
  const MoveId queued = rig.Submit(1, Priority::kPrefetch);
  rig.mover->Raise(queued, Priority::kDemand);
  rig.mover->Cancel(queued);
  rig.copier.Complete(0);
  REQUIRE(rig.ended.empty());
  rig.executor.RunReady();
  rig.executor.RunReady();
  REQUIRE(rig.ended == Order{1, 0});  // in the order of their ends
}

TEST_CASE("done may submit, cancel and raise") {
  Rig rig;
  const MoveId waiting = [&] {
    rig.Submit(0, Priority::kDemand);
    rig.Submit(1, Priority::kBackground);
    return rig.Submit(2, Priority::kBackground);
  }();
  auto id = rig.mover->Submit(rig.Job(3), Priority::kDemand, [&](CopyResult result) {
    REQUIRE(result.status.ok());
    rig.ended.push_back(3);
    REQUIRE(rig.mover->Cancel(waiting));
    rig.Submit(4, Priority::kDemand);
  });
  REQUIRE(id.ok());
  // 1 takes the place that 3 leaves before 3's done submits 4.
  REQUIRE(rig.StartOrder() == Order{0, 3, 1, 4});
  REQUIRE(rig.ended == Order{0, 3, 2, 1, 4});
}

TEST_CASE("a failed copy reaches done with its status and counts as failed") {
  Rig rig;
  rig.Submit(0, Priority::kDemand);
  rig.Submit(1, Priority::kDemand);
  rig.copier.Fail(0, Error(absl::StatusCode::kDataLoss, Reason::kIo, "the medium failed"));
  rig.executor.RunReady();
  REQUIRE(ReasonOf(rig.last) == Reason::kIo);
  rig.copier.Complete(0);
  rig.executor.RunReady();
  REQUIRE(rig.last.ok());
  REQUIRE(rig.In().moves == 1);
  REQUIRE(rig.In().failed == 1);
  REQUIRE(rig.In().moved_bytes == kEach);
  REQUIRE(rig.In().busy > Duration::zero());
  REQUIRE(rig.In().running == 0);
}

TEST_CASE("a link that never moved anything has zeros for statistics") {
  const Rig rig;
  REQUIRE(rig.mover->stats({&rig.hbm, &rig.hbm}).moves == 0);
  REQUIRE(rig.mover->idle());
}

TEST_CASE("an idle mover may be destroyed from inside a done") {
  Rig rig;
  REQUIRE(rig.mover
              ->Submit(rig.Job(0), Priority::kDemand,
                       [&](CopyResult) {
                         REQUIRE(rig.mover->idle());
                         rig.mover.reset();
                       })
              .ok());
  rig.copier.Complete(0);
  rig.executor.RunReady();
  REQUIRE(rig.mover == nullptr);
}

TEST_CASE("a CANCELLED completion outlives the mover") {
  Rig rig;
  rig.Submit(0, Priority::kDemand);
  REQUIRE(rig.mover->Cancel(rig.Submit(1, Priority::kDemand)));
  rig.copier.Complete(0);
  rig.executor.RunOne();  // 1's CANCELLED
  rig.executor.RunOne();  // 0's end
  REQUIRE(rig.mover->idle());
  rig.Submit(2, Priority::kDemand);
  REQUIRE(rig.mover->Cancel(rig.Submit(3, Priority::kDemand)));
  rig.copier.Complete(0);
  // The mover is busy, yet gone: allowed, as only the cancelled completion is run from here on.
  rig.mover.reset();
  REQUIRE(rig.executor.RunOne());
  REQUIRE(rig.ended == Order{1, 0, 3});
}

TEST_CASE("with an executor that runs nothing more, a busy mover's dones are destroyed unrun") {
  auto alive = std::make_shared<int>(0);
  {
    Rig rig;
    for (std::uint64_t n = 0; n < 3; ++n) {
      REQUIRE(rig.mover
                  ->Submit(rig.Job(n), Priority::kDemand,
                           [alive](CopyResult) { FAIL("ran after the end"); })
                  .ok());
    }
    REQUIRE(alive.use_count() == 4);
    rig.copier.Complete(0);  // posted, never run
    rig.mover.reset();
    REQUIRE(alive.use_count() == 2);  // the one posted; the queued two are gone
  }
  REQUIRE(alive.use_count() == 1);
}

TEST_CASE("names of priorities") {
  REQUIRE(PriorityName(Priority::kDemand) == "demand");
  REQUIRE(PriorityName(Priority::kBackground) == "background");
}

}  // namespace
}  // namespace hmm::copy
