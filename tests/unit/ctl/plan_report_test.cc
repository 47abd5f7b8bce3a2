// SPDX-License-Identifier: Apache-2.0
// The page and the trace of a plan, as data: what the browser and Perfetto are given. How the page
// looks and behaves is for tests/page.
#include "client/ctl/plan_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/ctl/plan_json_text.h"
#include "client/ctl/plan_moved.h"
#include "client/ctl/plan_report_data.h"
#include "client/ctl/plan_timeline.h"
#include "client/ctl/plan_trace.h"
#include "plan/explain.h"
#include "plan/planner.h"
#include "support/catch.h"
#include "support/gen_graph.h"

namespace hmm::ctl {
namespace {

using Catch::Contains;
using nlohmann::json;

constexpr std::uint64_t kSeeds = 120;

plan::Plan PlanOf(const hmm::testing::GenCase& c) {
  plan::PlanOptions options;
  options.steps = 3000;
  options.place.steps = 100;
  absl::StatusOr<plan::Plan> plan = plan::MakePlan(c.graph, c.machine, c.budget, options);
  REQUIRE(plan.ok());
  return *std::move(plan);
}

json Parsed(const std::string& text) {
  json value = json::parse(text, nullptr, false);
  REQUIRE_FALSE(value.is_discarded());
  return value;
}

std::int64_t Sum(const json& column) {
  std::int64_t sum = 0;
  for (const json& value : column) sum += value.get<std::int64_t>();
  return sum;
}

// The highest running sum.
std::int64_t Highest(const json& differences) {
  std::int64_t now = 0, most = 0;
  for (const json& value : differences) {
    now += value.get<std::int64_t>();
    most = std::max(most, now);
  }
  return most;
}

TEST_CASE("a timeline has every task once, in order, and the memory that the simulation has") {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    hmm::testing::GraphGenerator gen(seed);
    const hmm::testing::GenCase c = gen.Next({});
    const plan::Plan plan = PlanOf(c);
    INFO("seed " << seed);
    const PlanTimeline timeline = TimelineOf(c.graph, c.machine, plan);
    std::size_t spans = 0;
    for (const TimelineRow& row : timeline.rows) {
      CHECK_FALSE(row.spans.empty());
      double free = 0;
      for (const TimelineSpan& span : row.spans) {
        CHECK(span.start_us >= free);
        CHECK(span.end_us >= span.start_us);
        free = span.end_us;
        CHECK_FALSE((row.is_link && !span.is_move));
      }
      spans += row.spans.size();
    }
    std::size_t drops = 0;
    for (const plan::Move& move : plan.moves) drops += move.kind == plan::MoveKind::kDrop ? 1 : 0;
    CHECK(spans + drops == plan.sequence.size());
    if (plan.sequence.empty()) continue;
    const plan::Simulation run =
        plan::Simulate(c.graph, c.machine, plan, plan::PredictedUs(c.graph, c.machine, plan));
    Bytes most = 0;
    for (std::size_t i = 0; i < timeline.hbm.size(); ++i) {
      most = std::max(most, timeline.hbm[i].bytes);
      if (i > 0) CHECK(timeline.hbm[i].at_us > timeline.hbm[i - 1].at_us);
    }
    CHECK(most == run.peak_bytes);
    CHECK(most <= plan.budget_bytes);
    CHECK(timeline.step_us == run.step_us);
  }
}

TEST_CASE(
    "a trace keeps to the format: whole events, named threads, no overlap, counters in order") {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    hmm::testing::GraphGenerator gen(seed);
    hmm::testing::GenCase c = gen.Next({});
    c.graph.ops[0].name = "\"<\\\xff\n";
    const plan::Plan plan = PlanOf(c);
    INFO("seed " << seed);
    const PlanTimeline timeline = TimelineOf(c.graph, c.machine, plan);
    const json trace = Parsed(FormatPlanTrace(c.graph, plan, timeline));
    CHECK(trace["displayTimeUnit"] == "ms");
    std::map<int, std::int64_t> free;  // nanoseconds, by thread
    std::map<int, std::string> names;
    std::int64_t counted = 0, bytes_max = 0;
    const auto ns = [](const json& us) { return std::llround(us.get<double>() * 1e3); };
    for (const json& event : trace["traceEvents"]) {
      REQUIRE(event["pid"].is_number_integer());
      REQUIRE(event["tid"].is_number_integer());
      const int tid = event["tid"];
      if (event["ph"] == "M") {
        if (event["name"] == "thread_name") names[tid] = event["args"]["name"];
      } else if (event["ph"] == "X") {
        REQUIRE(names.count(tid) == 1);
        CHECK(ns(event["ts"]) >= free[tid]);
        CHECK(event["dur"] >= 0.0);
        free[tid] = ns(event["ts"]) + ns(event["dur"]);
        CHECK(event["name"].is_string());
        CHECK((event["cat"] == "compute" || event["cat"] == "transfer"));
      } else {
        REQUIRE(event["ph"] == "C");
        CHECK(ns(event["ts"]) >= counted);
        counted = ns(event["ts"]);
        bytes_max = std::max(bytes_max, event["args"]["bytes"].get<std::int64_t>());
      }
    }
    CHECK(names.size() == timeline.rows.size());
    if (!timeline.hbm.empty()) CHECK(static_cast<Bytes>(bytes_max) <= plan.budget_bytes);
  }
}

TEST_CASE("what the page gets is what the plan has") {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    hmm::testing::GraphGenerator gen(seed);
    const hmm::testing::GenCase c = gen.Next({});
    const plan::Plan plan = PlanOf(c);
    INFO("seed " << seed);
    const absl::StatusOr<std::string> text = ReportData({c.graph, c.machine}, {plan});
    REQUIRE(text.ok());
    const json data = Parsed(*text);
    CHECK(data["budget"] == plan.budget_bytes);
    CHECK(data["ops"]["names"].size() == c.graph.ops.size());
    CHECK(data["ops"]["type"].size() == c.graph.ops.size());
    CHECK(static_cast<Bytes>(Highest(data["before"]["b"])) <= plan.unplanned_peak_bytes);
    const json& shown = data["plans"][0];
    CHECK(shown["moves"]["kind"].size() == plan.moves.size());
    for (const json& row : shown["rows"]) {
      CHECK(Sum(row["gap"]) + Sum(row["dur"]) <= shown["memory"]["step"].get<std::int64_t>());
      for (const json& ref : row["ref"]) {
        const auto index = ref.get<std::int64_t>();
        const std::size_t of = index < 0 ? plan.moves.size() : c.graph.ops.size();
        CHECK(static_cast<std::size_t>(index < 0 ? -1 - index : index) < of);
      }
    }
    const std::size_t moved = shown["moved"]["name"].size();
    for (const json& of : shown["moves"]["of"]) CHECK(of.get<std::size_t>() < moved);
    for (const auto& [key, column] : shown["moved"].items()) {
      INFO(key);
      CHECK(column.size() == moved);
    }
  }
}

TEST_CASE("moved tensors have the factors that explain has, and all of the stall") {
  std::size_t seen = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    hmm::testing::GraphGenerator gen(seed);
    const hmm::testing::GenCase c = gen.Next({});
    const plan::Plan plan = PlanOf(c);
    if (plan.verdict != plan::Verdict::kPlanned) continue;
    INFO("seed " << seed);
    double exposed = 0, stalls = 0;
    for (const plan::Move& move : plan.moves) stalls += move.stall_us;
    for (const MovedTensor& moved : MovedTensors(c.graph, c.machine, plan)) {
      exposed += moved.exposed_us;
      CHECK_FALSE(moved.how.empty());
      if (moved.storage == plan::kNone) continue;
      const plan::StorageReport why = plan::Explain(c.graph, c.machine, plan, moved.storage);
      CHECK(moved.bytes == c.graph.storages[moved.storage].bytes);
      CHECK(moved.uses_per_step == why.uses_per_step);
      CHECK(moved.recompute_us == why.recompute_us);
      CHECK(moved.in_us == why.in_us);
      ++seen;
    }
    CHECK(exposed == Approx(stalls));
  }
  CHECK(seen > 100);
}

TEST_CASE("a page has all its parts, says the verdict, and takes names for text") {
  const std::string evil = "</script><script>alert(1)</script><!--hmm:data-->&\"'\xff";
  hmm::testing::GraphGenerator gen(4);
  hmm::testing::GenCase c = gen.Next({.groups = false});
  c.graph.name = evil;
  for (plan::Op& op : c.graph.ops) op.name += evil;
  for (plan::Storage& storage : c.graph.storages) storage.name += evil;
  c.machine.assumptions = evil;
  const plan::Plan plan = PlanOf(c);
  const absl::StatusOr<std::string> page = FormatPlanReport({c.graph, c.machine}, {plan});
  REQUIRE(page.ok());
  CHECK_THAT(*page, Catch::StartsWith("<!doctype html>") && Catch::EndsWith("</html>\n"));
  CHECK_THAT(*page, Contains("<h1 class=\"" + std::string(plan::VerdictName(plan.verdict))));
  CHECK_THAT(*page, Contains("default-src 'none'") && Contains("script-src 'sha256-"));
  CHECK_THAT(*page, Contains("Permission is hereby granted"));  // the library's licence goes along
  CHECK_THAT(*page, !Contains("<script>alert"));
  CHECK_THAT(*page, !Contains("<!--hmm:"));  // a part not put in, or a name taken for one
  std::size_t ends = 0;
  for (std::size_t at = page->find("</script"); at != std::string::npos;
       at = page->find("</script", at + 1)) {
    ++ends;
  }
  CHECK(ends == 2);
  CHECK(page == FormatPlanReport({c.graph, c.machine}, {plan}));
}

TEST_CASE("text and times in JSON, whatever they are") {
  CHECK(JsonText("a<b\"\n") == "\"a\\u003cb\\\"\\n\"");
  CHECK(JsonText("\xff") == "\"\\ufffd\"");
  CHECK(JsonText("\xe2\x80\xa8") == "\"\\u2028\"");
  CHECK(WholeNs(1.2345) == 1235);
  CHECK(WholeNs(-1) == 0);
  CHECK(WholeNs(std::numeric_limits<double>::quiet_NaN()) == 0);
  CHECK(WholeNs(std::numeric_limits<double>::infinity()) == std::int64_t{1} << 53);
  CHECK(WholeNs(1e300) == std::int64_t{1} << 53);
}

}  // namespace
}  // namespace hmm::ctl
