// SPDX-License-Identifier: Apache-2.0
//
// `hmmctl plan`: reads what is asked for, plans, prints. No daemon. Exit code 1 for what cannot be:
// an infeasible budget, a plan that breaks a rule, intervals that do not fit.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/ctl/plan_busy.h"
#include "client/ctl/plan_input.h"
#include "client/ctl/plan_layout_csv.h"
#include "client/ctl/plan_printer.h"
#include "client/ctl/verbs.h"
#include "graph/file_error.h"
#include "graph/plan_proto.h"
#include "plan/planner.h"
#include "plan/roofline.h"

namespace hmm::ctl {
namespace {

using plan::Plan;

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

absl::StatusOr<Bytes> BudgetOf(const PlanArgs& args, const Subject& subject) {
  if (!args.hbm) {
    if (subject.machine.hbm_bytes > 0) return subject.machine.hbm_bytes;
    return Error(
        absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
        absl::StrCat("--hbm: machine ", subject.machine.name, " does not say how much HBM ",
                     "it has; write for example --hbm 24GiB or --hbm 74%"));
  }
  Plan totals;
  plan::FillGraphTotals(subject.graph, totals);
  const Bytes budget = BudgetBytes(*args.hbm, totals.unplanned_peak_bytes);
  if (budget > 0 || totals.unplanned_peak_bytes == 0) return budget;
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadSize,
               absl::StrCat("--hbm: ", BudgetText(*args.hbm), " of the unplanned peak of ",
                            FormatBytes(totals.unplanned_peak_bytes), " is less than a byte"));
}

absl::StatusOr<Plan> MakeOne(const plan::Planner& planner, const Subject& subject, Bytes budget,
                             std::uint64_t steps) {
  if (&planner != &plan::Planners().front()) {
    return planner.make(subject.graph, subject.machine, budget);
  }
  plan::PlanOptions options;
  options.steps = steps;
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
  HMM_RETURN_IF_ERROR(WriteOut(MakePlanPrinter(command.format)->Compare(subject.context(), plans)));
  return plans.front().verdict == plan::Verdict::kInfeasible ? 1 : 0;
}

absl::StatusOr<int> MakeAndPrint(const Command& command) {
  const PlanArgs& args = command.plan;
  const absl::StatusOr<const plan::Planner*> planner = FindPlannerNamed(args.planner);
  if (!planner.ok()) return planner.status();
  const absl::StatusOr<Subject> subject = ReadSubject(args);
  if (!subject.ok()) return subject.status();
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
  HMM_RETURN_IF_ERROR(WriteOut(MakePlanPrinter(command.format)->Plan(subject->context(), *plan)));
  return plan->verdict == plan::Verdict::kInfeasible ? 1 : 0;
}

absl::StatusOr<int> Check(const Command& command) {
  const PlanArgs& args = command.plan;
  const absl::StatusOr<graph::PlanFile> file = graph::ReadPlanProto(args.plan);
  if (!file.ok()) return file.status();
  const absl::StatusOr<Subject> subject = ReadSubject(args);
  if (!subject.ok()) return subject.status();
  if (const absl::Status same = graph::CheckIdentity(file->graph, subject->graph); !same.ok()) {
    return Annotate(same, absl::StrCat(args.plan, " and ", args.input.graph));
  }
  std::vector<plan::PlanFault> faults =
      plan::Validate(subject->graph, subject->machine, file->plan);
  const bool good = faults.empty();
  HMM_RETURN_IF_ERROR(WriteOut(MakePlanPrinter(command.format)
                                   ->Check(subject->context(), {args.plan, args.input.graph,
                                                                file->plan, std::move(faults)})));
  return good ? 0 : 1;
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
  switch (command.verb) {
    case Verb::kPlan:
      return MakeAndPrint(command);
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
