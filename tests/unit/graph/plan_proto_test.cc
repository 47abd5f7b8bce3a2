// SPDX-License-Identifier: Apache-2.0
#include "graph/plan_proto.h"

#include <hmm/v1/plan.pb.h>

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "graph/graph_proto.h"
#include "graph/message_file.h"
#include "plan/planner.h"
#include "plan/validate.h"
#include "support/catch.h"
#include "support/gen_graph.h"
#include "support/temp_dir.h"
#include "unit/graph/same.h"

namespace hmm::graph {
namespace {

using Catch::Contains;
using hmm::testing::GenCase;
using hmm::testing::GraphGenerator;
using hmm::testing::Same;
using hmm::testing::TempDir;

plan::Plan PlanOf(const GenCase& c, Bytes alignment = 1) {
  plan::PlanOptions options;
  options.steps = 500;
  options.layout = alignment > 0;
  options.place.alignment = std::max<Bytes>(alignment, 1);
  options.place.steps = 1000;
  absl::StatusOr<plan::Plan> plan = plan::MakePlan(c.graph, c.machine, c.budget, options);
  REQUIRE(plan.ok());
  return *std::move(plan);
}

TEST_CASE("plans of random graphs come back from both forms the same, and stay proved") {
  std::size_t moves = 0, infeasible = 0, groups = 0, homes = 0, places = 0;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    GraphGenerator gen(seed);
    const GenCase c = gen.Next();
    const plan::Plan plan = PlanOf(c, seed % 3 == 0 ? 0 : Bytes{1} << gen.Pick(10));
    places += plan.places.size();
    moves += plan.moves.size();
    homes += plan.homes.size();
    groups += plan.offloaded_groups.size();
    infeasible += plan.verdict == plan::Verdict::kInfeasible ? 1U : 0U;
    const GraphIdentity identity = IdentityOf(c.graph);
    const auto text = FormatPlanText(plan, identity);
    const auto binary = FormatPlanBinary(plan, identity);
    REQUIRE(text.ok());
    REQUIRE(binary.ok());
    CHECK(BeginsAs(*binary, kPlanFormat));
    const auto from_text = ParsePlanText(*text, "p.pbtxt");
    if (!from_text.ok()) FAIL("seed " << seed << ": " << from_text.status());
    if (!Same(plan, from_text->plan)) FAIL("seed " << seed << ": text");
    const auto from_binary = ParsePlanBinary(*binary, "p.pb");
    if (!from_binary.ok()) FAIL("seed " << seed << ": " << from_binary.status());
    if (!Same(plan, from_binary->plan)) FAIL("seed " << seed << ": binary");
    CHECK(CheckIdentity(from_binary->graph, c.graph).ok());
    CHECK(plan::Validate(c.graph, c.machine, from_binary->plan).empty());
  }
  CHECK(moves > 500);
  CHECK(homes > 200);
  CHECK(places > 5000);
  CHECK(groups > 0);
  CHECK(infeasible > 10);
}

// Three ops; the middle storage goes out and comes back.
constexpr char kGood[] = R"(
planner: "hand"
verdict: PLAN_VERDICT_PLANNED
graph { name: "g" ops: 3 storages: 2 groups: 1 fingerprint: 42 }
budget_bytes: 100
unplanned_peak_op: 1
short_tier: TIER_KIND_HBM
sequence { op: 0 }
sequence { move: 0 waits: [0] }
sequence { op: 1 waits: [0, 1] }
sequence { move: 1 waits: [2] }
sequence { move: 2 }
sequence { op: 2 waits: [3, 4] }
moves { kind: MOVE_KIND_SWAP_OUT storage: 0 from: TIER_KIND_HBM to: TIER_KIND_DDR bytes: 10
        after_op: 0 start_us: 1 end_us: 2 }
moves { kind: MOVE_KIND_SWAP_IN storage: 0 from: TIER_KIND_DDR to: TIER_KIND_HBM bytes: 10
        after_op: 1 before_op: 2 start_us: 3 end_us: 4.5 stall_us: 0.5 }
moves { kind: MOVE_KIND_SWAP_IN group: 0 from: TIER_KIND_DDR to: TIER_KIND_HBM bytes: 7 }
homes { storage: 0 tier: TIER_KIND_DDR }
offloaded_groups: [0]
peak_bytes: 90
compute_us: 7
places { storage: 1 bytes: 10 offset: 64 begin: 2 kept: true }
alignment_bytes: 64
high_water_bytes: 80
ceilings { link_bytes_per_us: 5 hideable_fraction: 1 }
)";

TEST_CASE("a plan written by hand") {
  const auto file = ParsePlanText(kGood, "good.pbtxt");
  REQUIRE(file.ok());
  const plan::Plan& plan = file->plan;
  CHECK(file->graph.name == "g");
  CHECK(file->graph.fingerprint == 42);
  CHECK(plan.verdict == plan::Verdict::kPlanned);
  CHECK(plan.wait_begin == std::vector<plan::TaskIndex>{0, 0, 1, 3, 4, 4, 6});
  CHECK(plan.waits == std::vector<plan::TaskIndex>{0, 0, 1, 2, 3, 4});
  CHECK(plan.moves[0].before_op == plan::kNone);
  CHECK(plan.moves[1].stall_us == 0.5);
  CHECK(plan.moves[2].storage == plan::kNone);
  CHECK(plan.places[0].offset == 64);
  CHECK(plan.ceilings.link_bytes_per_us == 5);
}

std::string Refusal(const std::string& from, const std::string& to) {
  const std::string text = absl::StrReplaceAll(kGood, {{from, to}});
  REQUIRE(text != kGood);
  const auto file = ParsePlanText(text, "f.pbtxt");
  if (file.ok()) return "accepted";
  CHECK(absl::IsInvalidArgument(file.status()));
  CHECK(ReasonOf(file.status()) == Reason::kBadGraph);
  return std::string(file.status().message());
}

TEST_CASE("what is wrong with a plan is said with file, node and field") {
  struct Row {
    const char* from;
    const char* to;
    const char* says;
  };
  const Row rows[] = {
      {"verdict: PLAN_VERDICT_PLANNED", "", "f.pbtxt: verdict: is none of"},
      {"verdict: PLAN_VERDICT_PLANNED", "verdict: 9", "verdict: is none of"},
      {"graph { name: \"g\" ops: 3 storages: 2 groups: 1 fingerprint: 42 }", "",
       "graph: is missing"},
      {"ops: 3", "ops: 4294967295", "graph: claims 4294967295 ops"},
      {"ops: 3", "ops: 4", "sequence: holds 6 of the graph's 4 ops and the plan's 3 moves"},
      {"budget_bytes: 100", "budget_bytes: -1", "f.pbtxt:5:"},
      {"unplanned_peak_op: 1", "unplanned_peak_op: 3", "unplanned_peak_op: 3 is no op"},
      {"short_tier: TIER_KIND_HBM", "", "short_tier: is none of"},
      {"sequence { op: 0 }", "sequence { }", "sequence[0]: op: set it or move"},
      {"sequence { op: 0 }", "sequence { op: 3 }", "sequence[0]: op: 3 is no op"},
      {"sequence { op: 0 }", "sequence { op: 1 }", "sequence[2]: op: 1 stands in the sequence"},
      {"sequence { move: 2 }", "sequence { move: 3 }", "sequence[4]: move: 3 is no move"},
      {"sequence { move: 2 }", "sequence { move: 1 }", "sequence[4]: move: 1 stands in"},
      {"sequence { move: 2 }", "", "waits"},
      {"waits: [3, 4]", "waits: [3, 5]", "sequence[5]: waits: 5 is not before"},
      {"kind: MOVE_KIND_SWAP_OUT", "kind: 5", "moves[0]: kind"},
      {"kind: MOVE_KIND_SWAP_OUT", "kind: MOVE_KIND_RECOMPUTE", "moves[0]: producer: a recomp"},
      {"group: 0 from", "group: 0 storage: 1 from", "moves[2]: storage: set it or group"},
      {"group: 0 from", "from", "moves[2]: storage: set it or group"},
      {"group: 0 from", "group: 1 from", "moves[2]: group: 1 is no group"},
      {"storage: 0 from: TIER_KIND_HBM", "storage: 2 from: TIER_KIND_HBM",
       "moves[0]: storage: 2 is no storage"},
      {"from: TIER_KIND_HBM", "", "moves[0]: from: is none of"},
      {"bytes: 7", "bytes: 0", "moves[2]: bytes: is 0"},
      {"bytes: 7", "bytes: 4611686018427387904", "moves[2]: bytes: 4611686018427387904 is not"},
      {"after_op: 1", "after_op: 3", "moves[1]: after_op: 3 is no op"},
      {"before_op: 2", "before_op: 3", "moves[1]: before_op: 3 is no op"},
      {"before_op: 2", "producer: 8", "moves[1]: producer: 8 is no op"},
      {"stall_us: 0.5", "stall_us: -0.5", "moves[1]: stall_us: -0.5"},
      {"end_us: 4.5", "end_us: nan", "moves[1]: end_us: nan"},
      {"tier: TIER_KIND_DDR }", "tier: TIER_KIND_HBM }", "homes[0]: tier: a lower copy"},
      {"homes { storage: 0", "homes { storage: 5", "homes[0]: storage: 5 is no storage"},
      {"homes {", "homes { storage: 0 tier: TIER_KIND_DDR } homes {", "homes[1]: storage: 0 has"},
      {"offloaded_groups: [0]", "offloaded_groups: [1]", "offloaded_groups[0]: value: 1 is no"},
      {"offloaded_groups: [0]", "offloaded_groups: [0, 0]", "offloaded_groups[1]: value: does not"},
      {"compute_us: 7", "compute_us: inf", "compute_us: inf"},
      {"hideable_fraction: 1", "hideable_fraction: -1", "ceilings: hideable_fraction: -1"},
      {"places { storage: 1", "places { storage: 2", "places[0]: storage: 2 is no storage"},
      {"begin: 2", "begin: 6", "places[0]: begin: 6 is no task"},
      {"places { storage: 1 bytes: 10 offset: 64 begin: 2", "places { bytes: 10 offset: 64",
       "places[0]: begin: workspace needs"},
      {"offset: 64", "offset: 63", "places[0]: offset: 63 is no multiple of the alignment, 64"},
      {"high_water_bytes: 80", "high_water_bytes: 70", "places[0]: offset: ends at 74, above"},
      {"alignment_bytes: 64", "alignment_bytes: 48", "alignment_bytes: 48 is no power of two"},
      {"alignment_bytes: 64", "alignment_bytes: 2199023255552", "is no power of two up to 2^40"},
      {"planner: \"hand\"", "format: \"hmm.v1.Graph\"", "format: \"hmm.v1.Graph\" is no plan"},
      {"planner: \"hand\"", "plannerr: \"hand\"", "f.pbtxt:2:"},
  };
  for (const Row& row : rows) {
    INFO(row.from << " -> " << row.to);
    CHECK_THAT(Refusal(row.from, row.to), Contains(row.says));
  }
}

TEST_CASE("damaged binary plans are refused or whole, and never crash validate") {
  GraphGenerator gen(21);
  GenCase c = gen.Next();
  plan::Plan plan = PlanOf(c);
  while (plan.moves.empty()) {
    c = gen.Next();
    plan = PlanOf(c);
  }
  const std::string bytes = FormatPlanBinary(plan, IdentityOf(c.graph)).value();
  std::size_t read_back = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    const auto file = ParsePlanBinary(damaged, "bad.pb");
    if (!file.ok()) {
      CHECK(ReasonOf(file.status()).has_value());
      continue;
    }
    if (!CheckIdentity(file->graph, c.graph).ok()) continue;
    (void)plan::Validate(c.graph, c.machine, file->plan);
    ++read_back;
  }
  CHECK(read_back > 0);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const auto cut = ParsePlanBinary(std::string_view(bytes).substr(0, n), "cut.pb");
    if (!cut.ok()) CHECK(ReasonOf(cut.status()) == Reason::kBadGraph);
  }
}

TEST_CASE("a plan for another graph is told, and in what it differs") {
  GraphGenerator gen(5);
  const plan::Graph graph = gen.Next().graph;
  const GraphIdentity identity = IdentityOf(graph);
  CHECK(CheckIdentity(identity, graph).ok());
  plan::Graph longer = graph;
  longer.ops.push_back(longer.ops.back());
  const absl::Status status = CheckIdentity(identity, longer);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(std::string(status.message()),
             Contains(absl::StrCat("has ", longer.ops.size(), " ops in place of ")));
  plan::Graph other = graph;
  other.storages[0].bytes += 1;
  CHECK_THAT(std::string(CheckIdentity(identity, other).message()), Contains("but others"));
  other = graph;
  other.ops[0].microseconds += 1;  // another profile of the same graph
  CHECK(CheckIdentity(identity, other).ok());
}

TEST_CASE("what could not be read back is not written") {
  const PlanFile good = ParsePlanText(kGood, "g").value();
  plan::Plan plan = good.plan;
  plan.stall_us = std::numeric_limits<double>::infinity();
  CHECK_THAT(std::string(FormatPlanText(plan, good.graph).status().message()),
             Contains("stall_us: inf"));
  plan = good.plan;
  plan.sequence[0].index = 7;
  CHECK_THAT(std::string(FormatPlanBinary(plan, good.graph).status().message()),
             Contains("sequence[0]: op: 7 is no op"));
}

TEST_CASE("plan files") {
  const TempDir dir;
  GraphGenerator gen(9);
  const GenCase c = gen.Next();
  const plan::Plan plan = PlanOf(c);
  for (const char* name : {"p.pb", "p.pbtxt"}) {
    const std::string path = dir.path() + "/" + name;
    REQUIRE(WritePlanProto(plan, c.graph, path).ok());
    const auto read = ReadPlanProto(path);
    REQUIRE(read.ok());
    CHECK(Same(plan, read->plan));
    // One kind of file for the other is told by name.
    CHECK_THAT(std::string(ReadGraphProto(path).status().message()), Contains(path));
    CHECK_FALSE(ReadGraphProto(path).ok());
  }
  CHECK(absl::IsNotFound(ReadPlanProto(dir.path() + "/none.pb").status()));
  CHECK_FALSE(ReadPlanProto(dir.path() + "/p.json").ok());
}

}  // namespace
}  // namespace hmm::graph
