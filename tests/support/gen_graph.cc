// SPDX-License-Identifier: Apache-2.0
#include "support/gen_graph.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "plan/lifetimes.h"
#include "plan/planner.h"

namespace hmm::testing {
namespace {

using plan::Graph;
using plan::Machine;
using plan::Op;
using plan::OpIndex;
using plan::Storage;
using plan::StorageIndex;

template <typename T>
void SortUnique(std::vector<T>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace

StorageIndex GraphGenerator::AddStorage(Graph& graph) {
  Storage storage;
  storage.name = "s" + std::to_string(graph.storages.size());
  storage.bytes = Chance(0.3) ? 1 + Pick(8) : 100 * (1 + Pick(10));
  graph.storages.push_back(storage);
  return static_cast<StorageIndex>(graph.storages.size() - 1);
}

void GraphGenerator::AddOp(Graph& graph, const GenOptions& options, OpIndex index,
                           std::uint32_t streams) {
  Op op;
  op.name = "op" + std::to_string(index);
  op.stream = static_cast<std::uint32_t>(Pick(streams));
  op.microseconds = options.zeros && Chance(0.05) ? 0 : 1 + 20 * Unit();
  if (Chance(0.2)) op.workspace = 50 * Pick(6);
  const std::uint64_t reads = live_.empty() ? 0 : Pick(4);
  for (std::uint64_t r = 0; r < reads; ++r) {
    // Recent ones mostly, sometimes one from long ago.
    const std::uint64_t back =
        Chance(0.6) ? Pick(std::min<std::uint64_t>(live_.size(), 4)) : Pick(live_.size());
    op.reads.push_back(live_[live_.size() - 1 - back]);
  }
  if (!live_.empty() && Chance(0.15)) {  // in place, or a write that reads nothing
    const StorageIndex s = live_[Pick(live_.size())];
    op.writes.push_back(s);
    if (Chance(0.7)) op.reads.push_back(s);
  }
  const std::uint64_t made = Chance(0.8) ? 1 : Pick(3);
  for (std::uint64_t w = 0; w < made; ++w) {
    const StorageIndex s = AddStorage(graph);
    graph.storages[s].output = Chance(0.08);
    graph.storages[s].recomputable = options.recompute && Chance(0.3);
    op.writes.push_back(s);
    live_.push_back(s);
  }
  if (index > 0 && Chance(0.05)) op.after.push_back(static_cast<OpIndex>(Pick(index)));
  if (!graph.groups.empty() && Chance(0.3)) {
    op.group = static_cast<std::uint32_t>(Pick(graph.groups.size()));
  }
  SortUnique(op.reads);
  SortUnique(op.writes);
  graph.ops.push_back(std::move(op));
}

Graph GraphGenerator::NextGraph(const GenOptions& options) {
  Graph graph;
  graph.name = "random";
  live_.clear();
  const std::uint64_t given = Pick(5);
  for (std::uint64_t i = 0; i < given; ++i) {
    const StorageIndex s = AddStorage(graph);
    graph.storages[s].persistent = Chance(0.6);
    graph.storages[s].input = !graph.storages[s].persistent;
    graph.storages[s].pinned = Chance(0.05);
    graph.storages[s].output = Chance(0.1);
    live_.push_back(s);
  }
  if (options.groups && Chance(0.1)) {
    plan::DataDependentGroup group;
    group.name = "experts";
    const std::uint64_t members = 2 + Pick(4);
    for (std::uint64_t m = 0; m < members; ++m) {
      const StorageIndex s = AddStorage(graph);
      graph.storages[s].persistent = true;
      group.members.push_back(s);
      if (Chance(0.02)) live_.push_back(s);  // then the group cannot be offloaded
    }
    group.k = static_cast<std::uint32_t>(1 + Pick(2));
    graph.groups.push_back(std::move(group));
  }
  const auto ops =
      static_cast<OpIndex>(options.ops_min + Pick(options.ops_max - options.ops_min + 1));
  const auto streams =
      static_cast<std::uint32_t>(options.streams && Chance(0.15) ? 2 + Pick(2) : 1);
  for (OpIndex index = 0; index < ops; ++index) AddOp(graph, options, index, streams);
  return graph;
}

Machine GraphGenerator::NextMachine(const Graph& graph, const GenOptions& options) {
  Bytes total = 0;
  for (const Storage& storage : graph.storages) total += storage.bytes;
  Machine machine;
  machine.name = "random";
  machine.hbm_bytes_per_us = 1000;
  machine.ddr_bytes = 2 * total + 1;
  const double rate = 20 + 200 * Unit();  // a storage of 1000 takes 5 to 50 us
  const double factor = Chance(0.2) ? 0.5 + 0.5 * Unit() : 1;
  const double latency = Chance(0.5) ? Unit() : 0;
  const auto link = [&](TierKind from, TierKind to, double slower) {
    machine.links.push_back({from, to, 1, latency, {{1, rate * slower}}, factor, 1});
  };
  link(TierKind::kHbm, TierKind::kDdr, 0.5 + Unit());
  link(TierKind::kDdr, TierKind::kHbm, 0.5 + Unit());
  if (options.flash && Chance(0.3)) {
    Bytes largest = 0;
    for (const Storage& storage : graph.storages) largest = std::max(largest, storage.bytes);
    machine.ddr_bytes = 4 * largest + Pick(total / 4 + 1);  // staging alone takes 4 of the largest
    machine.flash_bytes = 4 * total;
    link(TierKind::kDdr, TierKind::kFlash, 0.3);
    link(TierKind::kFlash, TierKind::kDdr, 0.4);
  }
  return machine;
}

GenCase GraphGenerator::Next(const GenOptions& options) {
  GenCase result;
  result.graph = NextGraph(options);
  result.machine = NextMachine(result.graph, options);
  plan::Plan totals;
  plan::FillGraphTotals(result.graph, totals);
  const Bytes floor = totals.floor_bytes, peak = totals.unplanned_peak_bytes;
  if (Chance(0.34)) {
    result.budget = floor + Pick(floor / 10 + 1);
  } else if (Chance(0.95)) {
    result.budget = floor + Pick(peak - floor + 1);
  } else {
    result.budget = Pick(2 * peak + 1);
  }
  return result;
}

Graph LayeredGraph(std::uint32_t ops) {
  Graph graph;
  graph.name = "layered";
  const std::uint32_t layers = std::max(1U, ops / 20);
  std::vector<StorageIndex> kept;  // forward activations, for the way back
  const auto storage = [&graph](Bytes bytes, bool persistent, TensorKind kind) {
    Storage s;
    s.name = "t" + std::to_string(graph.storages.size());
    s.bytes = bytes;
    s.persistent = persistent;
    s.kind = kind;
    graph.storages.push_back(std::move(s));
    return static_cast<StorageIndex>(graph.storages.size() - 1);
  };
  std::vector<StorageIndex> weights;
  StorageIndex x = storage(kMiB, false, TensorKind::kActivation);
  graph.storages[x].input = true;
  const auto op = [&](std::vector<StorageIndex> reads, std::vector<StorageIndex> writes,
                      double us) {
    Op o;
    o.name = "n" + std::to_string(graph.ops.size());
    SortUnique(reads);
    SortUnique(writes);
    o.reads = std::move(reads);
    o.writes = std::move(writes);
    o.microseconds = us;
    graph.ops.push_back(std::move(o));
  };
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    for (std::uint32_t i = 0; i < 10; ++i) {
      const StorageIndex y = storage(kMiB + i * kKiB, false, TensorKind::kActivation);
      if (i % 5 == 0) {
        weights.push_back(storage(4 * kMiB, true, TensorKind::kWeight));
        op({x, weights.back()}, {y}, 60);
      } else {
        op({x}, {y}, 15);
      }
      kept.push_back(y);
      x = y;
    }
  }
  StorageIndex gradient = x;
  std::uint32_t weight = static_cast<std::uint32_t>(weights.size());
  for (std::size_t i = kept.size(); i-- > 0;) {
    const StorageIndex next = storage(kMiB, false, TensorKind::kActivation);
    if (i % 5 == 0 && weight > 0) {
      --weight;
      op({gradient, kept[i], weights[weight]}, {next, weights[weight]}, 120);
    } else {
      op({gradient, kept[i]}, {next}, 30);
    }
    gradient = next;
  }
  return graph;
}

Graph PermuteStorages(const Graph& graph, std::mt19937_64& rng) {
  std::vector<StorageIndex> to(graph.storages.size());
  std::iota(to.begin(), to.end(), 0U);
  std::shuffle(to.begin(), to.end(), rng);
  Graph result = graph;
  for (StorageIndex s = 0; s < to.size(); ++s) result.storages[to[s]] = graph.storages[s];
  const auto map = [&to](std::vector<StorageIndex>& list) {
    for (StorageIndex& s : list) s = to[s];
    std::sort(list.begin(), list.end());
  };
  for (Op& op : result.ops) {
    map(op.reads);
    map(op.writes);
  }
  for (plan::DataDependentGroup& group : result.groups) map(group.members);
  return result;
}

}  // namespace hmm::testing
