// SPDX-License-Identifier: Apache-2.0
//
// `hmmctl plan`: reads what is asked for, plans, prints. No daemon. Exit code 1 for what cannot be:
// an infeasible budget, a plan that breaks a rule, intervals that do not fit.
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/ctl/plan_busy.h"
#include "client/ctl/plan_emit.h"
#include "client/ctl/plan_files.h"
#include "client/ctl/plan_input.h"
#include "client/ctl/plan_layout_csv.h"
#include "client/ctl/plan_printer.h"
#include "client/ctl/plan_report.h"
#include "client/ctl/plan_sweep.h"
#include "client/ctl/plan_trace.h"
#include "client/ctl/verbs.h"
#include "graph/export.h"
#include "graph/file_error.h"
#include "graph/plan_proto.h"
#include "plan/diff.h"
#include "plan/explain.h"
#include "plan/planner.h"
#include "plan/roofline.h"
#include "plan/sweep.h"
#include "plan/validate.h"

namespace hmm::ctl {
namespace {

using plan::Plan;

constexpr std::uint32_t kSweepPoints = 11;
constexpr std::uint32_t kSmallestTries = 12;
constexpr std::size_t kFitOpsMax = 20'000;
constexpr std::uint32_t kFitTries = 6;  // plans for less, until the addresses fit too

// A graph with its durations, and the machine they are for.
struct Subject {
  plan::Graph graph;
  plan::Machine machine;
  std::size_t roofline_ops = 0;

  PlanContext context() const { return {graph, machine, roofline_ops}; }
};

absl::StatusOr<Subject> ReadSubject(const PlanArgs& args) {
  Subject subject;
  HMM_ASSIGN_OR_RETURN(subject.machine, LoadMachine(args.machine));
  HMM_ASSIGN_OR_RETURN(subject.graph, LoadGraph(args.input));
  HMM_RETURN_IF_ERROR(GiveDurations(args.profile, subject.graph));
  subject.roofline_ops = plan::FillDurations(subject.graph, subject.machine);
  return subject;
}

absl::StatusOr<Bytes> InBytes(absl::string_view flag, const Budget& budget, const Plan& totals) {
  const Bytes bytes = BudgetBytes(budget, totals.unplanned_peak_bytes);
  if (bytes > 0 || totals.unplanned_peak_bytes == 0) return bytes;
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadSize,
               absl::StrCat(flag, ": ", BudgetText(budget), " of the unplanned peak of ",
                            FormatBytes(totals.unplanned_peak_bytes), " is less than a byte"));
}

absl::StatusOr<Bytes> BudgetOf(const PlanArgs& args, const Subject& subject) {
  if (!args.hbm) {
    if (subject.machine.hbm_bytes > 0) return subject.machine.hbm_bytes;
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 absl::StrCat("--hbm: machine ", subject.machine.name,
                              " does not say how much HBM it has; write for example --hbm 24GiB ",
                              "or --hbm 74%"));
  }
  Plan totals;
  plan::FillGraphTotals(subject.graph, totals);
  return InBytes("--hbm", *args.hbm, totals);
}

absl::StatusOr<Plan> MakeOne(const plan::Planner& planner, const Subject& subject, Bytes budget,
                             std::uint64_t steps) {
  if (&planner != &plan::Planners().front()) {
    return planner.make(subject.graph, subject.machine, budget);
  }
  plan::PlanOptions options;
  options.steps = steps;
  // What fits without a plan needs no addresses of ours; large graphs take long enough once.
  Plan totals;
  plan::FillGraphTotals(subject.graph, totals);
  const bool worth = budget < totals.unplanned_peak_bytes && subject.graph.ops.size() <= kFitOpsMax;
  options.fit_tries = worth ? kFitTries : 0;
  return plan::MakePlan(subject.graph, subject.machine, budget, options);
}

absl::StatusOr<int> Compare(const Command& command, const Subject& subject, Bytes budget) {
  std::vector<Plan> plans;
  {
    Busy busy("planning");
    for (const plan::Planner& planner : plan::Planners()) {
      busy.SetStage(absl::StrCat("planner ", std::string(planner.name), ", ", plans.size() + 1,
                                 " of ", plan::Planners().size()));
      absl::StatusOr<Plan> plan = MakeOne(planner, subject, budget, command.plan.steps);
      if (!plan.ok()) return plan.status();
      plans.push_back(*std::move(plan));
    }
  }
  if (!command.plan.report.empty()) {
    HMM_RETURN_IF_ERROR(WritePlanReport(command.plan.report, subject.context(), plans));
  }
  HMM_RETURN_IF_ERROR(WriteOut(MakePlanPrinter(command.format)->Compare(subject.context(), plans)));
  return plans.front().verdict == plan::Verdict::kInfeasible ? 1 : 0;
}

absl::StatusOr<std::vector<Bytes>> SweptBudgets(const PlanArgs& args, const Subject& subject,
                                                const Plan& totals) {
  if (args.points.empty()) return plan::SweepBudgets(subject.graph, kSweepPoints);
  std::vector<Bytes> budgets;
  for (const Budget& budget : args.points) {
    const absl::StatusOr<Bytes> bytes = InBytes("--at", budget, totals);
    if (!bytes.ok()) return bytes.status();
    budgets.push_back(*bytes);
  }
  return budgets;
}

absl::StatusOr<int> SweepAndPrint(const Command& command, const Subject& subject) {
  const PlanArgs& args = command.plan;
  Plan totals;
  plan::FillGraphTotals(subject.graph, totals);
  absl::StatusOr<std::vector<Bytes>> budgets = SweptBudgets(args, subject, totals);
  if (!budgets.ok()) return budgets.status();
  SweepReport report;
  report.floor_bytes = totals.floor_bytes;
  report.unplanned_peak_bytes = totals.unplanned_peak_bytes;
  // The compute time does not depend on the budget, and all of it fits without a plan.
  plan::PlanOptions options;
  options.layout = false;
  const absl::StatusOr<Plan> whole =
      plan::MakePlan(subject.graph, subject.machine, totals.unplanned_peak_bytes, options);
  if (!whole.ok()) return whole.status();
  report.compute_us = whole->compute_us;
  options.steps = args.steps;
  {
    const Busy busy(absl::StrCat("planning for ", budgets->size(), " budgets"));
    HMM_ASSIGN_OR_RETURN(report.points,
                         plan::Sweep(subject.graph, subject.machine, *std::move(budgets), options));
  }
  if (args.stall_max) {
    const Busy busy("looking for the smallest budget");
    report.stall_share_max = *args.stall_max;
    HMM_ASSIGN_OR_RETURN(report.smallest,
                         plan::SmallestBudget(subject.graph, subject.machine, *args.stall_max,
                                              kSmallestTries, options));
  }
  if (!args.svg.empty()) {
    HMM_RETURN_IF_ERROR(graph::WriteFileBytes(
        args.svg, SweepSvg(report, absl::StrCat(subject.graph.name, " on ", subject.machine.name),
                           subject.machine.assumptions)));
  }
  HMM_RETURN_IF_ERROR(WriteOut(MakePlanPrinter(command.format)->Sweep(subject.context(), report)));
  return 0;
}

absl::StatusOr<int> MakeAndPrint(const Command& command) {
  const PlanArgs& args = command.plan;
  const absl::StatusOr<const plan::Planner*> planner = FindPlannerNamed(args.planner);
  if (!planner.ok()) return planner.status();
  const absl::StatusOr<Subject> subject = ReadSubject(args);
  if (!subject.ok()) return subject.status();
  if (args.sweep) return SweepAndPrint(command, *subject);
  const absl::StatusOr<Bytes> budget = BudgetOf(args, *subject);
  if (!budget.ok()) return budget.status();
  if (args.compare) return Compare(command, *subject, *budget);
  absl::StatusOr<Plan> plan;
  {
    const Busy busy(absl::StrCat("planning ", subject->graph.ops.size(), " ops"));
    plan = MakeOne(**planner, *subject, *budget, args.steps);
  }
  if (!plan.ok()) return plan.status();
  if (!args.out.empty()) {
    HMM_RETURN_IF_ERROR(graph::WritePlanProto(*plan, subject->graph, args.out));
  }
  HMM_RETURN_IF_ERROR(EmitGraph(args, *plan));
  if (!args.report.empty()) {
    HMM_RETURN_IF_ERROR(WritePlanReport(args.report, subject->context(), {*plan}));
  }
  HMM_RETURN_IF_ERROR(WriteOut(MakePlanPrinter(command.format)->Plan(subject->context(), *plan)));
  HMM_RETURN_IF_ERROR(SayNotEmitted(args, subject->graph, *plan));
  if (!args.trace.empty()) {
    HMM_RETURN_IF_ERROR(WritePlanTrace(args.trace, subject->graph, subject->machine, *plan));
  }
  return plan->verdict == plan::Verdict::kInfeasible ? 1 : 0;
}

// A plan from a file, sure to be one for the graph.
absl::StatusOr<graph::PlanFile> ReadPlanFor(const PlanArgs& args, const Subject& subject) {
  absl::StatusOr<graph::PlanFile> file = graph::ReadPlan(args.plan, ReadOptionsOf(args.input));
  if (!file.ok()) return file.status();
  if (const absl::Status same = graph::CheckIdentity(file->graph, subject.graph); !same.ok()) {
    return Annotate(same, absl::StrCat(args.plan, " and ", args.input.graph));
  }
  return file;
}

// Of a plan without faults: whether a graph that carries it still has its moves.
absl::Status CheckMovesOf(const PlanArgs& args, const graph::PlanFile& file) {
  return graph::CheckMoves(args.plan, file, ReadOptionsOf(args.input));
}

// What is to be explained: the plan of a file, proved, or a new one.
absl::StatusOr<Plan> PlanToExplain(const PlanArgs& args, const Subject& subject) {
  if (args.plan.empty()) {
    const absl::StatusOr<const plan::Planner*> planner = FindPlannerNamed(args.planner);
    if (!planner.ok()) return planner.status();
    const absl::StatusOr<Bytes> budget = BudgetOf(args, subject);
    if (!budget.ok()) return budget.status();
    const Busy busy(absl::StrCat("planning ", subject.graph.ops.size(), " ops"));
    return MakeOne(**planner, subject, *budget, args.steps);
  }
  absl::StatusOr<graph::PlanFile> file = ReadPlanFor(args, subject);
  if (!file.ok()) return file.status();
  const std::vector<plan::PlanFault> faults =
      plan::Validate(subject.graph, subject.machine, file->plan);
  if (faults.empty()) {
    HMM_RETURN_IF_ERROR(CheckMovesOf(args, *file));
    return std::move(file->plan);
  }
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kBadGraph,
               absl::StrCat(args.plan, ": not safe for ", args.input.graph, ": ", faults[0].text,
                            "; see `hmmctl plan check`"));
}

absl::StatusOr<int> ExplainAndPrint(const Command& command) {
  const PlanArgs& args = command.plan;
  const absl::StatusOr<Subject> subject = ReadSubject(args);
  if (!subject.ok()) return subject.status();
  const absl::StatusOr<plan::StorageIndex> storage = plan::FindStorage(subject->graph, args.tensor);
  if (!storage.ok()) return storage.status();
  const absl::StatusOr<Plan> plan = PlanToExplain(args, *subject);
  if (!plan.ok()) return plan.status();
  const ExplainReport report{*plan,
                             plan::Explain(subject->graph, subject->machine, *plan, *storage)};
  HMM_RETURN_IF_ERROR(
      WriteOut(MakePlanPrinter(command.format)->Explain(subject->context(), report)));
  return plan->verdict == plan::Verdict::kInfeasible ? 1 : 0;
}

absl::StatusOr<int> DiffAndPrint(const Command& command) {
  const PlanArgs& args = command.plan;
  const graph::ReadOptions options = ReadOptionsOf(args.input);
  const absl::StatusOr<graph::PlanFile> a = graph::ReadPlan(args.plan, options);
  if (!a.ok()) return a.status();
  const absl::StatusOr<graph::PlanFile> b = graph::ReadPlan(args.other, options);
  if (!b.ok()) return b.status();
  if (a->graph.fingerprint != b->graph.fingerprint) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kBadGraph,
                 absl::StrCat(args.plan, " is for graph ", graph::Shown(a->graph.name), ", ",
                              args.other, " for ", graph::Shown(b->graph.name),
                              ", which is another: there is nothing to compare"));
  }
  std::optional<plan::Graph> graph;
  if (!args.input.graph.empty()) {
    HMM_ASSIGN_OR_RETURN(graph, LoadGraph(args.input));
    if (const absl::Status same = graph::CheckIdentity(a->graph, *graph); !same.ok()) {
      return Annotate(same, absl::StrCat(args.plan, " and ", args.input.graph));
    }
  }
  const DiffReport report{args.plan,
                          args.other,
                          a->plan,
                          b->plan,
                          plan::DiffPlans(a->plan, b->plan),
                          graph ? &*graph : nullptr};
  HMM_RETURN_IF_ERROR(WriteOut(MakePlanPrinter(command.format)->Diff(report)));
  return 0;
}

absl::StatusOr<int> Check(const Command& command) {
  const PlanArgs& args = command.plan;
  const absl::StatusOr<Subject> subject = ReadSubject(args);
  if (!subject.ok()) return subject.status();
  const absl::StatusOr<graph::PlanFile> file = ReadPlanFor(args, *subject);
  if (!file.ok()) return file.status();
  const CheckReport report{args.plan, args.input.graph, file->plan,
                           plan::Validate(subject->graph, subject->machine, file->plan)};
  if (report.faults.empty()) HMM_RETURN_IF_ERROR(CheckMovesOf(args, *file));
  HMM_RETURN_IF_ERROR(WriteOut(MakePlanPrinter(command.format)->Check(subject->context(), report)));
  return report.faults.empty() ? 0 : 1;
}

absl::StatusOr<int> Layout(const Command& command) {
  const PlanArgs& args = command.plan;
  const absl::StatusOr<LayoutCsv> csv = ReadLayoutCsv(args.csv);
  if (!csv.ok()) return csv.status();
  plan::LayoutProblem problem;
  problem.intervals = csv->intervals;
  problem.capacity = args.capacity;
  if (const absl::Status ok = plan::CheckLayoutProblem(problem); !ok.ok()) {
    return Annotate(ok, args.csv);
  }
  plan::LayoutOptions options;
  if (args.steps > 0) options.steps_max = args.steps;
  plan::LayoutResult result;
  {
    const Busy busy(absl::StrCat("placing ", problem.intervals.size(), " intervals"));
    result = plan::SolveLayout(problem, options);
  }
  const bool fits = result.verdict == plan::LayoutVerdict::kFits;
  if (fits && !args.out.empty()) {
    HMM_RETURN_IF_ERROR(graph::WriteFileBytes(args.out, FormatLayoutCsv(*csv, result.offsets)));
  }
  HMM_RETURN_IF_ERROR(WriteOut(MakePlanPrinter(command.format)->Layout({*csv, problem, result})));
  return fits ? 0 : 1;
}

}  // namespace

absl::StatusOr<int> RunPlan(const Command& command) {
  HMM_RETURN_IF_ERROR(CheckOutputFiles(command.plan));
  switch (command.verb) {
    case Verb::kPlan:
      HMM_RETURN_IF_ERROR(CheckPlanNames(command.plan));
      return MakeAndPrint(command);
    case Verb::kPlanExplain:
      return ExplainAndPrint(command);
    case Verb::kPlanDiff:
      return DiffAndPrint(command);
    case Verb::kPlanCheck:
      return Check(command);
    case Verb::kPlanLayout:
      return Layout(command);
    default:
      break;
  }
  return Error(absl::StatusCode::kInternal, Reason::kInternal, "a verb without its code");
}

}  // namespace hmm::ctl
