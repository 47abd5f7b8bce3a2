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
#include <random>

#include "hmm/tensor.h"
#include "support/catch.h"
#include "support/sim_world.h"

namespace hmm::testing {
namespace {

constexpr std::uint64_t kStepsPerWorld = 4000;
constexpr std::uint64_t kWorlds = 150;

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
  if (seed % 2 == 0) options.fault_rate = options.corrupt_rate = 0;
  return options;
}

void RunWorld(std::uint64_t seed, core::TransitionCounts& sum) {
  current_seed = seed;
  SimWorld world(OptionsFor(seed));
  for (current_step = 0; current_step < kStepsPerWorld; ++current_step) world.Step();
  world.Settle();
  world.Empty();
  REQUIRE(world.verified() > 0);
  for (std::size_t from = 0; from < kTensorStates; ++from) {
    for (std::size_t to = 0; to < kTensorStates; ++to)
      sum[from][to] += world.transitions()[from][to];
  }
}

TEST_CASE("the core keeps its promises in every random world", "[simulation]") {
  SimWorld::fail = FailWorld;
  std::signal(SIGABRT, OnAbort);
  core::TransitionCounts sum{};
  if (const char* only = std::getenv("SIM_SEED")) {
    RunWorld(std::strtoull(only, nullptr, 10), sum);
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

  for (const core::AllowedTransition& t : core::kTransitions) {
    const std::uint64_t taken =
        sum[static_cast<std::size_t>(t.from)][static_cast<std::size_t>(t.to)];
    std::printf("  %-9s -> %-9s %8llu\n", std::string(TensorStateName(t.from)).c_str(),
                std::string(TensorStateName(t.to)).c_str(), static_cast<unsigned long long>(taken));
    CHECK(taken >= 100);
  }
}

}  // namespace
}  // namespace hmm::testing
