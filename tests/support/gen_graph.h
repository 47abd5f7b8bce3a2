// SPDX-License-Identifier: Apache-2.0
//
// Random graphs, machines and budgets for the planner's tests; a function of the seed.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "plan/graph.h"
#include "plan/machine.h"

namespace hmm::testing {

// Sanitizers, many times slower, look at one case in so many: the code is the same.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kOneIn = 10;
#else
inline constexpr int kOneIn = 1;
#endif

struct GenOptions {
  std::uint32_t ops_min = 2;
  std::uint32_t ops_max = 24;
  bool streams = true;    // now and then two or three compute streams
  bool groups = true;     // now and then data-dependent reads
  bool flash = true;      // now and then a DDR too small without flash
  bool recompute = true;  // now and then storages that can be made anew
  bool zeros = true;      // now and then ops that take no time
};

struct GenCase {
  plan::Graph graph;
  plan::Machine machine;
  Bytes budget = 0;
};

class GraphGenerator {
 public:
  explicit GraphGenerator(std::uint64_t seed) : rng_(seed) {}

  // A third of the budgets lie within 10% above the floor, the others anywhere between floor and
  // unplanned peak, a few outside.
  GenCase Next(const GenOptions& options = {});

  std::uint64_t Pick(std::uint64_t n) { return n == 0 ? 0 : rng_() % n; }  // [0, n)
  double Unit() { return static_cast<double>(rng_() >> 11) * 0x1p-53; }    // [0, 1)
  bool Chance(double p) { return Unit() < p; }

 private:
  plan::Graph NextGraph(const GenOptions& options);
  plan::Machine NextMachine(const plan::Graph& graph, const GenOptions& options);
  void AddOp(plan::Graph& graph, const GenOptions& options, plan::OpIndex index,
             std::uint32_t streams);
  plan::StorageIndex AddStorage(plan::Graph& graph);

  std::mt19937_64 rng_;
  std::vector<plan::StorageIndex> live_;  // may be read by the next op
};

// A large graph in a regular shape, for limits of time and space: layers of a training step with
// weights, activations kept for the way back, and states.
plan::Graph LayeredGraph(std::uint32_t ops);

// The same graph with its storages listed in another order.
plan::Graph PermuteStorages(const plan::Graph& graph, std::mt19937_64& rng);

}  // namespace hmm::testing
