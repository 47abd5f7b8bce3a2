// SPDX-License-Identifier: Apache-2.0
// Histogram, tallies and their way over a pipe.
#include <algorithm>
#include <random>
#include <vector>

#include "base/status.h"
#include "client/ctl/histogram.h"
#include "client/ctl/replay_report.h"
#include "client/ctl/replay_traffic.h"
#include "client/ctl/worker_processes.h"
#include "support/catch.h"

namespace hmm::ctl {
namespace {

TEST_CASE("percentiles are right to a bucket") {
  Histogram histogram;
  CHECK(histogram.Percentile(0.5) == 0);
  histogram.Add(7);
  CHECK(histogram.Percentile(0.5) == 7);
  CHECK(histogram.Percentile(0.99) == 7);

  std::mt19937_64 random(1);
  Histogram many;
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t value = random() >> (random() % 60);
    values.push_back(value);
    many.Add(value);
  }
  std::sort(values.begin(), values.end());
  for (const double p : {0.01, 0.5, 0.9, 0.99, 1.0}) {
    INFO(p);
    const double exact = static_cast<double>(values[static_cast<std::size_t>(p * 10'000) - 1]);
    const double got = static_cast<double>(many.Percentile(p));
    CHECK(got >= exact);
    CHECK(got <= exact * 1.0626 + 1);
  }
  many.Add(~std::uint64_t{0});
  CHECK(many.Percentile(1.0) == ~std::uint64_t{0});
}

ReplayTally SomeTally(std::uint64_t n) {
  ReplayTally tally;
  tally.requests = n;
  tally.accesses = 10 * n;
  tally.hits = {n, 2 * n, 3 * n};
  tally.misses = 4 * n;
  tally.stored = 2 * n;
  tally.present = n;
  tally.unstored = n;
  tally.verified_bytes = 6 * n * 4096;
  tally.wrong_bytes = n;
  tally.hit_us.Add(100 * n);
  tally.miss_us.Add(1000 * n);
  tally.AddError("broken \xFF " + std::to_string(n));
  return tally;
}

TEST_CASE("tallies merge by adding") {
  ReplayTally all = SomeTally(1);
  ReplayTally other = SomeTally(2);
  other.interrupted = true;
  all.Merge(other);
  CHECK(all.requests == 3);
  CHECK(all.accesses == 30);
  CHECK(all.hits == std::array<std::uint64_t, 3>{3, 6, 9});
  CHECK(all.TotalHits() == 18);
  CHECK(all.misses == 12);
  CHECK(all.stored == 6);
  CHECK(all.present == 3);
  CHECK(all.unstored == 3);
  CHECK(all.verified_bytes == 18 * 4096);
  CHECK(all.wrong_bytes == 3);
  CHECK(all.errors == 2);
  CHECK(all.interrupted);
  CHECK(all.hit_us.count() == 2);
  CHECK(all.messages.size() == 2);
}

TEST_CASE("messages are bounded, the count is not") {
  ReplayTally tally;
  for (int i = 0; i < 100; ++i) tally.AddError("x");
  CHECK(tally.errors == 100);
  CHECK(tally.messages.size() == ReplayTally::kMessagesMax);
}

TEST_CASE("a tally comes through a pipe whole") {
  const ReplayTally tally = SomeTally(7);
  const std::string text = TallyToJson(tally);
  CHECK(text.find('\n') == std::string::npos);
  const absl::StatusOr<ReplayTally> got = TallyFromJson(text);
  REQUIRE(got.ok());
  CHECK(TallyToJson(*got) == text);
  CHECK(got->hits == tally.hits);
  CHECK(got->hit_us.Percentile(0.5) == tally.hit_us.Percentile(0.5));
  for (const char* bad : {"", "{}", "[]", "{\"requests\": \"x\"}", "done"}) {
    CHECK(ReasonOf(TallyFromJson(bad).status()) == Reason::kProtocol);
  }
}

TEST_CASE("a worker's setup comes through a pipe whole") {
  WorkerSetup setup;
  setup.tier = "hbm0";
  setup.window_bytes = 12345;
  setup.tier_kinds = {{"hbm0", TierKind::kHbm}, {"odd \"name\"", TierKind::kFlash}};
  const absl::StatusOr<WorkerSetup> got = SetupFromJson(SetupToJson(setup));
  REQUIRE(got.ok());
  CHECK(got->tier == "hbm0");
  CHECK(got->window_bytes == 12345);
  CHECK(got->tier_kinds == setup.tier_kinds);
  CHECK_FALSE(SetupFromJson("{}").ok());
}

void AddTier(v1::GetStatusResponse* status, const std::string& name, v1::TierKind kind,
             std::uint64_t capacity) {
  v1::TierInfo* tier = status->add_tiers();
  tier->set_name(name);
  tier->set_kind(kind);
  tier->set_capacity_bytes(capacity);
  tier->set_emulated(kind == v1::TIER_KIND_HBM);
}

void AddLink(v1::GetStatusResponse* status, const std::string& from, const std::string& to,
             std::uint64_t bytes) {
  v1::LinkInfo* link = status->add_links();
  link->set_from(from);
  link->set_to(to);
  link->set_moved_bytes(bytes);
}

v1::GetStatusResponse SomeStatus(std::uint64_t epoch, std::uint64_t bytes) {
  v1::GetStatusResponse status;
  status.set_epoch(epoch);
  AddTier(&status, "a", v1::TIER_KIND_HBM, 64 * kMiB);
  AddTier(&status, "b", v1::TIER_KIND_HBM, 64 * kMiB);
  AddTier(&status, "c", v1::TIER_KIND_DDR, 256 * kMiB);
  AddTier(&status, "d", v1::TIER_KIND_FLASH, 1024 * kMiB);
  AddLink(&status, "a", "c", bytes);
  AddLink(&status, "b", "c", 10 * bytes);
  AddLink(&status, "c", "a", 2 * bytes);
  AddLink(&status, "c", "d", 3 * bytes);
  AddLink(&status, "d", "c", 4 * bytes);
  status.mutable_counters()->set_evictions(bytes / 2);
  return status;
}

TEST_CASE("traffic is the rise of the links' counters, summed by kind") {
  const ReplayTraffic traffic = TrafficBetween(SomeStatus(1, 100), SomeStatus(1, 300));
  CHECK(traffic.hbm_to_ddr == 200 + 2000);
  CHECK(traffic.ddr_to_hbm == 400);
  CHECK(traffic.ddr_to_flash == 600);
  CHECK(traffic.flash_to_ddr == 800);
  CHECK(traffic.evictions == 100);
  const ReplayTraffic restarted = TrafficBetween(SomeStatus(1, 300), SomeStatus(2, 100));
  CHECK(restarted.ddr_to_hbm == 200);
  CHECK(restarted.evictions == 50);
}

TEST_CASE("the run's tier and window come from the daemon unless asked for") {
  ReplayArgs args;
  WorkerSetup setup = MakeSetup(args, SomeStatus(1, 0));
  CHECK(setup.tier == "a");
  CHECK(setup.window_bytes == 16 * kMiB);
  CHECK(setup.tier_kinds.at("d") == TierKind::kFlash);
  args.threads = 2;
  args.processes = 4;
  CHECK(MakeSetup(args, SomeStatus(1, 0)).window_bytes == 2 * kMiB);
  args.block_bytes = 4 * kMiB;
  CHECK(MakeSetup(args, SomeStatus(1, 0)).window_bytes == 4 * kMiB);
  args.tier = "c";
  args.window_bytes = 5 * kMiB;
  setup = MakeSetup(args, std::nullopt);
  CHECK(setup.tier == "c");
  CHECK(setup.window_bytes == 5 * kMiB);
  CHECK(MakeSetup(ReplayArgs(), v1::GetStatusResponse()).tier.empty());
}

}  // namespace
}  // namespace hmm::ctl
