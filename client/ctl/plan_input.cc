// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/plan_input.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "client/ctl/graph_model.h"
#include "client/ctl/plan_this_machine.h"
#include "client/ctl/table.h"
#include "graph/file_error.h"
#include "graph/machine_file.h"
#include "graph/profile.h"
#include "graph/read_graph.h"

namespace hmm::ctl {
namespace {

// Words with spaces between them, each as EscapeKey prints it.
std::string Printable(const std::string& text) {
  return absl::StrJoin(absl::StrSplit(text, ' '), " ",
                       [](std::string* out, absl::string_view word) {
                         absl::StrAppend(out, EscapeKey(std::string(word)));
                       });
}

constexpr std::uint64_t kWhole = 1'000'000;
constexpr double kPercentMax = 1000;

absl::Status BadFlag(std::string_view flag, std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
               absl::StrCat(std::string(flag), ": ", std::string(what)));
}

absl::StatusOr<Budget> ParsePercent(absl::string_view digits, const std::string& text) {
  double percent = 0;
  // The whole is looked at first: SimpleAtod also takes "inf", "nan" and "1e3".
  if (digits.empty() || digits.find_first_not_of("0123456789.") != absl::string_view::npos ||
      !absl::SimpleAtod(digits, &percent) || percent * kWhole / 100 < 1 || percent > kPercentMax) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadSize,
                 absl::StrCat("'", text, "' is no share of the unplanned peak; write for example ",
                              "74%, above 0% and up to 1000%"));
  }
  Budget budget;
  budget.micros = static_cast<std::uint64_t>(percent * kWhole / 100 + 0.5);
  return budget;
}

}  // namespace

absl::StatusOr<Budget> ParseBudget(std::string_view text) {
  const std::string given(text);
  if (absl::EndsWith(given, "%")) {
    return ParsePercent(absl::string_view(given).substr(0, given.size() - 1), given);
  }
  const absl::StatusOr<Bytes> bytes = ParseBytes(text);
  if (!bytes.ok()) return bytes.status();
  if (*bytes == 0) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadSize,
                 "a budget of 0 holds nothing; write for example 24GiB, or 74% of the graph's "
                 "unplanned peak");
  }
  Budget budget;
  budget.bytes = *bytes;
  return budget;
}

std::string BudgetText(const Budget& budget) {
  if (budget.micros == 0) return FormatBytes(budget.bytes);
  return absl::StrFormat("%g%%", static_cast<double>(budget.micros) * 100 / kWhole);
}

Bytes BudgetBytes(const Budget& budget, Bytes unplanned_peak) {
  if (budget.micros == 0) return budget.bytes;
  // In two parts, since peak * micros may not fit 64 bits.
  const Bytes whole = unplanned_peak / kWhole * budget.micros;
  return whole + unplanned_peak % kWhole * budget.micros / kWhole;
}

absl::Status ParseDims(std::string_view text, std::map<std::string, std::int64_t>& dims) {
  const std::string all(text);
  for (const absl::string_view part : absl::StrSplit(all, ',')) {
    const std::size_t equals = part.rfind('=');
    const absl::string_view name =
        absl::StripAsciiWhitespace(part.substr(0, equals == part.npos ? 0 : equals));
    std::int64_t value = 0;
    if (name.empty() || !absl::SimpleAtoi(part.substr(equals + 1), &value) || value < 0) {
      return BadFlag("--dim",
                     absl::StrCat("'", part, "' is not NAME=NUMBER with a whole number >= ",
                                  "0; write for example --dim batch=1,past=1024"));
    }
    if (!dims.emplace(std::string(name), value).second) {
      return BadFlag("--dim", absl::StrCat("'", name, "' is given twice"));
    }
  }
  return absl::OkStatus();
}

graph::ReadOptions ReadOptionsOf(const GraphArgs& args) {
  graph::ReadOptions options;
  options.onnx.dims = args.dims;
  options.onnx.plain = args.plain;
  options.onnx.external_data_required = !args.without_data;
  options.mindir.external_data_required = !args.without_data;
  return options;
}

absl::StatusOr<plan::Graph> LoadGraph(const GraphArgs& args) {
  const bool onnx = absl::EndsWith(args.graph, ".onnx");
  const bool model = onnx || absl::EndsWith(args.graph, ".mindir");
  if (args.plain && !onnx) {
    return BadFlag("--plain", absl::StrCat(args.graph, " is not an ONNX file (.onnx)"));
  }
  if (args.without_data && !model) {
    return BadFlag("--without-data", absl::StrCat(args.graph, " is no ONNX or MindIR file"));
  }
  if (std::optional<absl::StatusOr<plan::Graph>> made = GraphOfWord(args.graph)) {
    if (args.dims.empty()) return *std::move(made);
    return BadFlag("--dim",
                   absl::StrCat(args.graph, " has no dimensions to bind; write for example ",
                                "llama-8b:prefill,tokens=4096,batch=2"));
  }
  absl::StatusOr<plan::Graph> graph = graph::ReadGraph(args.graph, ReadOptionsOf(args));
  if (!graph.ok() && ReasonOf(graph.status()) == Reason::kBadArgument) {
    return Annotate(graph.status(), "--dim");
  }
  const bool like_a_preset = args.graph.find_first_of("/.") == std::string::npos;
  if (!graph.ok() && absl::IsNotFound(graph.status()) && like_a_preset) {
    return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
                 absl::StrCat("'", args.graph, "' is neither a file nor a preset",
                              graph::Suggestion(args.graph, graph::ModelPresetNames())));
  }
  return graph;
}

absl::StatusOr<plan::Machine> LoadMachine(const std::string& name) {
  if (name == "this") return MeasureThisMachine();
  absl::StatusOr<plan::Machine> machine = graph::LoadMachine(name.empty() ? kDefaultMachine : name);
  if (!machine.ok()) return Annotate(machine.status(), "--machine");
  // They are printed, and a terminal would obey what a file can hold.
  machine->name = EscapeKey(machine->name);
  machine->assumptions = Printable(machine->assumptions);
  return machine;
}

absl::Status GiveDurations(const std::string& profile, plan::Graph& graph) {
  if (profile.empty()) return absl::OkStatus();
  const absl::StatusOr<graph::Profile> read = graph::ReadProfile(profile);
  if (!read.ok()) return Annotate(read.status(), "--profile");
  // What it does not name takes the roofline's time, and every report says for how many ops.
  const absl::StatusOr<graph::ProfileUse> use =
      graph::ApplyProfile(*read, graph, {.missing_ok = true});
  return use.ok() ? absl::OkStatus() : Annotate(use.status(), "--profile");
}

absl::StatusOr<const plan::Planner*> FindPlannerNamed(const std::string& name) {
  if (name.empty()) return &plan::Planners().front();
  if (const plan::Planner* planner = plan::FindPlanner(name)) return planner;
  std::vector<std::string_view> known;
  for (const plan::Planner& planner : plan::Planners()) known.push_back(planner.name);
  return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
               absl::StrCat("'", name, "' is no planner", graph::Suggestion(name, known)));
}

}  // namespace hmm::ctl
