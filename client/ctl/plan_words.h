// SPDX-License-Identifier: Apache-2.0
//
// How figures of plans read in words. Pure.
#pragma once

#include <string>
#include <vector>

#include "plan/graph.h"
#include "plan/lifetimes.h"
#include "plan/machine.h"
#include "plan/plan.h"

namespace hmm::ctl {

// `op 261 "loss" (SoftmaxCrossEntropyLoss)`; "-" for none.
std::string OpText(const plan::Graph& graph, plan::OpIndex op);
// "12 us", "3.4 ms", "5.08 s".
std::string MicrosText(double us);
// "16.1 GB/s", decimal as links are sold.
std::string RateText(double bytes_per_us);
// "0.3%": as much of it as is worth telling.
std::string ShareText(double part, double whole);
// "2 GiB (2147483648 bytes)".
std::string ExactText(Bytes bytes);

// The first sentence of a report: the verdict, and what there is to say of it.
std::string VerdictText(const plan::Graph& graph, const plan::Plan& plan);
// The figures that follow the verdict: {"budget", "12.3 GiB (...), 74% of the unplanned peak"} ...
struct Figure {
  std::string name;
  std::string text;
};
std::vector<Figure> FiguresOf(const plan::Graph& graph, const plan::Plan& plan);
// What the figures rest on: the machine with its assumptions, and where durations come from.
std::string MachineText(const plan::Machine& machine);
std::string DurationsText(const plan::Graph& graph, std::size_t roofline_ops);
// What no plan can exceed on this machine, a line each, indented by two.
std::string CeilingsText(const plan::Graph& graph, const plan::Plan& plan);
// "80 tensors of unknown size are counted nowhere: a, b ..."; empty if there are none.
std::string UnknownText(const plan::Graph& graph);

// Of what a move is: the name of its storage or group; their indices where there is no graph.
std::string MoveOf(const plan::Graph* graph, const plan::Move& move);
// "inner", "head", "tail", "wrap", "all".
std::string GapKindText(plan::GapKind kind);

// Whether the step reads a KV cache that was there before it.
bool ReadsKvCache(const plan::Graph& graph);

// Moves of a plan by what they do.
struct MoveTotals {
  std::size_t swap_ins = 0, swap_outs = 0, drops = 0, recomputes = 0;
  Bytes in_bytes = 0, out_bytes = 0;  // legs between HBM and DDR
  Bytes flash_bytes = 0;              // legs between DDR and flash, both ways
};
MoveTotals TotalMoves(const plan::Plan& plan);

}  // namespace hmm::ctl
