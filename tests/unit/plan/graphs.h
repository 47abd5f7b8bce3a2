// SPDX-License-Identifier: Apache-2.0
// Small graphs and machines of round numbers for the planner's unit tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "plan/graph.h"
#include "plan/machine.h"

namespace hmm::testing {

inline plan::StorageIndex AddStorage(plan::Graph& graph, std::string name, Bytes bytes) {
  plan::Storage storage;
  storage.name = std::move(name);
  storage.bytes = bytes;
  graph.storages.push_back(std::move(storage));
  return static_cast<plan::StorageIndex>(graph.storages.size() - 1);
}

inline plan::OpIndex AddOp(plan::Graph& graph, std::vector<plan::StorageIndex> reads,
                           std::vector<plan::StorageIndex> writes, double us) {
  plan::Op op;
  op.name = "op" + std::to_string(graph.ops.size());
  std::sort(reads.begin(), reads.end());
  std::sort(writes.begin(), writes.end());
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  op.microseconds = us;
  graph.ops.push_back(std::move(op));
  return static_cast<plan::OpIndex>(graph.ops.size() - 1);
}

// `rate` bytes per microsecond each way, no latency.
inline plan::Machine PlainMachine(double rate) {
  plan::Machine machine;
  machine.name = "plain";
  machine.ddr_bytes = kGiB;
  machine.links = {{TierKind::kHbm, TierKind::kDdr, 1, 0, {{1, rate}}, 1, 1},
                   {TierKind::kDdr, TierKind::kHbm, 1, 0, {{1, rate}}, 1, 1}};
  return machine;
}

// op 0 makes A (10 bytes), op 1 makes and op 2 reads B (10), op 3 reads A: with 10 bytes of budget
// A has to go and come back between op 0 and op 3.
inline plan::Graph OneGap(double us0, double us1, double us2, double us3) {
  plan::Graph graph;
  const plan::StorageIndex a = AddStorage(graph, "A", 10);
  const plan::StorageIndex b = AddStorage(graph, "B", 10);
  AddOp(graph, {}, {a}, us0);
  AddOp(graph, {}, {b}, us1);
  AddOp(graph, {b}, {}, us2);
  AddOp(graph, {a}, {}, us3);
  graph.ops[1].after = {0};  // else another order needs no moves at all
  graph.ops[3].after = {2};
  return graph;
}

}  // namespace hmm::testing
