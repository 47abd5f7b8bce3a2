// SPDX-License-Identifier: Apache-2.0
//
// What a graph amounts to, told without planning it. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "client/ctl/printer.h"
#include "graph/generate.h"
#include "plan/graph.h"

namespace hmm::ctl {

struct GraphSummary {
  struct Kind {
    std::size_t storages = 0;
    Bytes bytes = 0;
  };
  std::array<Kind, 5> kinds;  // by TensorKind - 1
  Kind persistent;            // of all kinds
  Kind all;
  double flops = 0;
  std::size_t timed_ops = 0;  // with a duration of their own
  Bytes unplanned_peak_bytes = 0;
  plan::OpIndex unplanned_peak_op = 0;
  Bytes floor_bytes = 0;
  plan::OpIndex floor_op = 0;
  std::optional<graph::ParameterCount> parameters;  // of a generated model
};
// REQUIRES: plan::CheckGraph(graph).ok().
GraphSummary Summarize(const plan::Graph& graph);

std::string FormatSummary(const plan::Graph& graph, const GraphSummary& summary, Format format);

}  // namespace hmm::ctl
