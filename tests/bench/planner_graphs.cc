// SPDX-License-Identifier: Apache-2.0
#include "bench/planner_graphs.h"

#include <algorithm>
#include <utility>

#include "plan/roofline.h"
#include "support/gen_graph.h"

namespace hmm::bench {
namespace {

using plan::Graph;
using plan::Op;
using plan::StorageIndex;

// A decoder of 32 layers at the sizes of an 8-billion-parameter model: hidden 4096, ffn 14336, 8 of
// 32 heads for keys and values, two bytes a number. `tokens` new ones after `context` earlier ones.
class Decoder {
 public:
  Decoder(Bytes tokens, Bytes context) : tokens_(tokens), context_(context) {}

  Graph Make() {
    constexpr Bytes kHidden = 4096, kFfn = 14336, kKv = 1024, kVocab = 128256;
    StorageIndex x = Activation(kHidden);
    graph_.storages[x].input = true;
    for (int layer = 0; layer < 32; ++layer) {
      const StorageIndex normed = Step({x}, kHidden, 0);
      const StorageIndex q = Matrix(normed, kHidden, kHidden);
      const StorageIndex kv = Matrix(normed, kHidden, 2 * kKv);
      graph_.storages[kv].kind = TensorKind::kKvCache;
      graph_.storages[kv].output = true;
      std::vector<StorageIndex> reads = {q, kv};
      if (context_ > 0) {
        const StorageIndex past = Add(context_ * 2 * kKv * 2, TensorKind::kKvCache);
        graph_.storages[past].persistent = true;
        reads.push_back(past);
      }
      const double length = static_cast<double>(context_) + static_cast<double>(tokens_) / 2;
      const double scores = 4.0 * static_cast<double>(tokens_ * kHidden) * length;
      const StorageIndex attended = Step(std::move(reads), kHidden, scores);
      const StorageIndex out = Matrix(attended, kHidden, kHidden);
      x = Step({x, out}, kHidden, 0);
      const StorageIndex again = Step({x}, kHidden, 0);
      const StorageIndex gate = Matrix(again, kHidden, kFfn);
      const StorageIndex up = Matrix(again, kHidden, kFfn);
      const StorageIndex product = Step({gate, up}, kFfn, 0);
      const StorageIndex down = Matrix(product, kFfn, kHidden);
      x = Step({x, down}, kHidden, 0);
    }
    tokens_ = 1;  // the last one alone is looked at
    const StorageIndex logits = Matrix(x, kHidden, kVocab);
    graph_.storages[logits].output = true;
    return std::move(graph_);
  }

 private:
  StorageIndex Add(Bytes bytes, TensorKind kind) {
    plan::Storage storage;
    storage.name = "t" + std::to_string(graph_.storages.size());
    storage.bytes = bytes;
    storage.kind = kind;
    graph_.storages.push_back(std::move(storage));
    return static_cast<StorageIndex>(graph_.storages.size() - 1);
  }
  StorageIndex Activation(Bytes width) { return Add(tokens_ * width * 2, TensorKind::kActivation); }
  StorageIndex Step(std::vector<StorageIndex> reads, Bytes width, double flops) {
    const StorageIndex result = Activation(width);
    Op op;
    op.name = "op" + std::to_string(graph_.ops.size());
    std::sort(reads.begin(), reads.end());
    op.reads = std::move(reads);
    op.writes = {result};
    op.flops = flops;
    graph_.ops.push_back(std::move(op));
    return result;
  }
  StorageIndex Matrix(StorageIndex input, Bytes rows, Bytes columns) {
    const StorageIndex weight = Add(rows * columns * 2, TensorKind::kWeight);
    graph_.storages[weight].persistent = true;
    return Step({input, weight}, columns, 2.0 * static_cast<double>(tokens_ * rows * columns));
  }

  Bytes tokens_;
  Bytes context_;
  Graph graph_;
};

Graph Random(std::uint64_t seed, std::uint32_t ops) {
  hmm::testing::GraphGenerator gen(seed);
  hmm::testing::GenOptions options;
  options.ops_min = options.ops_max = ops;
  Graph graph = gen.Next(options).graph;
  for (plan::Storage& storage : graph.storages) storage.bytes *= 64 * kKiB;  // for a real link
  for (Op& op : graph.ops) op.workspace *= 64 * kKiB;
  for (Op& op : graph.ops) op.microseconds *= 100;
  return graph;
}

}  // namespace

std::vector<BenchGraph> BenchGraphs(const plan::Machine& machine) {
  std::vector<BenchGraph> graphs;
  graphs.push_back({"decoder-8b-prefill-8192", Decoder(8192, 0).Make()});
  graphs.push_back({"decoder-8b-prefill-1024", Decoder(1024, 0).Make()});
  graphs.push_back({"decoder-8b-decode-32768", Decoder(1, 32768).Make()});
  graphs.push_back({"training-200", hmm::testing::LayeredGraph(200)});
  graphs.push_back({"training-2000", hmm::testing::LayeredGraph(2000)});
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    graphs.push_back({"random-100-" + std::to_string(seed), Random(seed, 100)});
  }
  graphs.push_back({"random-1000", Random(5, 1000)});
  for (BenchGraph& bench : graphs) plan::FillDurations(bench.graph, machine);
  return graphs;
}

}  // namespace hmm::bench
