// SPDX-License-Identifier: Apache-2.0
//
// A plan run with its predicted durations: who is busy when, and what lies in HBM. What the report
// (plan_report.h) draws and the trace (plan_trace.h) writes. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/graph.h"
#include "plan/machine.h"
#include "plan/plan.h"
#include "plan/simulate.h"

namespace hmm::ctl {

struct TimelineSpan {
  double start_us = 0;
  double end_us = 0;
  bool is_move = false;
  std::uint32_t index = 0;  // into Graph::ops or Plan::moves
};

// One compute stream or one direction of a link: its spans ascend and do not overlap.
struct TimelineRow {
  std::string name;  // "compute", "compute 1", "HBM to DDR"
  bool is_link = false;
  std::vector<TimelineSpan> spans;
};

struct PlanTimeline {
  std::vector<TimelineRow> rows;       // streams, then links; those that have something to do
  std::vector<plan::MemoryPoint> hbm;  // empty where there is no plan
  double step_us = 0;
};

// An infeasible plan has no rows. REQUIRES: `plan` is a plan of `graph`.
PlanTimeline TimelineOf(const plan::Graph& graph, const plan::Machine& machine,
                        const plan::Plan& plan);

}  // namespace hmm::ctl
