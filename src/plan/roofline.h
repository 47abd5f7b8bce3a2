// SPDX-License-Identifier: Apache-2.0
//
// Op durations where no profile gives them: max(flops / peak, bytes / HBM bandwidth) + launch.
// Pure.
#pragma once

#include "plan/graph.h"
#include "plan/machine.h"

namespace hmm::plan {

// Bytes an op moves through HBM: what it reads (k of a group's members, at their mean size) and
// writes.
double OpTrafficBytes(const Graph& graph, const Op& op);

double RooflineUs(const Graph& graph, const Op& op, const Machine& machine);

// Gives every op whose duration is 0 that of the roofline. Returns how many it gave.
std::size_t FillDurations(Graph& graph, const Machine& machine);

}  // namespace hmm::plan
