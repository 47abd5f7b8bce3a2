// SPDX-License-Identifier: Apache-2.0
#include "graph/costed_graph.h"

#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "plan/lifetimes.h"
#include "plan/planner.h"
#include "support/catch.h"

namespace hmm::graph {
namespace {

using Catch::Contains;

const std::string kData = HMM_TEST_DATA "/graphs/costed/";

TEST_CASE("the costed graphs: counts, sums, and the peak when everything is kept") {
  struct Row {
    const char* name;
    std::size_t ops;
    std::size_t reads;
    Bytes sum;
    Bytes peak;
    double ms;
  };
  // Computed from the files by a program that shares nothing with the importer: ops, distinct
  // edges, bytes of all nodes, the largest sum of what lives from its node to its last reader,
  // milliseconds.
  const Row rows[] = {
      {"bert", 195, 411, 756551680, 383778816, 27.62681856},
      {"linear", 27, 51, 10416, 7416, 0.00013217},
      {"resnet18", 127, 259, 56372352, 28577536, 7.952952116},
      {"transformer", 19, 37, 64491520, 37748736, 2.394509568},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    const auto graph = ReadCostedGraph(kData + row.name + "_a72.json");
    REQUIRE(graph.ok());
    CHECK(graph->name == row.name);
    CHECK(graph->ops.size() == row.ops);
    std::size_t reads = 0;
    Bytes sum = 0;
    double us = 0;
    for (const plan::Op& op : graph->ops) {
      reads += op.reads.size();
      us += op.microseconds;
    }
    for (const plan::Storage& storage : graph->storages) sum += storage.bytes;
    CHECK(reads == row.reads);
    CHECK(sum == row.sum);
    CHECK(us == Approx(row.ms * 1000));
    plan::Plan totals;
    plan::FillGraphTotals(*graph, totals);
    CHECK(totals.unplanned_peak_bytes == row.peak);
    CHECK(graph->unknown.size() == 1);  // the parameters: who reads them is not told
  }
}

TEST_CASE("parameters: named as unknown, or pinned") {
  const auto plain = ReadCostedGraph(kData + "linear_a72.json");
  REQUIRE(plain.ok());
  CHECK_THAT(plain->unknown.at(0), Contains("170.3 KiB"));
  const auto pinned = ReadCostedGraph(kData + "linear_a72.json", {.pin_parameters = true});
  REQUIRE(pinned.ok());
  CHECK(pinned->unknown.empty());
  CHECK(pinned->storages.back().bytes == 174360);
  plan::Plan totals;
  plan::FillGraphTotals(*pinned, totals);
  CHECK(totals.unplanned_peak_bytes == 7416 + 174360);
}

TEST_CASE("kinds of nodes") {
  const plan::Graph graph = ReadCostedGraph(kData + "linear_a72.json").value();
  CHECK(graph.ops[1].type == "LinearLayer");
  CHECK(graph.ops[1].name == "layer1_LinearLayer");
  CHECK_FALSE(graph.storages[0].recomputable);  // data from outside
  CHECK(graph.storages[1].recomputable);
  CHECK_FALSE(graph.storages[26].recomputable);  // backward
}

constexpr char kGood[] = R"({"model": "m", "param_bytes": 7,
 "nodes": [
  {"id": 10, "name": "a", "cpu_ms": 1, "ram_bytes": 8, "backward": false},
  {"id": 11, "name": "b", "cpu_ms": 2.5, "ram_bytes": 0},
  {"id": 12, "name": "c", "cpu_ms": 0, "ram_bytes": 4, "backward": true}],
 "edges": [[10, 11], [11, 12], [10, 12], [10, 12]]})";

TEST_CASE("a node without bytes orders, and an edge given twice is one") {
  const auto graph = ParseCostedGraph(kGood, "g.json");
  REQUIRE(graph.ok());
  CHECK(graph->storages.size() == 2);
  CHECK(graph->ops[1].writes.empty());
  CHECK(graph->ops[2].after == std::vector<plan::OpIndex>{1});
  CHECK(graph->ops[2].reads == std::vector<plan::StorageIndex>{0});
  CHECK(graph->ops[1].microseconds == 2500);
}

TEST_CASE("nodes that are not in order are sorted") {
  const auto graph = ParseCostedGraph(
      absl::StrReplaceAll(kGood, {{"[10, 11]", "[12, 10]"}, {"[10, 12]", "[11, 10]"}}), "g.json");
  REQUIRE(graph.ok());
  CHECK(graph->ops[0].name == "b");
  CHECK(graph->ops[1].name == "c");
  CHECK(graph->ops[2].name == "a");
}

TEST_CASE("what is wrong with a costed graph is said with file, node and field") {
  struct Row {
    const char* from;
    const char* to;
    const char* says;
  };
  const Row rows[] = {
      {"\"nodes\": [", "\"nodes\": ", "f.json:4: no JSON at byte"},
      {"\"nodes\"", "\"nods\"", "f.json: nodes: is missing"},
      {"\"edges\"", "\"edgs\"", "f.json: edges: is missing"},
      {"\"id\": 11", "\"id\": 10", "nodes[1] \"b\": id: 10 is taken"},
      {"\"id\": 11", "\"id\": 1.5", "nodes[1]: id: is no whole number"},
      {"\"id\": 11", "\"id\": 18446744073709551615", "nodes[1]: id: is no whole number"},
      {"\"id\": 11, ", "", "nodes[1]: id: is missing"},
      {"\"name\": \"b\"", "\"name\": \"a\"", "nodes[1]: name: \"a\" is that of nodes[0]"},
      {"\"name\": \"b\"", "\"name\": \"\"", "nodes[1]: name: is no text"},
      {"\"name\": \"b\"", "\"name\": 3", "nodes[1]: name: is no text"},
      {"\"cpu_ms\": 2.5", "\"cpu_ms\": -2.5", "nodes[1] \"b\": cpu_ms: is no number"},
      {"\"cpu_ms\": 2.5", "\"cpu_ms\": 1e300", "nodes[1] \"b\": cpu_ms: is no number"},
      {"\"cpu_ms\": 2.5", "\"cpu_ms\": NaN", "f.json:4: no JSON"},
      {"\"cpu_ms\": 2.5", "\"cpu_ms\": \"2\"", "nodes[1] \"b\": cpu_ms: is no number"},
      {"\"cpu_ms\": 2.5, ", "", "nodes[1] \"b\": cpu_ms: is missing"},
      {"\"ram_bytes\": 8", "\"ram_bytes\": -8", "nodes[0] \"a\": ram_bytes: is no whole number"},
      {"\"ram_bytes\": 8", "\"ram_bytes\": 8.5", "nodes[0] \"a\": ram_bytes: is no whole number"},
      {"\"ram_bytes\": 8", "\"ram_bytes\": 18446744073709551615", "is beyond 2^61"},
      {"\"ram_bytes\": 8", "\"ram_bytes\": 99999999999999999999999", "is no whole number"},
      {"\"backward\": true", "\"backward\": 1", "nodes[2] \"c\": backward: is neither"},
      {"[11, 12]", "[11, 13]", "edges[1]: there is no node 13"},
      {"[11, 12]", "[11, 11]", "edges[1]: node \"b\" feeds itself"},
      {"[11, 12]", "[11]", "edges[1]: is no pair"},
      {"[11, 12]", "[11, \"c\"]", "edges[1]: id: is no whole number"},
      {"[11, 12]", "[12, 10]", "depends on itself"},
      {"\"param_bytes\": 7", "\"param_bytes\": -7", "f.json: param_bytes: is no whole number"},
      {"\"model\": \"m\"", "\"model\": []", "f.json: model: is no text"},
      {"\"model\": \"m\"", "\"model\": [[[[[[[[[]]]]]]]]]", "f.json: nested deeper than 8"},
  };
  for (const Row& row : rows) {
    const std::string text = absl::StrReplaceAll(kGood, {{row.from, row.to}});
    REQUIRE(text != kGood);
    const auto graph = ParseCostedGraph(text, "f.json");
    INFO(row.from << " -> " << row.to);
    REQUIRE_FALSE(graph.ok());
    CHECK(ReasonOf(graph.status()) == Reason::kBadGraph);
    CHECK_THAT(std::string(graph.status().message()), Contains(row.says));
  }
  for (const char* text :
       {"", "3", "[]", "{\"nodes\": 3}", "{\"nodes\": [3]}", "\xff", "{\"a\": 1"}) {
    INFO(text);
    CHECK(ReasonOf(ParseCostedGraph(text, "f.json").status()) == Reason::kBadGraph);
  }
  CHECK(absl::IsNotFound(ReadCostedGraph(kData + "none.json").status()));
}

TEST_CASE("every prefix of a file is refused") {
  const std::string text = kGood;
  for (std::size_t n = 0; n < text.size(); ++n) {
    CHECK_FALSE(ParseCostedGraph(std::string_view(text).substr(0, n), "cut.json").ok());
  }
}

TEST_CASE("an empty graph is one") {
  const auto graph = ParseCostedGraph(R"({"nodes": [], "edges": []})", "empty.json");
  REQUIRE(graph.ok());
  CHECK(graph->ops.empty());
}

}  // namespace
}  // namespace hmm::graph
