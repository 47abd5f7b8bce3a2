// SPDX-License-Identifier: Apache-2.0
//
// Plans as JSON: figures exact, keys in a fixed order, the contract's keys of a plan first. Ops are
// indices, with their names beside them.
#include <nlohmann/json.hpp>

#include "client/ctl/plan_printer.h"
#include "client/ctl/plan_words.h"

namespace hmm::ctl {
namespace {

using nlohmann::ordered_json;
using plan::Plan;

std::string Document(const ordered_json& value) {
  return value.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

ordered_json OpJson(const plan::Graph& graph, plan::OpIndex op) {
  return op < graph.ops.size() ? ordered_json(op) : ordered_json(nullptr);
}
ordered_json OpNameJson(const plan::Graph& graph, plan::OpIndex op) {
  return op < graph.ops.size() ? ordered_json(graph.ops[op].name) : ordered_json(nullptr);
}

ordered_json CeilingsJson(const plan::Ceilings& c) {
  ordered_json out;
  out["link_bytes_per_us"] = c.link_bytes_per_us;
  out["hide_80_percent_bytes_per_us"] = c.hide_80_percent_bytes_per_us;
  out["hideable_fraction"] = c.hideable_fraction;
  out["link_to_hbm_ratio"] = c.link_to_hbm_ratio;
  out["group_fetch_us"] = c.group_fetch_us;
  return out;
}

ordered_json PlanJson(const PlanContext& context, const Plan& plan) {
  const plan::Graph& graph = context.graph;
  const bool is_short = plan.verdict == plan::Verdict::kInfeasible && plan.short_bytes > 0;
  const plan::OpIndex short_op = is_short ? plan.short_op : plan::kNone;
  const MoveTotals moves = TotalMoves(plan);
  ordered_json out;
  out["planner"] = plan.planner;
  out["verdict"] = plan::VerdictName(plan.verdict);
  out["unplanned_peak_bytes"] = plan.unplanned_peak_bytes;
  out["unplanned_peak_op"] = OpJson(graph, plan.unplanned_peak_op);
  out["floor_bytes"] = plan.floor_bytes;
  out["budget_bytes"] = plan.budget_bytes;
  out["peak_bytes"] = plan.peak_bytes;
  out["compute_us"] = plan.compute_us;
  out["step_us"] = plan.step_us;
  out["stall_us"] = plan.stall_us;
  out["moved_bytes"] = plan.moved_bytes;
  out["high_water_bytes"] = plan.high_water_bytes;
  out["lower_bound_bytes"] = plan.lower_bound_bytes;
  out["short_bytes"] = plan.short_bytes;
  out["short_op"] = OpJson(graph, short_op);
  out["unknown_tensors"] = graph.unknown.size();
  // Not in the contract's first list.
  out["unplanned_peak_op_name"] = OpNameJson(graph, plan.unplanned_peak_op);
  out["floor_op"] = OpJson(graph, plan.floor_op);
  out["floor_op_name"] = OpNameJson(graph, plan.floor_op);
  out["short_op_name"] = OpNameJson(graph, short_op);
  out["short_tier"] =
      is_short ? ordered_json(TierKindName(plan.short_tier)) : ordered_json(nullptr);
  out["smallest_budget_bytes"] = plan.smallest_budget_bytes;
  out["recompute_us"] = plan.recompute_us;
  out["swap_ins"] = moves.swap_ins;
  out["swap_outs"] = moves.swap_outs;
  out["drops"] = moves.drops;
  out["recomputes"] = moves.recomputes;
  out["ceilings"] = CeilingsJson(plan.ceilings);
  out["graph"] = graph.name;
  out["ops"] = graph.ops.size();
  out["roofline_ops"] = context.roofline_ops;
  out["machine"] = context.machine.name;
  out["machine_assumptions"] = context.machine.assumptions;
  out["unknown_tensor_names"] = graph.unknown;
  return out;
}

class PlanJsonPrinter final : public PlanPrinter {
 public:
  std::string Plan(const PlanContext& context, const plan::Plan& plan) override {
    return Document(PlanJson(context, plan));
  }

  std::string Compare(const PlanContext& context, const std::vector<plan::Plan>& plans) override {
    ordered_json out = ordered_json::array();
    for (const plan::Plan& plan : plans) out.push_back(PlanJson(context, plan));
    return Document(out);
  }

  std::string Check(const PlanContext& context, const CheckReport& report) override {
    ordered_json out;
    out["plan"] = report.plan_file;
    out["graph"] = report.graph_file;
    out["good"] = report.faults.empty();
    out["verdict"] = plan::VerdictName(report.plan.verdict);
    out["budget_bytes"] = report.plan.budget_bytes;
    out["moves"] = report.plan.moves.size();
    out["faults"] = ordered_json::array();
    for (const plan::PlanFault& fault : report.faults) {
      const auto& storages = context.graph.storages;
      ordered_json entry;
      entry["rule"] = plan::RuleName(fault.rule);
      entry["task"] = fault.task == plan::kNone ? ordered_json(nullptr) : ordered_json(fault.task);
      entry["tensor"] = fault.storage < storages.size() ? ordered_json(storages[fault.storage].name)
                                                        : ordered_json(nullptr);
      entry["text"] = fault.text;
      out["faults"].push_back(std::move(entry));
    }
    return Document(out);
  }

  std::string Layout(const LayoutReport& report) override {
    const plan::LayoutResult& result = report.result;
    ordered_json out;
    out["verdict"] = result.verdict == plan::LayoutVerdict::kFits       ? "fits"
                     : result.verdict == plan::LayoutVerdict::kTooSmall ? "too_small"
                                                                        : "gave_up";
    out["capacity_bytes"] = report.problem.capacity;
    out["high_water_bytes"] = result.high_water;
    out["lower_bound_bytes"] = result.lower_bound;
    out["live_peak_bytes"] = result.peak_bytes;
    out["live_peak_time"] = result.peak_time;
    out["steps"] = result.steps;
    out["buffers"] = ordered_json::array();
    for (std::size_t i = 0; i < result.offsets.size(); ++i) {
      const plan::Interval& interval = report.csv.intervals[i];
      out["buffers"].push_back({{"id", report.csv.ids[i]},
                                {"lower", interval.begin},
                                {"upper", interval.end},
                                {"size", interval.bytes},
                                {"offset", result.offsets[i]}});
    }
    return Document(out);
  }
};

}  // namespace

std::unique_ptr<PlanPrinter> MakePlanJsonPrinter() { return std::make_unique<PlanJsonPrinter>(); }

}  // namespace hmm::ctl
