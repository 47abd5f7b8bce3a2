// SPDX-License-Identifier: Apache-2.0
//
// Plans for people: the verdict first, then the figures and what they rest on.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ctl/plan_printer.h"
#include "client/ctl/plan_words.h"
#include "client/ctl/table.h"
#include "graph/file_error.h"

namespace hmm::ctl {
namespace {

using plan::Plan;

double Of(Bytes part, Bytes whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

void AddLine(std::string& out, absl::string_view name, absl::string_view value) {
  absl::StrAppendFormat(&out, "  %-15s  %s\n", name, value);
}

std::string MovedText(const Plan& plan) {
  const MoveTotals t = TotalMoves(plan);
  std::string out = absl::StrCat(ExactText(plan.moved_bytes), ": ", t.swap_outs, " SwapOut, ",
                                 t.swap_ins, " SwapIn, ", t.drops, " dropped");
  if (t.recomputes > 0) absl::StrAppend(&out, ", ", t.recomputes, " recomputed");
  if (t.flash_bytes > 0) absl::StrAppend(&out, "; ", FormatBytes(t.flash_bytes), " by flash");
  return out;
}

std::string StepText(const Plan& plan) {
  std::string out =
      absl::StrCat(MicrosText(plan.step_us), ": compute ", MicrosText(plan.compute_us),
                   ", exposed ", MicrosText(plan.stall_us));
  if (plan.recompute_us > 0) {
    absl::StrAppend(&out, " (of it recomputing ", MicrosText(plan.recompute_us), ")");
  }
  return out;
}

std::string Figures(const plan::Graph& graph, const Plan& plan) {
  std::string out;
  AddLine(out, "budget",
          absl::StrCat(ExactText(plan.budget_bytes), ", ",
                       PercentCell(Of(plan.budget_bytes, plan.unplanned_peak_bytes)),
                       " of the unplanned peak"));
  AddLine(out, "unplanned peak",
          absl::StrCat(ExactText(plan.unplanned_peak_bytes), " at ",
                       OpText(graph, plan.unplanned_peak_op)));
  AddLine(out, "floor of any",
          absl::StrCat(ExactText(plan.floor_bytes), " at ", OpText(graph, plan.floor_op)));
  if (plan.verdict == plan::Verdict::kInfeasible) return out;
  AddLine(out, "planned peak", ExactText(plan.peak_bytes));
  AddLine(out, "step", StepText(plan));
  if (plan.verdict == plan::Verdict::kPlanned) AddLine(out, "moved", MovedText(plan));
  if (!plan.places.empty()) {
    AddLine(out, "addresses",
            absl::StrCat("high water ", ExactText(plan.high_water_bytes), ", lower bound ",
                         ExactText(plan.lower_bound_bytes)));
  }
  return out;
}

std::string FootText(const PlanContext& context) {
  std::string out =
      absl::StrCat("machine ", context.machine.name, ": ", context.machine.assumptions, "\n",
                   "durations: ", context.roofline_ops, " of ", context.graph.ops.size(),
                   " ops by the roofline of this machine, the rest as given\n");
  const std::string unknown = UnknownText(context.graph);
  if (!unknown.empty()) absl::StrAppend(&out, unknown, "\n");
  return out;
}

class PlanTablePrinter final : public PlanPrinter {
 public:
  std::string Plan(const PlanContext& context, const plan::Plan& plan) override {
    std::string out =
        absl::StrCat(VerdictText(context.graph, plan), "\n\n", Figures(context.graph, plan), "\n");
    const std::string ceilings = CeilingsText(context.graph, plan);
    if (!ceilings.empty()) absl::StrAppend(&out, "ceilings\n", ceilings, "\n");
    return out + FootText(context);
  }

  std::string Compare(const PlanContext& context, const std::vector<plan::Plan>& plans) override {
    Table table({{"PLANNER"},
                 {"VERDICT"},
                 {"EXPOSED", true},
                 {"OF-COMPUTE", true},
                 {"STEP", true},
                 {"PEAK", true},
                 {"MOVED", true}});
    for (const plan::Plan& plan : plans) {
      const std::string verdict(plan::VerdictName(plan.verdict));
      if (plan.verdict == plan::Verdict::kInfeasible) {
        table.AddRow({plan.planner, verdict, "", "", "", "", ""});
        continue;
      }
      std::string cells[] = {MicrosText(plan.stall_us), MicrosText(plan.step_us)};
      for (std::string& cell : cells)
        cell.erase(std::remove(cell.begin(), cell.end(), ' '), cell.end());
      table.AddRow({plan.planner, verdict, cells[0], ShareText(plan.stall_us, plan.compute_us),
                    cells[1], SizeCell(plan.peak_bytes), SizeCell(plan.moved_bytes)});
    }
    std::string out = table.ToString();
    if (!plans.empty()) {
      absl::StrAppend(&out, "\nbudget ", ExactText(plans[0].budget_bytes),
                      " of an unplanned peak of ", ExactText(plans[0].unplanned_peak_bytes), "\n");
    }
    return out + FootText(context);
  }

  std::string Check(const PlanContext& context, const CheckReport& report) override {
    if (report.faults.empty()) {
      return absl::StrCat(
          "good: ", report.plan_file, " is safe for ", report.graph_file,
          " whatever the durations: ", std::string(plan::VerdictName(report.plan.verdict)), " in ",
          FormatBytes(report.plan.budget_bytes), ", ", report.plan.moves.size(), " moves\n");
    }
    Table table({{"RULE"}, {"TASK", true}, {"TENSOR"}, {"FAULT"}});
    for (const plan::PlanFault& fault : report.faults) {
      const auto& storages = context.graph.storages;
      table.AddRow(
          {std::string(plan::RuleName(fault.rule)),
           fault.task == plan::kNone ? "" : absl::StrCat(fault.task),
           fault.storage < storages.size() ? graph::Shown(storages[fault.storage].name) : "",
           fault.text});
    }
    return absl::StrCat("refused: ", report.plan_file, " breaks ", report.faults.size(),
                        " rules on ", report.graph_file, "\n\n", table.ToString());
  }

  std::string Layout(const LayoutReport& report) override {
    std::string out = plan::ExplainLayout(report.problem, report.result) + "\n";
    if (report.result.offsets.empty()) return out;
    Table table({{"ID"}, {"LOWER", true}, {"UPPER", true}, {"SIZE", true}, {"OFFSET", true}});
    for (std::size_t i = 0; i < report.csv.ids.size(); ++i) {
      const plan::Interval& interval = report.csv.intervals[i];
      table.AddRow({EscapeKey(report.csv.ids[i]), absl::StrCat(interval.begin),
                    absl::StrCat(interval.end), absl::StrCat(interval.bytes),
                    absl::StrCat(report.result.offsets[i])});
    }
    return absl::StrCat(out, "\n", table.ToString());
  }
};

}  // namespace

std::unique_ptr<PlanPrinter> MakePlanTablePrinter() { return std::make_unique<PlanTablePrinter>(); }

std::unique_ptr<PlanPrinter> MakePlanPrinter(Format format) {
  return format == Format::kJson ? MakePlanJsonPrinter() : MakePlanTablePrinter();
}

}  // namespace hmm::ctl
