// SPDX-License-Identifier: Apache-2.0
#include "graph/profile.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace hmm::graph {
namespace {

using Catch::Contains;
using Catch::EndsWith;

plan::Graph Ops(const std::vector<std::string>& names) {
  plan::Graph graph;
  graph.name = "g";
  for (const std::string& name : names) {
    plan::Op op;
    op.name = name;
    op.microseconds = 7;
    graph.ops.push_back(op);
  }
  return graph;
}

TEST_CASE("a profile gives ops their durations") {
  const auto profile = ParseProfile(
      "\xef\xbb\xbfop,microseconds\r\n\n  mm , 2.5 \r\n\"a,b\",1e3\n\"say "
      "\"\"x\"\"\nhi\",0\nlast,3",
      "p.csv");
  if (!profile.ok()) FAIL(profile.status());
  REQUIRE(profile->rows.size() == 4);
  CHECK(profile->rows[0].line == 3);
  CHECK(profile->rows[2].op == "say \"x\"\nhi");
  CHECK(profile->rows[3].line == 7);
  plan::Graph graph = Ops({"last", "mm", "a,b", "say \"x\"\nhi"});
  const auto use = ApplyProfile(*profile, graph);
  REQUIRE(use.ok());
  CHECK(use->ops == 4);
  CHECK(use->missing == 0);
  CHECK(graph.ops[0].microseconds == 3);
  CHECK(graph.ops[1].microseconds == 2.5);
  CHECK(graph.ops[2].microseconds == 1000);
  CHECK(graph.ops[3].microseconds == 0);
}

TEST_CASE("a graph's durations come back from a file") {
  plan::Graph graph = Ops({"a", "b,c", "\"d\"", " e ", "f\ng", "h\r"});
  double us = 0.1;
  for (plan::Op& op : graph.ops) op.microseconds = us *= 3.7;
  const auto profile = ParseProfile(FormatProfile(graph), "p.csv");
  if (!profile.ok()) FAIL(profile.status());
  plan::Graph other = graph;
  for (plan::Op& op : other.ops) op.microseconds = 0;
  REQUIRE(ApplyProfile(*profile, other).ok());
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    CHECK(other.ops[i].microseconds == graph.ops[i].microseconds);
  }
}

TEST_CASE("what is wrong with a profile is said with file and line") {
  struct Row {
    const char* text;
    const char* says;
  };
  const Row rows[] = {
      {"", "p.csv: is empty"},
      {"\n\n", "p.csv: is empty"},
      {"mm,1\n", "p.csv:1: the first line must be op,microseconds"},
      {"op,ms\nmm,1\n", "p.csv:1: the first line must be op,microseconds"},
      {"op,microseconds\nmm\n", "p.csv:2: not two columns"},
      {"op,microseconds\nmm,\n", "p.csv:2: microseconds: \"\" of op \"mm\""},
      {"op,microseconds\nmm,1,2\n", "p.csv:2: microseconds: \"1,2\""},
      {"op,microseconds\n,1\n", "p.csv:2: op: is empty"},
      {"op,microseconds\nmm,-1\n", "p.csv:2: microseconds: \"-1\" of op \"mm\""},
      {"op,microseconds\nmm,nan\n", "p.csv:2: microseconds: \"nan\""},
      {"op,microseconds\nmm,inf\n", "p.csv:2: microseconds: \"inf\""},
      {"op,microseconds\nmm,1e16\n", "p.csv:2: microseconds: \"1e16\""},
      {"op,microseconds\nmm,1e999\n", "p.csv:2: microseconds: \"1e999\""},
      {"op,microseconds\nmm,1us\n", "p.csv:2: microseconds: \"1us\""},
      {"op,microseconds\na,1\nb,1\n\na,2\n", "p.csv:5: op: \"a\" has line 2 already"},
      {"op,microseconds\n\"a,1\nb,2\n", "p.csv:2: not two columns"},
      {"op,microseconds\n\"a\"b,1\n", "p.csv:2: not two columns"},
  };
  for (const Row& row : rows) {
    const auto profile = ParseProfile(row.text, "p.csv");
    INFO(row.text);
    REQUIRE_FALSE(profile.ok());
    CHECK(absl::IsInvalidArgument(profile.status()));
    CHECK(ReasonOf(profile.status()) == Reason::kBadGraph);
    CHECK_THAT(std::string(profile.status().message()), Contains(row.says));
  }
  CHECK_FALSE(ParseProfile("op,microseconds\n" + std::string(5000, 'x') + ",1\n", "p.csv").ok());
}

std::string ApplyRefusal(const std::string& rows, plan::Graph& graph,
                         const ProfileOptions& options = {}) {
  const auto profile = ParseProfile("op,microseconds\n" + rows, "p.csv");
  REQUIRE(profile.ok());
  const auto use = ApplyProfile(*profile, graph, options);
  if (use.ok()) return "accepted";
  CHECK(ReasonOf(use.status()) == Reason::kBadGraph);
  for (const plan::Op& op : graph.ops) CHECK(op.microseconds == 7);  // none, if not all
  return std::string(use.status().message());
}

TEST_CASE("a profile that does not fit the graph") {
  plan::Graph graph = Ops({"conv1", "conv2", "conv3", "conv4", "relu"});
  CHECK_THAT(
      ApplyRefusal("conv1,1\nconv2,1\nconv3,1\nconv4,1\nrelo,1\n", graph),
      Contains("p.csv:6: op: \"relo\" is no op of graph \"g\" (4 of the 5 rows are); did you "
               "mean 'relu'?"));
  CHECK_THAT(ApplyRefusal("conv1,1\nx,1\ny,1\nz,1\n", graph),
             Contains("p.csv: is a profile for other ops: 1 of its 4 rows name ops of graph \"g\", "
                      "which has 5"));
  CHECK_THAT(ApplyRefusal("x,1\n", graph), Contains("0 of its 1 rows"));
  CHECK_THAT(ApplyRefusal("relu,1\n", graph),
             Contains("names 1 of the 5 ops of graph \"g\"; missing: \"conv1\", \"conv2\", "
                      "\"conv3\", ..."));
  CHECK_THAT(ApplyRefusal("conv1,1\nconv2,1\nconv3,1\nrelu,1\n", graph),
             EndsWith("missing: \"conv4\""));
  CHECK_THAT(ApplyRefusal("", graph), Contains("names 0 of the 5"));
  CHECK_THAT(ApplyRefusal("relu,1\nrely,1\n", graph, {.missing_ok = true}),
             Contains("p.csv:3: op: \"rely\""));

  const auto profile = ParseProfile("op,microseconds\nrelu,1\n", "p.csv").value();
  const auto use = ApplyProfile(profile, graph, {.missing_ok = true});
  REQUIRE(use.ok());
  CHECK(use->ops == 1);
  CHECK(use->missing == 4);
  CHECK(graph.ops[4].microseconds == 1);
  CHECK(graph.ops[0].microseconds == 7);
}

TEST_CASE("an empty profile is one for an empty graph") {
  plan::Graph graph;
  const auto profile = ParseProfile("op,microseconds\n", "p.csv");
  REQUIRE(profile.ok());
  CHECK(ApplyProfile(*profile, graph).ok());
}

TEST_CASE("profile files") {
  const hmm::testing::TempDir dir;
  dir.Write("p.csv", "op,microseconds\na,1\n");
  CHECK(ReadProfile(dir.File("p.csv")).value().rows.size() == 1);
  CHECK(absl::IsNotFound(ReadProfile(dir.File("none.csv")).status()));
}

}  // namespace
}  // namespace hmm::graph
