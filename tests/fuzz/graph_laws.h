// SPDX-License-Identifier: Apache-2.0
//
// What holds for every graph that a reader lets through; each function aborts where it does not.
#pragma once

#include "plan/graph.h"
#include "plan/machine.h"
#include "plan/plan.h"

namespace hmm::fuzz {

// Whether it is small enough to be planned thousands of times.
bool IsSmall(const plan::Graph& graph);

// CheckGraph takes it, and what the writers make of it comes back the same. `writable`: the writers
// have to take it.
void HoldGraph(const plan::Graph& graph, bool writable);

// Graphs that are small: plans for budgets from below the floor to the peak are made, proved, come
// back from a file the same, and keep to the budget when they are run.
void HoldPlans(const plan::Graph& graph, const plan::Machine& machine);
// On one of the presets, chosen by the graph.
void HoldPlans(const plan::Graph& graph);

// A plan that Validate proved, run with durations drawn from `seed`: no fault, never over budget.
void HoldProvedPlan(const plan::Graph& graph, const plan::Machine& machine, const plan::Plan& plan,
                    std::uint64_t seed);

}  // namespace hmm::fuzz
