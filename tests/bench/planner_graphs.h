// SPDX-License-Identifier: Apache-2.0
//
// The graphs that the planner's table has a row for.
#pragma once

#include <string>
#include <vector>

#include "plan/graph.h"
#include "plan/machine.h"

namespace hmm::bench {

struct BenchGraph {
  std::string name;
  plan::Graph graph;
  bool real = true;  // of a model; else made up
};

// Durations are given, or follow from the machine's roofline.
std::vector<BenchGraph> BenchGraphs(const plan::Machine& machine);

}  // namespace hmm::bench
