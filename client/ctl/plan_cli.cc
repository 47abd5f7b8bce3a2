// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/plan_cli.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/cli_parts.h"
#include "client/ctl/plan_input.h"

namespace hmm::ctl {
namespace {

constexpr std::uint64_t kStepsMax = std::uint64_t{1} << 40;

void AddInput(CLI::App* app, Command* command) {
  PlanArgs* args = &command->plan;
  AddGraphInput(app, command);
  app->add_option(
         "--machine", args->machine,
         absl::StrCat("h100, gh200, ascend-supernode, a TOML file, or \"this\": measured now "
                      "(default ",
                      kDefaultMachine, ")"))
      ->type_name("MACHINE");
}

void AddPlanning(CLI::App* app, Command* command) {
  PlanArgs* args = &command->plan;
  app->add_option_function<std::string>(
         "--hbm",
         [args](const std::string& text) {
           const absl::StatusOr<Budget> budget = ParseBudget(text);
           if (!budget.ok()) {
             throw CLI::ValidationError("--hbm", std::string(budget.status().message()));
           }
           args->hbm = *budget;
         },
         "The budget: a size, or a share of the unplanned peak as in 74% (default: the machine's)")
      ->type_name("SIZE");
  app->add_option("--profile", args->profile, "Durations of ops: CSV with a header op,microseconds")
      ->type_name("CSV");
  app->add_option(
         "--planner", args->planner,
         "hmm (default), none, lru, distance, span-greedy, backward-walk or hyper-parallel")
      ->check([](const std::string& name) {
        return std::string(FindPlannerNamed(name).status().message());
      })
      ->type_name("NAME");
  app->add_option("--steps", args->steps, "Bound of the planner's effort (default: about a second)")
      ->check(CLI::Range(std::uint64_t{1}, kStepsMax));
}

void AddCheck(CLI::App* plan, Command* command) {
  CLI::App* app =
      AddVerb(plan, "check", "Prove that a plan is safe for a graph", Verb::kPlanCheck, command);
  app->add_option("plan", command->plan.plan, "What `plan --out` or `--emit-graph` wrote")
      ->required()
      ->type_name("PLAN");
  AddInput(app, command);
}

void AddExplain(CLI::App* plan, Command* command) {
  CLI::App* app = AddVerb(plan, "explain", "Why a plan moves a tensor, or leaves it where it is",
                          Verb::kPlanExplain, command);
  app->add_option("tensor", command->plan.tensor, "Its name, or an alias")
      ->required()
      ->type_name("TENSOR");
  AddInput(app, command);
  AddPlanning(app, command);
  app->add_option("--plan", command->plan.plan, "The plan of this file instead of a new one")
      ->type_name("PLAN");
}

void AddDiff(CLI::App* plan, Command* command) {
  CLI::App* app = AddVerb(plan, "diff", "What differs between two plans of one graph",
                          Verb::kPlanDiff, command);
  app->add_option("a", command->plan.plan, "What `plan --out` or `--emit-graph` wrote")
      ->required()
      ->type_name("A");
  app->add_option("b", command->plan.other, "Another")->required()->type_name("B");
  AddGraphInput(app, command);
}

void AddSweep(CLI::App* plan, Command* command) {
  PlanArgs* args = &command->plan;
  plan->add_flag("--sweep", args->sweep,
                 "Stall against budget, from the floor to the unplanned peak");
  InOneWord(plan->add_option_function<std::vector<std::string>>(
                "--at",
                [args](const std::vector<std::string>& texts) {
                  for (const std::string& text : texts) {
                    const absl::StatusOr<Budget> budget = ParseBudget(text);
                    if (!budget.ok()) {
                      throw CLI::ValidationError("--at", std::string(budget.status().message()));
                    }
                    args->points.push_back(*budget);
                  }
                },
                "Budgets to sweep over, as in 50%,74%,24GiB"))
      ->type_name("SIZE,...");
  plan->add_option_function<std::string>(
          "--stall-max",
          [args](const std::string& text) {
            const absl::StatusOr<Budget> share = ParseBudget(text);
            if (!share.ok() || share->micros == 0) {
              throw CLI::ValidationError("--stall-max", "'" + text + "' is not a share such as 1%");
            }
            args->stall_max = static_cast<double>(share->micros) / 1e6;
          },
          "Also look for the smallest budget with at most this much of the compute time exposed")
      ->type_name("PERCENT");
  plan->add_option("--svg", args->svg, "Also draw the sweep")->check(NotEmpty)->type_name("FILE");
}

void AddLayout(CLI::App* plan, Command* command) {
  PlanArgs* args = &command->plan;
  CLI::App* app = AddVerb(plan, "layout", "Give intervals of a CSV file fixed offsets",
                          Verb::kPlanLayout, command);
  app->add_option("csv", args->csv, "id,lower,upper,size, as minimalloc's benchmarks")
      ->required()
      ->type_name("FILE");
  app->add_option_function<std::string>(
         "--capacity",
         [args](const std::string& text) {
           const absl::StatusOr<Bytes> bytes = ParseBytes(text);
           if (!bytes.ok()) {
             throw CLI::ValidationError("--capacity", std::string(bytes.status().message()));
           }
           args->capacity = *bytes;
         },
         "Where all of them have to end at")
      ->required()
      ->type_name("SIZE");
  app->add_option("--out", args->out, "Also write them with their offsets as CSV")
      ->check(NotEmpty)
      ->type_name("FILE");
  app->add_option("--steps", args->steps, "Bound of the search (default 4000000: a few seconds)")
      ->check(CLI::Range(std::uint64_t{1}, kStepsMax));
}

}  // namespace

void AddGraphInput(CLI::App* app, Command* command) {
  PlanArgs* args = &command->plan;
  app->add_option("graph", args->input.graph,
                  "A file (.onnx, .mindir, .pb, .pbtxt, .json), or a preset as in "
                  "llama-8b:decode,batch=4")
      ->type_name("GRAPH");
  app->add_option_function<std::vector<std::string>>(
         "--dim",
         [args](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) {
             const absl::Status parsed = ParseDims(text, args->input.dims);
             if (!parsed.ok()) throw CLI::ValidationError(std::string(parsed.message()));
           }
         },
         "Values of an ONNX file's symbolic dimensions, as in batch=1,past=1024")
      ->type_name("NAME=N,...")
      ->take_all();
  app->add_flag("--plain", args->input.plain,
                "ONNX: activations only, no aliases: the accounting of published figures");
  app->add_flag("--without-data", args->input.without_data,
                "ONNX, MindIR: take sizes from shapes where files with weights are missing");
}

void AddPlan(CLI::App* app, Command* command) {
  PlanArgs* args = &command->plan;
  CLI::App* plan = app->add_subcommand(
      "plan", "From a graph to a plan of its memory; needs no daemon. Exit code 1: infeasible");
  plan->fallthrough();
  plan->require_subcommand(0, 1);
  AddInput(plan, command);
  AddPlanning(plan, command);
  plan->add_flag("--compare", args->compare, "All planners side by side");
  plan->add_option("--out", args->out, "Also write the plan: .pb or .pbtxt")
      ->check(NotEmpty)
      ->type_name("FILE");
  plan->add_option("--emit-graph", args->emit_graph,
                   "Also write the graph with the plan's moves as ops in it: .onnx or .mindir")
      ->check(NotEmpty)
      ->type_name("FILE");
  plan->add_option("--report", args->report,
                   "Also write a page to look at: memory, timeline, moved tensors (HTML)")
      ->check(NotEmpty)
      ->type_name("FILE");
  plan->add_option("--trace", args->trace, "Also write a trace for Chrome or Perfetto (JSON)")
      ->check(NotEmpty)
      ->type_name("FILE");
  AddSweep(plan, command);
  AddExplain(plan, command);
  AddDiff(plan, command);
  AddCheck(plan, command);
  AddLayout(plan, command);
  // Runs after a subcommand's own callback.
  plan->callback([plan, command] {
    if (plan->get_subcommands().empty()) {
      command->verb = Verb::kPlan;
      return;
    }
    for (const CLI::Option* option : plan->get_options()) {
      if (option->count() == 0) continue;
      throw CLI::ValidationError(absl::StrCat(option->get_name(),
                                              " of `plan` does not go with `plan ",
                                              plan->get_subcommands().front()->get_name(), "`"));
    }
  });
}

namespace {

std::string SweepContradiction(const PlanArgs& args) {
  if (!args.sweep) {
    if (!args.points.empty()) return "--at goes with --sweep";
    if (args.stall_max) return "--stall-max goes with --sweep";
    return args.svg.empty() ? "" : "--svg goes with --sweep";
  }
  if (args.hbm) return "--sweep takes many budgets: give them with --at, not --hbm";
  if (args.compare || !args.planner.empty()) return "--sweep is for our own planner only";
  if (!args.out.empty()) return "--sweep makes no plan to write with --out";
  if (!args.report.empty())
    return "--sweep makes no plan to show with --report: draw it with --svg";
  if (!args.trace.empty()) return "--sweep makes no plan to write with --trace";
  return "";
}

}  // namespace

std::string PlanContradiction(const Command& command) {
  const PlanArgs& args = command.plan;
  switch (command.verb) {
    case Verb::kPlan:
      if (args.input.graph.empty()) return "plan: GRAPH is required";
      if (args.compare && !args.planner.empty()) return "--compare takes every planner, not one";
      if (args.compare && !args.out.empty()) return "--compare makes no plan to write with --out";
      if (!args.emit_graph.empty() && (args.compare || args.sweep)) {
        return "--emit-graph needs one plan, not --compare or --sweep";
      }
      if (args.compare && !args.trace.empty())
        return "--trace takes one plan, --compare makes many";
      return SweepContradiction(args);
    case Verb::kPlanExplain:
      if (args.input.graph.empty()) return "plan explain: GRAPH is required";
      if (!args.plan.empty() && (args.hbm || !args.planner.empty() || args.steps > 0)) {
        return "--plan has its own budget and planner";
      }
      return "";
    case Verb::kPlanDiff:
      return !args.input.dims.empty() && args.input.graph.empty() ? "--dim: needs GRAPH" : "";
    case Verb::kPlanCheck:
      return args.input.graph.empty() ? "plan check: GRAPH is required" : "";
    case Verb::kGraphModel:
      return !args.out_format.empty() && args.out.empty() ? "--format goes with --out" : "";
    case Verb::kGraphShow:
      if (!args.out_format.empty() && args.out.empty()) return "--format goes with --out";
      return args.input.graph.empty() ? "graph show: GRAPH is required" : "";
    case Verb::kPlanLayout:
      return args.capacity == 0 ? "--capacity: must not be 0" : "";
    default:
      return "";
  }
}

}  // namespace hmm::ctl
