// SPDX-License-Identifier: Apache-2.0
//
// Deterministic simulation of the whole core against a simple model: >= 100,000 random steps a run,
// every invariant after each. A failure prints the seed; SIM_SEED=<n> replays exactly that world.
// Seeds that ever failed stand in seeds.txt and run first.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <string>

#include "hmm/tensor.h"
#include "support/catch.h"
#include "support/sim_world.h"

namespace hmm::testing {
namespace {

constexpr std::uint64_t kStepsPerWorld = 4000;
constexpr std::uint64_t kWorlds = 150;
constexpr std::uint64_t kRegionWorlds = 150;

std::uint64_t current_seed = 0;
std::uint64_t current_step = 0;

// A failed HMM_CHECK aborts: say which world it was.
extern "C" void OnAbort(int) {
  char line[128];
  const int n = std::snprintf(line, sizeof line, "\nsimulation: SIM_SEED=%llu, step %llu\n",
                              static_cast<unsigned long long>(current_seed),
                              static_cast<unsigned long long>(current_step));
  (void)!write(2, line, static_cast<std::size_t>(n));
}

void FailWorld(const SimWorld& world, const std::string& what) {
  std::fprintf(stderr, "simulation: SIM_SEED=%llu broke at step %llu (%s): %s\n",
               static_cast<unsigned long long>(current_seed),
               static_cast<unsigned long long>(world.steps()), world.last_action().c_str(),
               what.c_str());
  FAIL(what);
  std::abort();  // FAIL does not return
}

SimOptions OptionsFor(std::uint64_t seed) {
  SimOptions options;
  options.seed = seed;
  options.tenants = 1 + seed % 3;
  options.clients_max = 2 + seed % 6;
  if (seed % 4 == 1) options.flash = 16 * kKiB;  // the bottom is tight: drops and refusals
  if (seed % 4 == 2) {
    options.hbm = 48 * kKiB;
    options.ddr = 64 * kKiB;
    options.tensor_max = 8 * kKiB;
  }
  options.many = seed % 5 == 4;
  if (seed % 2 == 0) options.fault_rate = options.corrupt_rate = 0;
  return options;
}

struct Steered {
  std::uint64_t resized = 0;
  std::uint64_t compacted = 0;
};
// Over all worlds.
std::uint64_t taken = 0;                        // out of magazines
std::uint64_t taken_back = 0;                   // and those that the daemon took back
std::uint64_t had_again = 0;                    // when all had gone
std::map<std::string, std::uint64_t> verdicts;  // of jobs
FenceCounts fences;
Steered steered;

// Returns the Loads whose bytes were found right.
std::uint64_t RunWorld(std::uint64_t seed, core::TransitionCounts& sum, bool regions = false) {
  current_seed = seed;
  SimOptions options = OptionsFor(seed);
  options.regions = regions;
  SimWorld world(options);
  for (current_step = 0; current_step < kStepsPerWorld; ++current_step) world.Step();
  world.Settle();
  world.Empty();
  REQUIRE(world.verified() > 0);
  steered.resized += world.resized();
  steered.compacted += world.compacted();
  taken += world.taken();
  had_again += world.had_again();
  taken_back += world.counters().ahead_taken_back;
  for (std::size_t from = 0; from < kTensorStates; ++from) {
    for (std::size_t to = 0; to < kTensorStates; ++to)
      sum[from][to] += world.transitions()[from][to];
  }
  for (const auto& [verdict, count] : world.verdicts()) verdicts[verdict] += count;
  fences.by_client += world.fences().by_client;
  fences.by_daemon += world.fences().by_daemon;
  return world.round_trips();
}

// SIM_SEED replays a world of this test with SIM_REGIONS=1.
TEST_CASE("regions, jobs and fences keep their promises in every random world", "[simulation]") {
  SimWorld::fail = FailWorld;
  std::signal(SIGABRT, OnAbort);
  core::TransitionCounts sum{};
  if (const char* only = std::getenv("SIM_SEED")) {
    if (std::getenv("SIM_REGIONS") != nullptr)
      RunWorld(std::strtoull(only, nullptr, 10), sum, true);
    return;
  }
  const char* base = std::getenv("TEST_SEED");
  std::uint64_t first = base == nullptr ? 1 : std::strtoull(base, nullptr, 10);
  if (first == 0) first = std::random_device{}();
  std::printf("simulation of regions: TEST_SEED=%llu\n", static_cast<unsigned long long>(first));
  std::uint64_t round_trips = 0;
  for (std::uint64_t i = 0; i < kRegionWorlds; ++i) {
    round_trips += RunWorld(first * 1000 + i, sum, true);
  }
  std::printf("  Loads verified: %llu\n", static_cast<unsigned long long>(round_trips));
  for (const auto& [verdict, count] : verdicts) {
    std::printf("  %-22s %8llu\n", verdict.c_str(), static_cast<unsigned long long>(count));
  }
  std::printf("  fences ended by clients %llu, by the daemon %llu\n",
              static_cast<unsigned long long>(fences.by_client),
              static_cast<unsigned long long>(fences.by_daemon));
  CHECK(round_trips >= 1000);
  CHECK(fences.by_client >= 500);
  CHECK(fences.by_daemon >= 500);
}

TEST_CASE("the core keeps its promises in every random world", "[simulation]") {
  SimWorld::fail = FailWorld;
  std::signal(SIGABRT, OnAbort);
  core::TransitionCounts sum{};
  if (const char* only = std::getenv("SIM_SEED")) {
    if (std::getenv("SIM_REGIONS") == nullptr) RunWorld(std::strtoull(only, nullptr, 10), sum);
    return;
  }
  std::ifstream seeds(HMM_SEEDS_FILE);
  REQUIRE(seeds.good());
  for (std::uint64_t seed = 0; seeds >> seed;) RunWorld(seed, sum);

  const char* base = std::getenv("TEST_SEED");
  std::uint64_t first = base == nullptr ? 1 : std::strtoull(base, nullptr, 10);
  if (first == 0) first = std::random_device{}();
  std::printf("simulation: TEST_SEED=%llu\n", static_cast<unsigned long long>(first));
  for (std::uint64_t i = 0; i < kWorlds; ++i) RunWorld(first * 1000 + i, sum);

  std::printf("  ahead: %llu taken, %llu taken back\n", static_cast<unsigned long long>(taken),
              static_cast<unsigned long long>(taken_back));
  std::printf("  had again at the end: %llu\n", static_cast<unsigned long long>(had_again));
  CHECK(had_again >= 1000);
  CHECK(taken >= 1000);
  CHECK(taken_back >= 1000);
  for (const core::AllowedTransition& t : core::kTransitions) {
    const std::uint64_t count =
        sum[static_cast<std::size_t>(t.from)][static_cast<std::size_t>(t.to)];
    std::printf("  %-9s -> %-9s %8llu\n", std::string(TensorStateName(t.from)).c_str(),
                std::string(TensorStateName(t.to)).c_str(), static_cast<unsigned long long>(count));
    CHECK(count >= 100);
  }
  std::printf("  tiers resized %llu, tensors moved by compaction %llu\n",
              static_cast<unsigned long long>(steered.resized),
              static_cast<unsigned long long>(steered.compacted));
  CHECK(steered.resized >= 100);
  CHECK(steered.compacted >= 100);
}

}  // namespace
}  // namespace hmm::testing
