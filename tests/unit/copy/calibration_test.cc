// SPDX-License-Identifier: Apache-2.0
//
// Calibration against a machine whose numbers are known, in a clock that the test moves; and once
// against real memory and a real file.
#include "copy/calibration.h"

#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "copy/memory_copy.h"
#include "copy/routing_copier.h"
#include "copy/worker_copier.h"
#include "support/blocking_executor.h"
#include "support/catch.h"
#include "support/fake_tier.h"
#include "support/manual_executor.h"
#include "support/temp_dir.h"
#include "tier/file_tier.h"
#include "tier/host_tier.h"

namespace hmm::testing {
namespace {

using copy::LinkModel;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// A move waits for `latency`, then for the wire, which carries one after another. Moves that are
// under way at once must not touch the same bytes.
class WireCopier final : public copy::Copier {
 public:
  struct Wire {
    Duration latency = microseconds(100);
    double rate = 1e9;
  };
  WireCopier(Executor& executor, const Clock& clock) : executor_(executor), clock_(clock) {}

  void Submit(const copy::CopyJob& job, copy::CopyDone done) override {
    const auto key = std::make_pair(job.to, job.target.offset);
    HMM_CHECK(targets_.insert(key).second);
    most_ = std::max(most_, targets_.size());
    sizes_.insert(job.bytes);
    std::memcpy(BytesOf(job.to, job.target), BytesOf(job.from, job.source), job.bytes);
    copy::CopyResult result;
    if (job.expected_checksum.has_value() &&
        *job.expected_checksum != copy::Checksum(BytesOf(job.to, job.target), job.bytes)) {
      result.status = Error(absl::StatusCode::kDataLoss, Reason::kChecksum, "other bytes");
    }
    if (++moves_ == fail_at) result.status = absl::InternalError("the drive is gone");
    const Wire& wire = job.from->kind() < job.to->kind() ? down : up;
    TimePoint& free_at = free_at_[half_duplex ? nullptr : job.to];
    free_at = std::max(free_at, clock_.Now() + wire.latency) +
              std::chrono::duration_cast<Duration>(
                  std::chrono::duration<double>(static_cast<double>(job.bytes) / wire.rate));
    executor_.PostAfter(free_at - clock_.Now(),
                        [this, key, done = std::move(done), result = std::move(result)]() mutable {
                          targets_.erase(key);
                          std::move(done)(std::move(result));
                        });
  }

  Wire down;  // to the slower kind
  Wire up;
  bool half_duplex = false;
  std::uint64_t fail_at = 0;
  std::uint64_t moves() const { return moves_; }
  std::size_t most() const { return most_; }
  std::size_t under_way() const { return targets_.size(); }

 private:
  static std::byte* BytesOf(const tier::Tier* tier, const tier::Extent& extent) {
    auto* store = dynamic_cast<ByteStore*>(const_cast<tier::Tier*>(tier));
    HMM_CHECK(store != nullptr);
    return store->BytesAt(extent);
  }

  Executor& executor_;
  const Clock& clock_;
  std::map<const tier::Tier*, TimePoint> free_at_;
  std::set<std::pair<const tier::Tier*, Bytes>> targets_;
  std::set<Bytes> sizes_;
  std::size_t most_ = 0;
  std::uint64_t moves_ = 0;
};

std::unique_ptr<tier::Tier> Fake(const char* name, TierKind kind, Bytes capacity, TierId id) {
  FakeTierOptions options;
  options.tier.name = name;
  options.tier.kind = kind;
  options.tier.capacity = capacity;
  options.tier.high = 0.9;
  options.tier.low = 0.8;
  options.id = id;
  options.mappable = kind != TierKind::kFlash;
  options.unit = 512;
  return std::make_unique<FakeTier>(options);
}

struct World {
  explicit World(Bytes capacity = 64 * kMiB) : executor(clock), copier(executor, clock) {
    tiers.push_back(Fake("hbm0", TierKind::kHbm, capacity, 0));
    tiers.push_back(Fake("ddr0", TierKind::kDdr, capacity, 1));
    tiers.push_back(Fake("flash0", TierKind::kFlash, capacity, 2));
  }
  ~World() { alive.reset(); }

  void Start(std::vector<copy::LinkEnds> links) {
    copy::CalibrationOptions options;
    options.budget = milliseconds(400);
    running = copy::StartCalibration(tiers, std::move(links), copier, executor, clock, options,
                                     alive, [this](std::vector<LinkModel> models) {
                                       CHECK_FALSE(result.has_value());
                                       result = std::move(models);
                                     });
  }
  // Until it has ended, or the time is over.
  void Run(Duration limit = std::chrono::seconds(10)) {
    const TimePoint end = clock.Now() + limit;
    executor.RunReady();
    while (!result.has_value() && clock.Now() < end) executor.Advance(microseconds(5));
  }
  std::vector<LinkModel> Measure(std::vector<copy::LinkEnds> links) {
    Start(std::move(links));
    Run();
    REQUIRE(result.has_value());
    CheckNothingTaken();
    return *result;
  }
  void CheckNothingTaken() {
    for (const auto& tier : tiers) {
      CHECK(tier->ledger().used() == 0);
      CHECK(tier->Validate().ok());
    }
  }

  ManualClock clock;
  ManualExecutor executor;
  WireCopier copier;
  std::vector<std::unique_ptr<tier::Tier>> tiers;
  std::shared_ptr<int> alive = std::make_shared<int>(0);
  std::shared_ptr<copy::Calibration> running;
  std::optional<std::vector<LinkModel>> result;
};

bool Near(double value, double expected, double tolerance = 0.1) {
  UNSCOPED_INFO(value << " for " << expected);
  return value > expected * (1 - tolerance) && value < expected * (1 + tolerance);
}

TEST_CASE("what a link is made of is found: latency, rate, engines, duplex") {
  World world;
  world.copier.down = {microseconds(900), 2e9};
  world.copier.up = {microseconds(100), 1e9};
  const auto models = world.Measure({{1, 2}});
  REQUIRE(models.size() == 2);
  const LinkModel& write = models[0];
  const LinkModel& read = models[1];
  CHECK(write.from == 1);
  CHECK(write.to == 2);
  CHECK(read.from == 2);
  CHECK(read.to == 1);
  CHECK(copy::Plausible(write));
  CHECK(copy::Plausible(read));
  CHECK(Near(std::chrono::duration<double>(write.latency).count(), 902e-6));
  CHECK(Near(std::chrono::duration<double>(read.latency).count(), 104e-6));
  // A block of 256 KiB takes 131 us of the wire after 900 without it, and 262 after 100.
  CHECK(write.engines == 8);
  CHECK(read.engines == 2);
  REQUIRE(write.curve.size() == 4);
  // A run of 6 ms, of which the first 0.9 found the wire idle.
  CHECK(Near(write.curve[2].bytes_per_second, 2e9, 0.2));
  CHECK(Near(read.curve[2].bytes_per_second, 1e9, 0.2));
  // Two of 64 KiB in 100 us and twice 66 on the wire: two a 166 us at best.
  CHECK(Near(read.curve[0].bytes_per_second, 2 * 65536 / 166e-6, 0.2));
  CHECK(write.duplex_factor > 0.9);
  CHECK(read.duplex_factor > 0.9);
}

TEST_CASE("directions that share a wire have half of it each") {
  World world;
  world.copier.half_duplex = true;
  const auto models = world.Measure({{0, 1}});
  CHECK(Near(models[0].duplex_factor, 0.5, 0.15));
  CHECK(Near(models[1].duplex_factor, 0.5, 0.15));
}

TEST_CASE("several links: each direction once, in time, never deeper than told") {
  World world;
  const TimePoint start = world.clock.Now();
  const auto models = world.Measure({{0, 1}, {1, 2}});
  REQUIRE(models.size() == 4);
  for (const LinkModel& model : models) CHECK(model.measured());
  CHECK(world.clock.Now() - start < milliseconds(1000));
  CHECK(world.copier.most() <= 64);  // 32 each way
  CHECK(models[0].contention_group != models[2].contention_group);
  CHECK(models[0].contention_group == models[1].contention_group);
}

TEST_CASE("a full tier is left alone, and its link says so") {
  World world;
  auto taken = world.tiers[1]->Allocate(7, 60 * kMiB, tier::ByteState::kReserved);
  REQUIRE(taken.ok());
  world.Start({{0, 1}});
  world.Run();
  REQUIRE(world.result.has_value());
  CHECK(world.copier.moves() == 0);
  CHECK_FALSE((*world.result)[0].measured());
  CHECK((*world.result)[0].note == "not measured: no room for scratch in ddr0");
  CHECK(copy::Plausible((*world.result)[0]));
  CHECK(world.tiers[1]->ledger().used() == taken->length);
}

TEST_CASE("scratch stays below the high mark and out of the reserve") {
  World world;
  world.tiers[1]->mutable_options().reserve = 32 * kMiB;
  auto taken = world.tiers[1]->Allocate(7, 31 * kMiB, tier::ByteState::kReserved);
  REQUIRE(taken.ok());
  world.Start({{0, 1}});
  // 1 MiB is left above the reserve; a quarter of it at most is taken.
  Bytes most = 0;
  for (int i = 0; i < 100'000 && !world.result.has_value(); ++i) {
    world.executor.Advance(microseconds(5));
    most = std::max(most, world.tiers[1]->ledger().used() - taken->length);
  }
  REQUIRE(world.result.has_value());
  CHECK(most == 256 * kKiB);
  CHECK((*world.result)[0].curve.size() == 1);
}

TEST_CASE("a move that fails ends its link and no other") {
  World world;
  world.copier.fail_at = 9;
  const auto models = world.Measure({{0, 1}, {1, 2}});
  CHECK(models[0].note == "not measured: a move failed: the drive is gone");
  CHECK(models[2].measured());
  CHECK(models[3].measured());
}

TEST_CASE("a link too slow for the budget ends in bounded time and says so") {
  World world;
  world.copier.down.rate = world.copier.up.rate = 4e6;
  const TimePoint start = world.clock.Now();
  const auto models = world.Measure({{0, 1}, {1, 2}});
  // Four times the budget, and the moves that had begun: four of 1 MiB.
  CHECK(world.clock.Now() - start < milliseconds(1600 + 1100));
  CHECK(models[2].note == "not measured: the time was over");
}

TEST_CASE("stopped half-way: no word of it, and scratch is free once the moves have ended") {
  World world;
  world.Start({{0, 1}});
  world.Run(milliseconds(50));
  REQUIRE(world.copier.under_way() > 0);
  world.running->Stop();
  CHECK(world.tiers[0]->ledger().used() > 0);  // the copier still has it
  world.executor.Advance(milliseconds(20));
  world.executor.Advance(milliseconds(20));
  CHECK(world.copier.under_way() == 0);
  CHECK_FALSE(world.result.has_value());
  world.CheckNothingTaken();
  CHECK(world.running.use_count() == 1);  // nothing on the executor holds it
}

TEST_CASE("completions after the tiers are gone touch nothing") {
  World world;
  world.Start({{0, 1}});
  world.Run(milliseconds(50));
  REQUIRE(world.copier.under_way() > 0);
  world.alive.reset();
  world.tiers.clear();
  world.executor.Advance(milliseconds(50));  // the sanitizer looks
  CHECK_FALSE(world.result.has_value());
}

TEST_CASE("real memory and a real file") {
  const TempDir dir;
  std::vector<std::unique_ptr<tier::Tier>> tiers;
  for (const char* name : {"hbm0", "ddr0"}) {
    tier::HostTierOptions options;
    options.tier.name = name;
    options.tier.capacity = 16 * kMiB;
    options.id = static_cast<TierId>(tiers.size());
    options.commit_chunk = 64 * kKiB;
    options.pages = tier::PageMode::kSmall;
    auto host = tier::CreateHostTier(std::move(options));
    REQUIRE(host.ok());
    tiers.push_back(*std::move(host));
  }
  tier::FileTierOptions file;
  file.tier.name = "flash0";
  file.tier.kind = TierKind::kFlash;
  file.tier.capacity = 16 * kMiB;
  file.id = 2;
  file.path = dir.File("flash");
  auto flash = tier::CreateFileTier(std::move(file));
  REQUIRE(flash.ok());
  tiers.push_back(*std::move(flash));

  BlockingExecutor executor;
  const SteadyClock clock;
  auto copier = copy::CreateWorkerCopier(executor, {});
  copy::CalibrationOptions options;
  options.budget = milliseconds(60);
  const auto alive = std::make_shared<int>(0);
  std::optional<std::vector<LinkModel>> result;
  const auto running =
      copy::StartCalibration(tiers, {{0, 1}, {1, 2}}, *copier, executor, clock, options, alive,
                             [&](std::vector<LinkModel> models) { result = std::move(models); });
  while (!result.has_value()) executor.RunOne();
  REQUIRE(result->size() == 4);
  for (const LinkModel& model : *result) {
    CHECK(copy::Plausible(model));
    // On a busy machine a link may come too late, and then says so.
    if (!model.measured()) CHECK(model.note == "not measured: the time was over");
  }
  for (const auto& tier : tiers) {
    CHECK(tier->ledger().used() == 0);
    CHECK(tier->Validate().ok());
  }
}

TEST_CASE("a model's times: latency and the rate between the points") {
  LinkModel model;
  model.latency = microseconds(10);
  model.contention_group = 1;
  model.curve = {{64 * kKiB, 1e9}, {kMiB, 3e9}};
  CHECK(RateAt(model, 1) == 1e9);
  CHECK(RateAt(model, 64 * kKiB) == 1e9);
  CHECK(RateAt(model, 256 * kKiB) == 2e9);
  CHECK(RateAt(model, kGiB) == 3e9);
  CHECK(TimeOf(model, 3'000'000'000) == std::chrono::seconds(1) + microseconds(10));
  CHECK(Plausible(model));
  for (const auto& spoil : std::vector<void (*)(LinkModel&)>{
           [](LinkModel& m) { m.curve[1].bytes = m.curve[0].bytes; },
           [](LinkModel& m) { m.curve[0].bytes_per_second = 0; },
           [](LinkModel& m) {
             m.curve[0].bytes_per_second = std::numeric_limits<double>::quiet_NaN();
           },
           [](LinkModel& m) { m.duplex_factor = 0; }, [](LinkModel& m) { m.duplex_factor = 1.5; },
           [](LinkModel& m) { m.engines = 0; }, [](LinkModel& m) { m.latency = Duration(-1); },
           [](LinkModel& m) { m.latency = std::chrono::hours(1); },
           [](LinkModel& m) { m.contention_group = 0; }, [](LinkModel& m) { m.curve.clear(); }}) {
    LinkModel spoilt = model;
    spoil(spoilt);
    CHECK_FALSE(Plausible(spoilt));
  }
}

}  // namespace
}  // namespace hmm::testing
