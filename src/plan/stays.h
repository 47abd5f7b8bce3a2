// SPDX-License-Identifier: Apache-2.0
//
// What lies in HBM, when, read off a plan's sequence: each stay of a storage, of workspace and of
// fetched group members, the task that begins it and the tasks after whose end it goes. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/graph.h"
#include "plan/plan.h"

namespace hmm::plan {

struct Stay {
  StorageIndex storage = kNone;  // kNone: workspace or fetched members of the op at `begin`
  Bytes bytes = 0;
  TaskIndex begin = kNone;  // takes the bytes when it starts; kNone: there at the start of the step
  bool kept = false;        // still there at the end of the step
  std::uint32_t task_begin = 0;  // its uses and its SwapOut: Stays::tasks, ascending
  std::uint32_t task_end = 0;
};
struct Stays {
  std::vector<Stay> stays;
  std::vector<TaskIndex> tasks;
  std::vector<TaskIndex> absent_uses;  // ops that touch what no stay holds
};
Stays FindStays(const Graph& graph, const Plan& plan);

// A stay on the line of the sequence, half open: every task at or after `end` that takes HBM is
// sure to start after the bytes have gone, whatever the durations. Two stays whose intervals do not
// overlap may share an address.
struct HbmInterval {
  StorageIndex storage = kNone;
  Bytes bytes = 0;
  TaskIndex begin = 0;
  TaskIndex end = 0;
  bool at_start = false;  // there when the step starts
  bool kept = false;      // there when the step ends
};
std::vector<HbmInterval> HbmIntervals(const Graph& graph, const Plan& plan);

}  // namespace hmm::plan
