// SPDX-License-Identifier: Apache-2.0
//
// Tells whether two graphs take the same plans. Pure.
#pragma once

#include <cstdint>

#include "plan/graph.h"

namespace hmm::graph {

// XXH3 (64 bits) of everything a plan's safety and its binding to real tensors rest on: ops and
// storages with their names, sizes, kinds, flags, dependencies, groups and streams. Durations and
// FLOPs do not count (a plan stays safe whatever they are), nor do the graph's own name, the ops'
// types and the unknown tensors.
std::uint64_t Fingerprint(const plan::Graph& graph);

}  // namespace hmm::graph
