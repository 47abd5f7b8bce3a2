// SPDX-License-Identifier: Apache-2.0
// What words of the command line `hmmctl plan` and `hmmctl graph` take, and what they say to
// others.
#include "client/ctl/plan_input.h"

#include <fstream>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/ctl/cli.h"
#include "client/ctl/graph_model.h"
#include "client/ctl/graph_summary.h"
#include "client/ctl/plan_layout_csv.h"
#include "plan/lifetimes.h"
#include "support/catch.h"

namespace hmm::ctl {
namespace {

using Catch::Contains;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

ParsedCommand Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "hmmctl");
  return ParseCommandLine(static_cast<int>(words.size()), words.data());
}
Command Accepted(const std::vector<const char*>& words) {
  ParsedCommand parsed = Parse(words);
  REQUIRE(parsed.command);
  return *parsed.command;
}
void Refused(const std::vector<const char*>& words) {
  INFO(words.back());
  const ParsedCommand parsed = Parse(words);
  CHECK_FALSE(parsed.command);
  CHECK(parsed.exit_code == 2);
}

TEST_CASE("budgets are sizes or shares of the unplanned peak") {
  CHECK(BudgetBytes(*ParseBudget("24GiB"), 5) == 24 * kGiB);
  CHECK(BudgetBytes(*ParseBudget("2100000000"), 5) == 2'100'000'000);
  CHECK(BudgetBytes(*ParseBudget("74%"), 1000) == 740);
  CHECK(BudgetBytes(*ParseBudget("12.5%"), 1000) == 125);
  CHECK(BudgetBytes(*ParseBudget("100%"), 3'917'574'130) == 3'917'574'130);
  CHECK(BudgetBytes(*ParseBudget("50%"), Bytes{1} << 61) == Bytes{1} << 60);
  CHECK(BudgetText(*ParseBudget("12.5%")) == "12.5%");
  CHECK(BudgetText(*ParseBudget("24GiB")) == "24 GiB");
  for (const char* bad : {"0", "0GiB", "0%", "%", "-5%", "7GB", "", "nan%", "inf%", "1e3%", "1001%",
                          "1.2.3%", "99999999999999999999"}) {
    INFO(bad);
    const absl::StatusOr<Budget> budget = ParseBudget(bad);
    REQUIRE_FALSE(budget.ok());
    CHECK(ReasonOf(budget.status()) == Reason::kBadSize);
  }
  CHECK_THAT(MessageOf(ParseBudget("0").status()), Contains("24GiB"));
}

TEST_CASE("--dim binds names to whole numbers, each once") {
  std::map<std::string, std::int64_t> dims;
  REQUIRE(ParseDims("batch=1,past=1024", dims).ok());
  REQUIRE(ParseDims("ids:0=0", dims).ok());
  CHECK(dims == std::map<std::string, std::int64_t>{{"batch", 1}, {"past", 1024}, {"ids:0", 0}});
  for (const char* bad : {"", "batch", "=1", "b=", "b=x", "b=-1", "b=1.5", "b=1,", ",b=1",
                          "b=99999999999999999999", "past=3"}) {
    INFO(bad);
    std::map<std::string, std::int64_t> copy = dims;
    const absl::Status status = ParseDims(bad, copy);
    CHECK(ReasonOf(status) == Reason::kBadArgument);
    CHECK_THAT(MessageOf(status), Contains("--dim"));
  }
}

TEST_CASE("unknown planners, machines and presets are told the nearest known") {
  REQUIRE(FindPlannerNamed("").ok());
  CHECK((*FindPlannerNamed(""))->name == "hmm");
  CHECK((*FindPlannerNamed("span-greedy"))->name == "span-greedy");
  CHECK_THAT(MessageOf(FindPlannerNamed("spangreedy").status()), Contains("'span-greedy'"));
  CHECK(LoadMachine("")->name == kDefaultMachine);
  CHECK(LoadMachine("h100")->name == "h100");
  CHECK_THAT(LoadMachine("")->assumptions, Contains("assumed, not measured"));
  CHECK_THAT(MessageOf(LoadMachine("h10").status()), Contains("--machine") && Contains("h100"));
  CHECK_THAT(MessageOf(LoadGraph({"llama-9b", {}}).status()), Contains("'llama-8b'"));
  CHECK(absl::IsNotFound(LoadGraph({"/no/such/graph.pb", {}}).status()));
  CHECK_THAT(MessageOf(LoadGraph({"llama-8b", {{"batch", 1}}}).status()), Contains("--dim"));
}

TEST_CASE("this machine is measured, and says that it is") {
  absl::StatusOr<plan::Machine> machine = LoadMachine("this");
  // A busy machine is refused, and says so.
  for (int i = 0; i < 20 && absl::IsUnavailable(machine.status()); ++i)
    machine = LoadMachine("this");
  REQUIRE(machine.ok());
  CHECK(machine->flops_per_us > 0);
  CHECK(machine->hbm_bytes_per_us > 0);
  CHECK(plan::FindLink(*machine, TierKind::kDdr, TierKind::kHbm) != nullptr);
  CHECK_THAT(machine->assumptions, Contains("measured now") && Contains("memcpy"));
}

TEST_CASE("a preset's word is a graph") {
  const absl::StatusOr<plan::Graph> prefill = LoadGraph({"llama-8b", {}});
  REQUIRE(prefill.ok());
  CHECK(plan::CheckGraph(*prefill).ok());
  const absl::StatusOr<plan::Graph> decode = LoadGraph({"llama-8b:decode,context=100,batch=2", {}});
  REQUIRE(decode.ok());
  const auto kv = [](const plan::Graph& graph) {
    return Summarize(graph).kinds[static_cast<std::size_t>(TensorKind::kKvCache) - 1].bytes;
  };
  // 32 layers, keys and values of 8 heads of 128 elements of 2 bytes, a token.
  constexpr Bytes kToken = 32 * 2 * 8 * 128 * 2;
  CHECK(kv(*prefill) == kDefaultTokens * kToken);
  CHECK(kv(*decode) == 2 * 101 * kToken);
  CHECK_FALSE(GraphOfWord("llama"));
  for (const char* bad : {"llama-8b:", "llama-8b:decod", "llama-8b:decode,context",
                          "llama-8b:decode,ctx=1", "llama-8b:batch=-1", "llama-8b:decode,context=0",
                          "llama-8b:batch=99999999999999999999", "llama-8b:batch=0"}) {
    INFO(bad);
    const auto graph = GraphOfWord(bad);
    REQUIRE(graph);
    REQUIRE_FALSE(graph->ok());
    CHECK_THAT(MessageOf(graph->status()), Contains(bad));
  }
}

TEST_CASE("a model's flags change its preset") {
  ModelArgs args = Accepted({"graph", "moe", "--preset", "deepseek-v3", "--layers", "5", "--phase",
                             "decode", "--batch", "3"})
                       .model;
  const absl::StatusOr<ModelSpec> spec = MakeModelSpec(args);
  REQUIRE(spec.ok());
  CHECK(spec->shape.layers == 5);
  CHECK(spec->shape.experts == 256);
  CHECK(spec->step.phase == graph::Phase::kDecode);
  CHECK(spec->step.batch == 3);
  CHECK(spec->step.tokens == 1);
  CHECK(spec->step.context == kDefaultContext);
  REQUIRE(GenerateSpec(args, *spec).ok());
  args.moe = false;
  CHECK_FALSE(GenerateSpec(args, *spec).ok());
  args.preset = "deepseek-v2";
  CHECK_THAT(MessageOf(MakeModelSpec(args).status()), Contains("'deepseek-v3'"));
}

TEST_CASE("the verbs of plan and graph") {
  const Command plan = Accepted({"plan", "g.pb", "--hbm", "74%", "--machine", "h100", "--dim",
                                 "a=1,b=2", "--dim", "c=3", "-o", "json", "--out", "p.pb"});
  CHECK(plan.verb == Verb::kPlan);
  CHECK(plan.plan.input.graph == "g.pb");
  CHECK(plan.plan.input.dims.size() == 3);
  CHECK(plan.plan.hbm->micros == 740'000);
  CHECK(plan.plan.out == "p.pb");
  CHECK(plan.format == Format::kJson);
  CHECK(Accepted({"plan", "g.pb"}).plan.hbm == std::nullopt);
  CHECK(Accepted({"plan", "g.pb", "--sweep", "--at", "50%,1GiB"}).plan.points.size() == 2);
  const Command explain = Accepted({"plan", "explain", "w", "g.pb", "--hbm", "1GiB"});
  CHECK(explain.verb == Verb::kPlanExplain);
  CHECK(explain.plan.tensor == "w");
  CHECK(explain.plan.input.graph == "g.pb");
  const Command diff = Accepted({"plan", "diff", "a.pb", "b.pb"});
  CHECK(diff.verb == Verb::kPlanDiff);
  CHECK(diff.plan.other == "b.pb");
  CHECK(Accepted({"plan", "check", "p.pb", "g.pb"}).verb == Verb::kPlanCheck);
  CHECK(Accepted({"plan", "layout", "x.csv", "--capacity", "1MiB"}).plan.capacity == kMiB);
  CHECK(Accepted({"graph", "show", "g.onnx", "--dim", "n=4"}).verb == Verb::kGraphShow);
  CHECK_FALSE(Accepted({"graph", "llama", "--preset", "llama-8b"}).model.moe);
}

TEST_CASE("what these verbs refuse") {
  Refused({"plan"});
  Refused({"plan", "g.pb", "--hbm", "0"});
  Refused({"plan", "g.pb", "--hbm", "7GB"});
  Refused({"plan", "g.pb", "--dim", "a"});
  Refused({"plan", "g.pb", "--dim", "a=1,a=2"});
  Refused({"plan", "g.pb", "--steps", "0"});
  Refused({"plan", "g.pb", "more"});
  Refused({"plan", "g.pb", "--compare", "--planner", "lru"});
  Refused({"plan", "g.pb", "--sweep", "--hbm", "1GiB"});
  Refused({"plan", "g.pb", "--at", "50%"});
  Refused({"plan", "g.pb", "--svg", "x.svg"});
  Refused({"plan", "check", "p.pb"});
  Refused({"plan", "check", "p.pb", "g.pb", "more"});
  Refused({"plan", "--hbm", "1GiB", "check", "p.pb", "g.pb"});
  Refused({"plan", "explain", "w", "g.pb", "--plan", "p.pb", "--hbm", "1GiB"});
  Refused({"plan", "diff", "a.pb"});
  Refused({"plan", "layout", "x.csv"});
  Refused({"plan", "layout", "x.csv", "--capacity", "0"});
  Refused({"graph"});
  Refused({"graph", "llama", "--experts", "8"});
  Refused({"graph", "llama", "--layers", "-3"});
}

TEST_CASE("intervals from a CSV file") {
  const absl::StatusOr<LayoutCsv> csv = ReadLayoutCsv(HMM_TEST_DATA "/alloc/input.12.csv");
  REQUIRE(csv.ok());
  CHECK(csv->ids == std::vector<std::string>{"b1", "b2", "b3", "b4", "b5"});
  CHECK(csv->intervals[3].begin == 9);
  CHECK(csv->intervals[3].end == 21);
  CHECK(csv->intervals[3].bytes == 4);
  CHECK(FormatLayoutCsv(*csv, {8, 8, 4, 4, 0}).substr(0, 37) ==
        "id,lower,upper,size,offset\nb1,0,3,4,8");
  // Other tools' columns, in another order; a hole; an alignment; DOS line ends.
  const absl::StatusOr<LayoutCsv> rich = ParseLayoutCsv(
      "offset,size,upper,lower,gaps,alignment,id\r\n7,5,9,-4,-2-3 5-6,64,x\r\n", "f");
  REQUIRE(rich.ok());
  CHECK(FormatLayoutCsv(*rich, {64}) ==
        "id,lower,upper,size,alignment,gaps,offset\nx,-4,9,5,64,-2-3 5-6,64\n");
  const plan::Interval& x = rich->intervals[0];
  CHECK(x.begin == -4);
  CHECK(x.alignment == 64);
  REQUIRE(x.gaps.size() == 2);
  CHECK(x.gaps[0].begin == -2);
  CHECK(x.gaps[0].end == 3);
}

TEST_CASE("bad CSV: the line and the column are named") {
  const std::string head = "id,lower,upper,size\n";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "empty"},
      {"a,0,3,4\n", "f:1: no column 'id'"},
      {"id,lower,upper,size,size\n", "twice"},
      {head + "a,0,3\n", "f:2: only 3 fields; 'size'"},
      {head + "\na,x,3,4\n", "f:3: lower"},
      {head + "a,0,3.5,4\n", "f:2: upper"},
      {head + "a,0,3,-4\n", "f:2: size"},
      {head + "a,0,3,0\n", "f:2: its size is zero"},
      {head + "a,3,3,4\n", "f:2: its lifetime is empty"},
      {head + "a,0,3,99999999999999999999\n", "f:2: size"},
      {head + "a,0,3,4\na,0,3,4\n", "f:3: id"},
      {"id,lower,upper,size,gaps\na,0,9,4,3\n", "f:2: gaps"},
      {"id,lower,upper,size,gaps\na,0,9,4,3-99\n", "f:2: its gaps"},
      {"id,lower,upper,size,alignment\na,0,9,4,3\n", "f:2: its alignment"},
  };
  for (const auto& [text, what] : bad) {
    INFO(text);
    const absl::StatusOr<LayoutCsv> csv = ParseLayoutCsv(text, "f");
    REQUIRE_FALSE(csv.ok());
    CHECK(ReasonOf(csv.status()) == Reason::kBadGraph);
    CHECK_THAT(MessageOf(csv.status()), Contains(what));
  }
}

}  // namespace
}  // namespace hmm::ctl
