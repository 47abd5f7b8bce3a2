// SPDX-License-Identifier: Apache-2.0
//
// Plans for people: the verdict first, then the figures and what they rest on.
#include <algorithm>
#include <cmath>
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

std::string Figures(const plan::Graph& graph, const Plan& plan) {
  std::string out;
  for (const Figure& figure : FiguresOf(graph, plan)) AddLine(out, figure.name, figure.text);
  return out;
}

std::string FootText(const PlanContext& context) {
  std::string out =
      absl::StrCat("machine ", MachineText(context.machine), "\n",
                   "durations: ", DurationsText(context.graph, context.roofline_ops), "\n");
  const std::string unknown = UnknownText(context.graph);
  if (!unknown.empty()) absl::StrAppend(&out, unknown, "\n");
  return out;
}

// One word, for a cell.
std::string TimeWord(double us) {
  std::string text = MicrosText(us);
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  return text;
}

std::string OpCell(const plan::Graph* graph, plan::OpIndex op) {
  if (op == plan::kNone) return "";
  if (graph == nullptr || op >= graph->ops.size()) return absl::StrCat("op ", op);
  return EscapeKey(graph->ops[op].name);
}

std::string TierWord(TierKind kind) { return std::string(TierKindName(kind)); }

std::string GapTable(const plan::Graph& graph, const plan::StorageReport& storage) {
  Table table({{"GAP"},
               {"AFTER"},
               {"BEFORE"},
               {"SLACK", true},
               {"OUT", true},
               {"IN", true},
               {"LINK", true},
               {"COST", true},
               {"OVER-BUDGET"},
               {"MOVED"},
               {"EXPOSED", true}});
  for (const plan::GapReport& gap : storage.gaps) {
    table.AddRow({GapKindText(gap.kind), OpCell(&graph, gap.after_op),
                  OpCell(&graph, gap.before_op), TimeWord(gap.factors.slack_us),
                  TimeWord(gap.factors.out_us), TimeWord(gap.factors.in_us),
                  ShareText(gap.factors.link_share, 1), TimeWord(gap.cost_us),
                  gap.over_budget ? "yes" : "no", gap.moved ? "yes" : "no",
                  gap.moved ? TimeWord(gap.stall_us) : ""});
  }
  return table.ToString();
}

std::string SlotTable(const plan::Graph& graph, const Plan& plan,
                      const plan::StorageReport& storage) {
  Table table({{"MOVE"},
               {"FROM"},
               {"TO"},
               {"SLOT", true},
               {"LINK-IDLE-BEFORE", true},
               {"START", true},
               {"END", true},
               {"AFTER"},
               {"BEFORE"},
               {"EXPOSED", true}});
  for (const plan::MoveSlot& slot : storage.moves) {
    const plan::Move& move = plan.moves[slot.move];
    const bool queued = slot.of > 0;
    table.AddRow({std::string(plan::MoveKindName(move.kind)), TierWord(move.from),
                  TierWord(move.to), queued ? absl::StrCat(slot.place + 1, "/", slot.of) : "",
                  queued ? TimeWord(slot.idle_before_us) : "",
                  queued ? TimeWord(move.start_us) : "", queued ? TimeWord(move.end_us) : "",
                  OpCell(&graph, move.after_op), OpCell(&graph, move.before_op),
                  queued ? TimeWord(move.stall_us) : ""});
  }
  return table.ToString();
}

void AddMoves(const DiffReport& report, const Plan& plan, absl::string_view where,
              const std::vector<std::uint32_t>& moves, Table& table) {
  for (const std::uint32_t index : moves) {
    const plan::Move& move = plan.moves[index];
    table.AddRow({std::string(where), std::string(plan::MoveKindName(move.kind)),
                  EscapeKey(MoveOf(report.graph, move)), SizeCell(move.bytes), TierWord(move.from),
                  TierWord(move.to), OpCell(report.graph, move.after_op),
                  OpCell(report.graph, move.before_op)});
  }
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
      table.AddRow({plan.planner, verdict, TimeWord(plan.stall_us),
                    ShareText(plan.stall_us, plan.compute_us), TimeWord(plan.step_us),
                    SizeCell(plan.peak_bytes), SizeCell(plan.moved_bytes)});
    }
    std::string out = table.ToString();
    if (!plans.empty()) {
      absl::StrAppend(&out, "\nbudget ", ExactText(plans[0].budget_bytes),
                      " of an unplanned peak of ", ExactText(plans[0].unplanned_peak_bytes), "\n");
    }
    return out + FootText(context);
  }

  std::string Sweep(const PlanContext& context, const SweepReport& report) override {
    Table table({{"HBM", true},
                 {"OF-PEAK", true},
                 {"VERDICT"},
                 {"EXPOSED", true},
                 {"OF-COMPUTE", true},
                 {"PEAK", true},
                 {"MOVED", true}});
    for (const plan::SweepPoint& point : report.points) {
      const bool can = point.verdict != plan::Verdict::kInfeasible;
      table.AddRow({SizeCell(point.budget),
                    PercentCell(Of(point.budget, report.unplanned_peak_bytes)),
                    std::string(plan::VerdictName(point.verdict)),
                    can ? TimeWord(point.stall_us) : "", can ? ShareText(point.stall_share, 1) : "",
                    can ? SizeCell(point.peak_bytes) : "", can ? SizeCell(point.moved_bytes) : ""});
    }
    std::string smallest;
    if (report.smallest) {
      smallest = absl::StrCat(
          "smallest budget found with at most ", ShareText(report.stall_share_max, 1),
          " exposed: ", ExactText(report.smallest->budget), ", ",
          PercentCell(Of(report.smallest->budget, report.unplanned_peak_bytes)),
          " of the unplanned peak, ", ShareText(report.smallest->stall_share, 1), " exposed\n");
    }
    return absl::StrCat(table.ToString(), "\n", smallest, "floor of any plan ",
                        ExactText(report.floor_bytes), ", unplanned peak ",
                        ExactText(report.unplanned_peak_bytes), ", compute ",
                        MicrosText(report.compute_us), "\n", FootText(context));
  }

  std::string Explain(const PlanContext& context, const ExplainReport& report) override {
    const plan::StorageReport& s = report.storage;
    const plan::Storage& storage = context.graph.storages[s.storage];
    std::string out = absl::StrCat(EscapeKey(storage.name), ": ", s.why, "\n\n");
    AddLine(
        out, "bytes",
        absl::StrCat(ExactText(s.bytes), " of ", std::string(TensorKindName(storage.kind)),
                     storage.persistent ? ", lives across steps" : "", s.pinned ? ", pinned" : ""));
    AddLine(out, "frequency", absl::StrFormat("used by %g ops a step", s.uses_per_step));
    AddLine(out, "recompute",
            s.recompute_us < 0 ? std::string("cannot be made anew")
                               : absl::StrCat("made anew in ", MicrosText(s.recompute_us)));
    AddLine(out, "bandwidth",
            s.in_us <= 0
                ? std::string("no link")
                : absl::StrCat(MicrosText(s.in_us), " to bring it back, ",
                               ShareText(s.in_us, report.plan.compute_us), " of the compute time"));
    if (!s.gaps.empty()) absl::StrAppend(&out, "\n", GapTable(context.graph, s));
    if (!s.moves.empty()) absl::StrAppend(&out, "\n", SlotTable(context.graph, report.plan, s));
    return absl::StrCat(out, "\n", VerdictText(context.graph, report.plan), ", in ",
                        ExactText(report.plan.budget_bytes), "\n", FootText(context));
  }

  std::string Diff(const DiffReport& report) override {
    const plan::Plan& a = report.a;
    const plan::Plan& b = report.b;
    Table figures({{""}, {"A", true}, {"B", true}, {"B-A", true}});
    const auto bytes = [&figures](const char* name, Bytes of_a, Bytes of_b) {
      const bool less = of_b < of_a;
      figures.AddRow({name, SizeCell(of_a), SizeCell(of_b),
                      absl::StrCat(less ? "-" : "+", SizeCell(less ? of_a - of_b : of_b - of_a))});
    };
    const auto time = [&figures](const char* name, double of_a, double of_b) {
      figures.AddRow({name, TimeWord(of_a), TimeWord(of_b),
                      absl::StrCat(of_b < of_a ? "-" : "+", TimeWord(std::abs(of_b - of_a)))});
    };
    figures.AddRow({"verdict", std::string(plan::VerdictName(a.verdict)),
                    std::string(plan::VerdictName(b.verdict)), ""});
    figures.AddRow({"planner", EscapeKey(a.planner), EscapeKey(b.planner), ""});
    bytes("budget", a.budget_bytes, b.budget_bytes);
    bytes("peak", a.peak_bytes, b.peak_bytes);
    bytes("moved", a.moved_bytes, b.moved_bytes);
    bytes("high-water", a.high_water_bytes, b.high_water_bytes);
    time("step", a.step_us, b.step_us);
    time("exposed", a.stall_us, b.stall_us);
    std::string out = report.diff.same() ? "the same moves at the same places\n" : "";
    absl::StrAppend(&out, "A ", report.file_a, "\nB ", report.file_b, "\n\n", figures.ToString());
    if (report.diff.same()) return out;
    Table moves(
        {{"ONLY"}, {"MOVE"}, {"OF"}, {"SIZE", true}, {"FROM"}, {"TO"}, {"AFTER"}, {"BEFORE"}});
    AddMoves(report, a, "A", report.diff.only_a, moves);
    AddMoves(report, b, "B", report.diff.only_b, moves);
    for (const plan::MovePair& pair : report.diff.placed_otherwise) {
      AddMoves(report, a, "placed:A", {pair.a}, moves);
      AddMoves(report, b, "placed:B", {pair.b}, moves);
    }
    return absl::StrCat(out, "\n", moves.ToString());
  }

  std::string Check(const PlanContext& context, const CheckReport& report) override {
    if (report.faults.empty()) {
      if (report.plan.verdict == plan::Verdict::kInfeasible) {
        return absl::StrCat("good: ", report.plan_file, " says rightly that ", report.graph_file,
                            " is infeasible in ", FormatBytes(report.plan.budget_bytes), "\n");
      }
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
