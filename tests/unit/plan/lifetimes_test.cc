// SPDX-License-Identifier: Apache-2.0
#include "plan/lifetimes.h"

#include "base/status.h"
#include "graphs.h"
#include "support/catch.h"

namespace hmm::plan {
namespace {

using hmm::testing::AddOp;
using hmm::testing::AddStorage;

// position   0    1    2    3
// A (10)    [W    .    .    R]
// B (4)          [W    R]
// W (100)    R    .    .    R      persistent
Graph Small() {
  Graph graph;
  const StorageIndex a = AddStorage(graph, "A", 10);
  const StorageIndex b = AddStorage(graph, "B", 4);
  const StorageIndex w = AddStorage(graph, "W", 100);
  graph.storages[w].persistent = true;
  AddOp(graph, {w}, {a}, 5);
  AddOp(graph, {}, {b}, 6);
  AddOp(graph, {b}, {}, 7);
  AddOp(graph, {a, w}, {}, 8);
  graph.ops[2].workspace = 1;
  return graph;
}

TEST_CASE("the curve is the sum of the lives and the workspace; the peak and floor name their op") {
  const Graph graph = Small();
  REQUIRE(CheckGraph(graph).ok());
  const Lifetimes lt = ComputeLifetimes(graph, GivenOrder(graph));
  CHECK(lt.curve == std::vector<Bytes>{110, 114, 115, 110});
  CHECK(lt.own == std::vector<Bytes>{110, 4, 5, 110});
  CHECK(lt.peak_bytes == 115);
  CHECK(lt.peak_position == 2);
  CHECK(lt.floor_bytes == 110);
  CHECK(lt.floor_position == 0);
}

TEST_CASE("gaps lie between uses, and wrap for what lives across steps") {
  const Graph graph = Small();
  const Lifetimes lt = ComputeLifetimes(graph, GivenOrder(graph));
  const std::vector<Gap> gaps = FindGaps(lt);
  // A and W between 0 and 3; W's last use is the last op and its first use op 0: nothing wraps.
  REQUIRE(gaps.size() == 2);
  for (const Gap& gap : gaps) {
    CHECK(gap.kind == GapKind::kInner);
    CHECK(gap.from == 0);
    CHECK(gap.to == 3);
  }
  CHECK(gaps[0].last_write == 0);      // A: written by op 0
  CHECK(gaps[1].last_write == kNone);  // W: never
}

TEST_CASE("inputs have a gap before their first use, outputs after their last, the unused all") {
  Graph graph;
  const StorageIndex in = AddStorage(graph, "in", 1);
  const StorageIndex out = AddStorage(graph, "out", 2);
  const StorageIndex state = AddStorage(graph, "state", 3);
  const StorageIndex unused = AddStorage(graph, "unused", 4);
  const StorageIndex pinned = AddStorage(graph, "pinned", 5);
  graph.storages[in].input = graph.storages[out].output = true;
  graph.storages[state].persistent = graph.storages[unused].persistent = true;
  graph.storages[pinned].persistent = graph.storages[pinned].pinned = true;
  AddOp(graph, {}, {out}, 1);
  AddOp(graph, {in, state}, {state}, 1);
  AddOp(graph, {}, {}, 1);
  const Lifetimes lt = ComputeLifetimes(graph, GivenOrder(graph));
  CHECK(lt.curve == std::vector<Bytes>{15, 15, 14});
  CHECK(lt.own == std::vector<Bytes>{7, 9, 5});
  std::vector<std::pair<StorageIndex, GapKind>> found;
  for (const Gap& gap : FindGaps(lt)) found.emplace_back(lt.lives[gap.life].storage, gap.kind);
  std::sort(found.begin(), found.end());
  const std::vector<std::pair<StorageIndex, GapKind>> expected = {{in, GapKind::kHead},
                                                                  {out, GapKind::kTail},
                                                                  {state, GapKind::kWrap},
                                                                  {unused, GapKind::kAll}};
  CHECK(found == expected);
}

TEST_CASE("a recomputation splits a storage into two lives") {
  Graph graph = Small();
  graph.storages[0].recomputable = true;
  Order order = GivenOrder(graph);
  order.steps.insert(order.steps.begin() + 3, ExecStep{0, 0});
  const Lifetimes lt = ComputeLifetimes(graph, order);
  CHECK(lt.positions == 5);
  CHECK(lt.curve == std::vector<Bytes>{110, 104, 105, 110, 110});
}

TEST_CASE("data-dependent groups: all members, or a slot for those that are fetched") {
  Graph graph;
  DataDependentGroup group;
  for (int i = 0; i < 4; ++i) {
    group.members.push_back(AddStorage(graph, "e" + std::to_string(i), 10));
    graph.storages.back().persistent = true;
  }
  group.k = 2;
  graph.groups.push_back(group);
  AddOp(graph, {}, {}, 1);
  graph.ops[0].group = 0;
  Order order = GivenOrder(graph);
  CHECK(ComputeLifetimes(graph, order).curve == std::vector<Bytes>{40});
  REQUIRE(OffloadableGroups(graph) == std::vector<bool>{true});
  order.offloaded[0] = true;
  CHECK(ComputeLifetimes(graph, order).curve == std::vector<Bytes>{20});
  graph.storages[1].pinned = true;
  CHECK(OffloadableGroups(graph) == std::vector<bool>{false});
}

TEST_CASE("a graph that is none is refused by name") {
  const auto refused = [](const std::function<void(Graph&)>& spoil) {
    Graph graph = Small();
    spoil(graph);
    const absl::Status status = CheckGraph(graph);
    return ReasonOf(status) == Reason::kBadArgument ? std::string(status.message()) : "accepted";
  };
  using Catch::Contains;
  CHECK_THAT(refused([](Graph& g) { g.storages[1].bytes = 0; }), Contains("B"));
  CHECK_THAT(refused([](Graph& g) { g.storages[1].bytes = Bytes{1} << 63; }), Contains("B"));
  CHECK_THAT(refused([](Graph& g) { g.ops[3].reads = {2, 0}; }), Contains("op3"));
  CHECK_THAT(refused([](Graph& g) { g.ops[3].reads = {9}; }), Contains("op3"));
  CHECK_THAT(refused([](Graph& g) { g.ops[0].reads = {1}; }), Contains("before anything writes"));
  CHECK_THAT(refused([](Graph& g) { g.ops[1].after = {1}; }), Contains("follows itself"));
  CHECK_THAT(refused([](Graph& g) { g.ops[1].microseconds = -1; }), Contains("duration"));
  CHECK_THAT(refused([](Graph& g) { g.ops[1].microseconds = std::nan(""); }), Contains("duration"));
  CHECK_THAT(refused([](Graph& g) { g.ops[1].stream = 1000; }), Contains("stream"));
  CHECK_THAT(refused([](Graph& g) { g.ops[1].group = 0; }), Contains("group"));
  CHECK_THAT(refused([](Graph& g) {
               g.groups.push_back({"g", {0}, 1});
             }),
             Contains("not persistent"));
  CHECK_THAT(refused([](Graph& g) { g.groups.push_back({"g", {2}, 2}); }), Contains("g"));
}

}  // namespace
}  // namespace hmm::plan
