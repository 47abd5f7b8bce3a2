// SPDX-License-Identifier: Apache-2.0
//
// Plans as JSON: figures exact, keys in a fixed order, the contract's keys of a plan first. Ops are
// indices, with their names beside them.
#include <nlohmann/json.hpp>
#include <utility>

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

ordered_json GapJson(const plan::Graph& graph, const plan::GapReport& gap) {
  ordered_json out;
  out["kind"] = GapKindText(gap.kind);
  out["after_op"] = OpJson(graph, gap.after_op);
  out["before_op"] = OpJson(graph, gap.before_op);
  out["after_op_name"] = OpNameJson(graph, gap.after_op);
  out["before_op_name"] = OpNameJson(graph, gap.before_op);
  out["uses_per_step"] = gap.factors.uses_per_step;
  out["recompute_us"] =
      gap.factors.recompute_us < 0 ? ordered_json(nullptr) : ordered_json(gap.factors.recompute_us);
  out["out_us"] = gap.factors.out_us;
  out["in_us"] = gap.factors.in_us;
  out["link_share"] = gap.factors.link_share;
  out["slack_us"] = gap.factors.slack_us;
  out["exposed_us"] = gap.factors.exposed_us;
  out["cost_us"] = gap.cost_us;
  out["over_budget"] = gap.over_budget;
  out["moved"] = gap.moved;
  out["stall_us"] = gap.stall_us;
  return out;
}

// A move of a plan. `graph` may be nullptr.
ordered_json MoveJson(const plan::Graph* graph, const plan::Move& move) {
  const auto op = [](plan::OpIndex index) {
    return index == plan::kNone ? ordered_json(nullptr) : ordered_json(index);
  };
  ordered_json out;
  out["move"] = plan::MoveKindName(move.kind);
  out["of"] = MoveOf(graph, move);
  out["bytes"] = move.bytes;
  out["from"] = TierKindName(move.from);
  out["to"] = TierKindName(move.to);
  out["after_op"] = op(move.after_op);
  out["before_op"] = op(move.before_op);
  out["start_us"] = move.start_us;
  out["end_us"] = move.end_us;
  out["stall_us"] = move.stall_us;
  return out;
}

ordered_json PointJson(const plan::SweepPoint& point) {
  ordered_json out;
  out["budget_bytes"] = point.budget;
  out["planned_for_bytes"] = point.planned_for;
  out["verdict"] = plan::VerdictName(point.verdict);
  out["peak_bytes"] = point.peak_bytes;
  out["step_us"] = point.step_us;
  out["stall_us"] = point.stall_us;
  out["stall_share"] = point.stall_share;
  out["moved_bytes"] = point.moved_bytes;
  return out;
}

ordered_json FiguresJson(const std::string& file, const Plan& plan) {
  ordered_json out;
  out["file"] = file;
  out["planner"] = plan.planner;
  out["verdict"] = plan::VerdictName(plan.verdict);
  out["budget_bytes"] = plan.budget_bytes;
  out["peak_bytes"] = plan.peak_bytes;
  out["moved_bytes"] = plan.moved_bytes;
  out["high_water_bytes"] = plan.high_water_bytes;
  out["step_us"] = plan.step_us;
  out["stall_us"] = plan.stall_us;
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

  std::string Sweep(const PlanContext& context, const SweepReport& report) override {
    ordered_json out;
    out["floor_bytes"] = report.floor_bytes;
    out["unplanned_peak_bytes"] = report.unplanned_peak_bytes;
    out["compute_us"] = report.compute_us;
    out["points"] = ordered_json::array();
    for (const plan::SweepPoint& point : report.points) out["points"].push_back(PointJson(point));
    out["stall_share_max"] =
        report.smallest ? ordered_json(report.stall_share_max) : ordered_json(nullptr);
    out["smallest"] = report.smallest ? PointJson(*report.smallest) : ordered_json(nullptr);
    out["graph"] = context.graph.name;
    out["machine"] = context.machine.name;
    out["machine_assumptions"] = context.machine.assumptions;
    out["unknown_tensors"] = context.graph.unknown.size();
    return Document(out);
  }

  std::string Explain(const PlanContext& context, const ExplainReport& report) override {
    const plan::StorageReport& s = report.storage;
    const plan::Storage& storage = context.graph.storages[s.storage];
    ordered_json out;
    out["tensor"] = storage.name;
    out["aliases"] = storage.aliases;
    out["bytes"] = s.bytes;
    out["kind"] = TensorKindName(storage.kind);
    out["persistent"] = storage.persistent;
    out["pinned"] = s.pinned;
    out["uses_per_step"] = s.uses_per_step;
    out["recompute_us"] = s.recompute_us < 0 ? ordered_json(nullptr) : ordered_json(s.recompute_us);
    out["in_us"] = s.in_us;
    out["why"] = s.why;
    out["gaps"] = ordered_json::array();
    for (const plan::GapReport& gap : s.gaps) out["gaps"].push_back(GapJson(context.graph, gap));
    out["moves"] = ordered_json::array();
    for (const plan::MoveSlot& slot : s.moves) {
      ordered_json entry = MoveJson(&context.graph, report.plan.moves[slot.move]);
      entry["queue_place"] = slot.place;
      entry["queue_length"] = slot.of;
      entry["idle_before_us"] = slot.idle_before_us;
      out["moves"].push_back(std::move(entry));
    }
    out["verdict"] = plan::VerdictName(report.plan.verdict);
    out["budget_bytes"] = report.plan.budget_bytes;
    out["machine"] = context.machine.name;
    return Document(out);
  }

  std::string Diff(const DiffReport& report) override {
    ordered_json out;
    out["same"] = report.diff.same();
    out["a"] = FiguresJson(report.file_a, report.a);
    out["b"] = FiguresJson(report.file_b, report.b);
    const auto list = [&report](const std::vector<std::uint32_t>& moves, const plan::Plan& plan) {
      ordered_json entries = ordered_json::array();
      for (const std::uint32_t index : moves) {
        entries.push_back(MoveJson(report.graph, plan.moves[index]));
      }
      return entries;
    };
    out["only_a"] = list(report.diff.only_a, report.a);
    out["only_b"] = list(report.diff.only_b, report.b);
    out["placed_otherwise"] = ordered_json::array();
    for (const plan::MovePair& pair : report.diff.placed_otherwise) {
      out["placed_otherwise"].push_back({{"a", MoveJson(report.graph, report.a.moves[pair.a])},
                                         {"b", MoveJson(report.graph, report.b.moves[pair.b])}});
    }
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
