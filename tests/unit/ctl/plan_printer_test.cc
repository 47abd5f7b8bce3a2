// SPDX-License-Identifier: Apache-2.0
// How plans, sweeps, explanations and layouts read: the keys of the JSON contract, the words.
#include "client/ctl/plan_printer.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/ctl/graph_summary.h"
#include "client/ctl/plan_words.h"
#include "plan/baselines.h"
#include "plan/planner.h"
#include "support/catch.h"

namespace hmm::ctl {
namespace {

using Catch::Contains;
using nlohmann::ordered_json;

// x is idle while b and c run, each of which takes longer than its transfers.
plan::Graph FourOps() {
  plan::Graph graph;
  graph.name = "four";
  const auto storage = [&graph](const char* name, Bytes bytes) {
    plan::Storage s;
    s.name = name;
    s.bytes = bytes;
    graph.storages.push_back(s);
  };
  storage("x", kMiB);
  storage("y", 2 * kMiB);
  storage("z", kMiB);
  storage("out", kKiB);
  graph.storages[3].output = true;
  const auto op = [&graph](const char* name, std::vector<plan::StorageIndex> reads,
                           plan::StorageIndex write) {
    plan::Op o;
    o.name = name;
    o.type = "MatMul";
    o.reads = std::move(reads);
    o.writes = {write};
    o.microseconds = 2000;
    graph.ops.push_back(o);
  };
  op("a", {}, 0);
  op("b", {}, 1);
  op("c", {1}, 2);
  op("d", {0, 2}, 3);
  graph.ops[1].after = {0};  // else another order needs no moves at all
  return graph;
}

plan::Plan PlanFor(const plan::Graph& graph, const plan::Machine& machine, Bytes budget) {
  absl::StatusOr<plan::Plan> plan = plan::MakePlan(graph, machine, budget);
  REQUIRE(plan.ok());
  return *std::move(plan);
}

ordered_json JsonOf(const std::string& text) {
  ordered_json value = ordered_json::parse(text, nullptr, false);
  REQUIRE_FALSE(value.is_discarded());
  return value;
}

const std::vector<std::string> kContract = {
    "planner",           "verdict",     "unplanned_peak_bytes",
    "unplanned_peak_op", "floor_bytes", "budget_bytes",
    "peak_bytes",        "compute_us",  "step_us",
    "stall_us",          "moved_bytes", "high_water_bytes",
    "lower_bound_bytes", "short_bytes", "short_op",
    "unknown_tensors"};

TEST_CASE("a plan as JSON: the keys of the contract first, in their order") {
  plan::Graph graph = FourOps();
  graph.unknown = {"mystery"};
  const plan::Machine machine = *plan::MachinePreset("ascend-supernode");
  for (const Bytes budget : {4 * kMiB, 3 * kMiB + 4 * kKiB, kMiB}) {
    const plan::Plan plan = PlanFor(graph, machine, budget);
    const ordered_json json = JsonOf(MakePlanJsonPrinter()->Plan({graph, machine}, plan));
    std::vector<std::string> keys;
    for (const auto& [key, value] : json.items()) keys.push_back(key);
    REQUIRE(keys.size() > kContract.size());
    keys.resize(kContract.size());
    CHECK(keys == kContract);
    CHECK(json["verdict"] == std::string(plan::VerdictName(plan.verdict)));
    CHECK(json["unplanned_peak_bytes"] == 4 * kMiB);
    CHECK(json["unplanned_peak_op"] == 2);
    CHECK(json["unplanned_peak_op_name"] == "c");
    CHECK(json["unknown_tensors"] == 1);
    CHECK(json["budget_bytes"] == budget);
  }
}

TEST_CASE("the three verdicts in words, first") {
  const plan::Graph graph = FourOps();
  const plan::Machine machine = *plan::MachinePreset("ascend-supernode");
  const std::unique_ptr<PlanPrinter> table = MakePlanTablePrinter();
  const std::string fits = table->Plan({graph, machine}, PlanFor(graph, machine, 4 * kMiB));
  CHECK_THAT(fits, Catch::StartsWith("fits: needs no plan") && Contains("assumed, not measured"));
  const std::string planned =
      table->Plan({graph, machine}, PlanFor(graph, machine, 3 * kMiB + 4 * kKiB));
  CHECK_THAT(planned, Catch::StartsWith("planned: ") && Contains("80% hidden needs"));
  const plan::Plan none = PlanFor(graph, machine, kMiB);
  const std::string infeasible = table->Plan({graph, machine}, none);
  CHECK_THAT(infeasible, Catch::StartsWith("infeasible: op 2 \"c\" (MatMul) is short by 2 MiB"));
  CHECK_THAT(infeasible, Contains("The smallest that would do: 3 MiB (3145728 bytes)"));
  // One byte off a round number: both amounts are rounded alike.
  CHECK_THAT(table->Plan({graph, machine}, PlanFor(graph, machine, kMiB + 1)),
             Contains(" is short by 2.0 MiB (2097151 bytes)\n"
                      "The smallest that would do: 3.0 MiB (3145728 bytes)"));
  const ordered_json json = JsonOf(MakePlanJsonPrinter()->Plan({graph, machine}, none));
  CHECK(json["short_op"] == 2);
  CHECK(json["short_bytes"] == 2 * kMiB);
  CHECK(json["short_tier"] == "hbm");
  CHECK(json["smallest_budget_bytes"] == 3 * kMiB);
}

TEST_CASE("tensors of unknown size are named and counted") {
  plan::Graph graph = FourOps();
  CHECK(UnknownText(graph).empty());
  for (int i = 0; i < 10; ++i) graph.unknown.push_back("u" + std::to_string(i));
  CHECK_THAT(UnknownText(graph),
             Contains("10 tensors") && Contains("\"u0\"") && Contains("2 more"));
  const plan::Machine machine = *plan::MachinePreset("h100");
  const plan::Plan plan = PlanFor(graph, machine, 4 * kMiB);
  CHECK_THAT(MakePlanTablePrinter()->Plan({graph, machine}, plan), Contains("10 tensors"));
  CHECK(
      JsonOf(MakePlanJsonPrinter()->Plan({graph, machine}, plan))["unknown_tensor_names"].size() ==
      10);
}

TEST_CASE("an explanation has the three factors, the gap and the slot on the link") {
  const plan::Graph graph = FourOps();
  const plan::Machine machine = *plan::MachinePreset("ascend-supernode");
  const plan::Plan plan = PlanFor(graph, machine, 3 * kMiB + 4 * kKiB);
  const ExplainReport report{plan, plan::Explain(graph, machine, plan, 0)};
  const std::string text = MakePlanTablePrinter()->Explain({graph, machine}, report);
  CHECK_THAT(text, Catch::StartsWith("x: moved between op a and op d") && Contains("frequency") &&
                       Contains("recompute") && Contains("bandwidth") && Contains("inner"));
  const ordered_json json = JsonOf(MakePlanJsonPrinter()->Explain({graph, machine}, report));
  CHECK(json["tensor"] == "x");
  REQUIRE(json["gaps"].size() == 1);
  CHECK(json["gaps"][0]["moved"] == true);
  CHECK(json["gaps"][0]["slack_us"] == 4000.0);
  REQUIRE(json["moves"].size() == 2);
  CHECK(json["moves"][1]["move"] == "SwapIn");
  CHECK(json["moves"][1]["queue_length"] == 1);
}

TEST_CASE("a difference names what only one plan moves") {
  const plan::Graph graph = FourOps();
  const plan::Machine machine = *plan::MachinePreset("ascend-supernode");
  const plan::Plan a = PlanFor(graph, machine, 4 * kMiB);
  const plan::Plan b = PlanFor(graph, machine, 3 * kMiB + 4 * kKiB);
  const DiffReport differ{"a.pb", "b.pb", a, b, plan::DiffPlans(a, b), &graph};
  CHECK_THAT(MakePlanTablePrinter()->Diff(differ), Contains("SwapIn") && Contains("+2MiB"));
  const ordered_json json = JsonOf(MakePlanJsonPrinter()->Diff(differ));
  CHECK(json["same"] == false);
  CHECK(json["only_a"].empty());
  CHECK(json["only_b"].size() == b.moves.size());
  CHECK(json["only_b"][0]["of"] == "x");
  const DiffReport same{"b.pb", "b.pb", b, b, plan::DiffPlans(b, b), nullptr};
  CHECK_THAT(MakePlanTablePrinter()->Diff(same), Catch::StartsWith("the same moves"));
}

TEST_CASE("a sweep as table, JSON and picture") {
  const plan::Graph graph = FourOps();
  const plan::Machine machine = *plan::MachinePreset("ascend-supernode");
  const absl::StatusOr<std::vector<plan::SweepPoint>> points =
      plan::Sweep(graph, machine, {2 * kMiB, 3 * kMiB, 4 * kMiB});
  REQUIRE(points.ok());
  const SweepReport report{3 * kMiB, 4 * kMiB, 8000, *points};
  const ordered_json json = JsonOf(MakePlanJsonPrinter()->Sweep({graph, machine}, report));
  REQUIRE(json["points"].size() == 3);
  CHECK(json["points"][0]["verdict"] == "infeasible");
  CHECK(json["points"][2]["verdict"] == "fits");
  CHECK_THAT(MakePlanTablePrinter()->Sweep({graph, machine}, report),
             Contains("infeasible") && Contains("4MiB") && Contains("100%"));
  const std::string svg = SweepSvg(report, "a<b & \"c\"\n", "note");
  CHECK_THAT(svg, Catch::StartsWith("<svg ") && Catch::EndsWith("</svg>\n") &&
                      Contains("a&lt;b &amp; &quot;c&quot; <"));
  CHECK_THAT(SweepSvg({}, "nothing", ""), Catch::EndsWith("</svg>\n"));
}

TEST_CASE("a comparison has a row a planner") {
  const plan::Graph graph = FourOps();
  const plan::Machine machine = *plan::MachinePreset("ascend-supernode");
  std::vector<plan::Plan> plans;
  for (const plan::Planner& planner : plan::Planners()) {
    absl::StatusOr<plan::Plan> plan = planner.make(graph, machine, 3 * kMiB + 4 * kKiB);
    REQUIRE(plan.ok());
    plans.push_back(*std::move(plan));
  }
  const std::string text = MakePlanTablePrinter()->Compare({graph, machine}, plans);
  for (const plan::Planner& planner : plan::Planners()) {
    CHECK_THAT(text, Contains(std::string(planner.name)));
  }
  CHECK_THAT(text, Contains("infeasible"));  // "none" moves nothing
  CHECK(JsonOf(MakePlanJsonPrinter()->Compare({graph, machine}, plans)).size() ==
        plan::Planners().size());
}

TEST_CASE("faults of a plan, and none") {
  const plan::Graph graph = FourOps();
  const plan::Machine machine = *plan::MachinePreset("ascend-supernode");
  plan::Plan plan = PlanFor(graph, machine, 3 * kMiB + 4 * kKiB);
  const CheckReport good{"p", "g", plan, plan::Validate(graph, machine, plan)};
  CHECK_THAT(MakePlanTablePrinter()->Check({graph, machine}, good), Catch::StartsWith("good: p"));
  CHECK(JsonOf(MakePlanJsonPrinter()->Check({graph, machine}, good))["good"] == true);
  plan.budget_bytes = 3 * kMiB - 1;
  const CheckReport bad{"p", "g", plan, plan::Validate(graph, machine, plan)};
  CHECK_THAT(MakePlanTablePrinter()->Check({graph, machine}, bad), Catch::StartsWith("refused: p"));
  CHECK(JsonOf(MakePlanJsonPrinter()->Check({graph, machine}, bad))["faults"].size() ==
        bad.faults.size());
}

TEST_CASE("offsets of a layout") {
  const absl::StatusOr<LayoutCsv> csv = ReadLayoutCsv(HMM_TEST_DATA "/alloc/input.12.csv");
  REQUIRE(csv.ok());
  plan::LayoutProblem problem{csv->intervals, 12};
  const plan::LayoutResult fits = plan::SolveLayout(problem, {});
  const ordered_json json = JsonOf(MakePlanJsonPrinter()->Layout({*csv, problem, fits}));
  CHECK(json["verdict"] == "fits");
  CHECK(json["high_water_bytes"] == 12);
  REQUIRE(json["buffers"].size() == 5);
  CHECK(json["buffers"][4]["id"] == "b5");
  problem.capacity = 11;
  const plan::LayoutResult small = plan::SolveLayout(problem, {});
  CHECK(JsonOf(MakePlanJsonPrinter()->Layout({*csv, problem, small}))["verdict"] == "too_small");
  CHECK_THAT(MakePlanTablePrinter()->Layout({*csv, problem, small}), Contains("1 more than"));
}

TEST_CASE("a graph's summary") {
  plan::Graph graph = FourOps();
  graph.storages[0].kind = TensorKind::kWeight;
  graph.storages[0].persistent = true;
  const GraphSummary summary = Summarize(graph);
  CHECK(summary.all.bytes == 4 * kMiB + kKiB);
  CHECK(summary.persistent.bytes == kMiB);
  CHECK(summary.timed_ops == 4);
  const ordered_json json = JsonOf(FormatSummary(graph, summary, Format::kJson));
  CHECK(json["bytes_by_kind"]["weight"] == kMiB);
  CHECK(json["bytes_by_kind"]["activation"] == 3 * kMiB + kKiB);
  CHECK(json["parameters"].is_null());
  CHECK(json["unplanned_peak_bytes"] == 4 * kMiB);
  CHECK_THAT(FormatSummary(graph, summary, Format::kTable), Contains("of-it-persistent"));
}

TEST_CASE("reports on an empty graph") {
  const plan::Graph graph;
  const plan::Machine machine = *plan::MachinePreset("h100");
  const plan::Plan plan = PlanFor(graph, machine, kMiB);
  CHECK_THAT(MakePlanTablePrinter()->Plan({graph, machine}, plan), Catch::StartsWith("fits"));
  const ordered_json json = JsonOf(MakePlanJsonPrinter()->Plan({graph, machine}, plan));
  CHECK(json["unplanned_peak_op"].is_null());
  CHECK_THAT(FormatSummary(graph, Summarize(graph), Format::kTable), Contains("0 ops"));
}

}  // namespace
}  // namespace hmm::ctl
