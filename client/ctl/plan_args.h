// SPDX-License-Identifier: Apache-2.0
//
// The command lines of `hmmctl plan` and `hmmctl graph` as plain values. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace hmm::ctl {

// "24GiB", or "74%" of the graph's unplanned peak.
struct Budget {
  Bytes bytes = 0;           // > 0, unless it is a share
  std::uint64_t micros = 0;  // > 0: millionths of the unplanned peak
};

// What a graph is read from.
struct GraphArgs {
  std::string graph;                         // a file, or a preset's word
  std::map<std::string, std::int64_t> dims;  // symbolic dimensions of an ONNX file
  bool plain = false;                        // ONNX: published planners' accounting
  bool without_data = false;  // sizes by shapes where the weights' own file is missing
};

struct PlanArgs {
  GraphArgs input;
  std::optional<Budget> hbm;        // empty: what the machine has
  std::string machine;              // preset, file or "this"; empty: kDefaultMachine
  std::string profile;              // empty: durations of the graph, else of the roofline
  std::string planner;              // empty: ours
  std::uint64_t steps = 0;          // effort; 0: the planner's or the layout's own bound
  std::string out;                  // plan: where the plan goes; layout: where the offsets go
  std::string out_format;           // graph: "pb", "onnx", "mindir"; empty: by the name of `out`
  std::string emit_graph;           // plan: where the graph with the plan's moves goes
  bool compare = false;             // every planner
  bool sweep = false;               // many budgets
  std::vector<Budget> points;       // of the sweep; empty: from the floor to the unplanned peak
  std::optional<double> stall_max;  // of the sweep: find the smallest budget that keeps to it
  std::string svg;                  // of the sweep; empty: none
  std::string report;               // plan: a page to look at; empty: none
  std::string trace;                // plan: a trace for Perfetto; empty: none
  std::string tensor;               // explain: which
  std::string plan;                 // check, diff: a file; explain: instead of planning anew
  std::string other;                // diff: the second file
  std::string csv;                  // layout
  Bytes capacity = 0;               // layout
};

inline constexpr const char* kDefaultMachine = "ascend-supernode";

}  // namespace hmm::ctl
