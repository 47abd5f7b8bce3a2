// SPDX-License-Identifier: Apache-2.0
//
// Runs a plan with given durations: compute streams and one queue per link direction, each task
// starting when the one before it on its channel and all it waits for have ended. Looks at nothing
// but the plan's sequence and waits, so a plan that breaks a rule is seen to break it. Pure.
#pragma once

#include <string>
#include <vector>

#include "plan/graph.h"
#include "plan/machine.h"
#include "plan/plan.h"

namespace hmm::plan {

// What each task takes when nothing contends, by place in the sequence.
std::vector<double> PredictedUs(const Graph& graph, const Machine& machine, const Plan& plan);

struct MemoryPoint {
  double at_us = 0;
  Bytes bytes = 0;  // from then on
};

struct Simulation {
  double step_us = 0;
  Bytes peak_bytes = 0;             // HBM, as it happened
  std::vector<MemoryPoint> memory;  // HBM, from the start of the step; ascending, one a moment
  std::vector<double> start;        // by task
  std::vector<double> end;
  std::vector<std::string> faults;  // a use before its SwapIn ended, a copy of what is not there, a
                                    // task that never starts; at most 16 of them
};
// While links of one contention group are busy together each runs at its duplex factor.
// REQUIRES: task_us.size() == plan.sequence.size(), all >= 0.
Simulation Simulate(const Graph& graph, const Machine& machine, const Plan& plan,
                    const std::vector<double>& task_us);

// The step time alone: quicker.
double StepUs(const Graph& graph, const Machine& machine, const Plan& plan,
              const std::vector<double>& task_us);

}  // namespace hmm::plan
