// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx_build.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "graph/onnx_alias.h"
#include "graph/onnx_model.h"
#include "plan/lifetimes.h"

namespace hmm::graph {
namespace {

using plan::OpIndex;
using plan::StorageIndex;

// An op that runs no kernel: less than any clock shows, yet not 0, which would ask for an estimate.
constexpr double kNoKernelUs = 1e-9;

void SortUnique(std::vector<std::uint32_t>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

class Builder {
 public:
  Builder(const Scope& scope, bool main) : scope_(scope), aliases_(scope, main) {}

  plan::Graph Build() {
    graph_.name = scope_.graph->name();
    AddStorages();
    const std::vector<std::string> names = OpNames(scope_);
    writers_.resize(graph_.storages.size(), 0);
    for (std::size_t position = 0; position < names.size(); ++position) {
      AddOp(position, names[position]);
    }
    MarkRecomputable();
    return std::move(graph_);
  }

 private:
  void AddStorages() {
    const std::vector<Value>& values = aliases_.values();
    storage_of_.resize(values.size(), plan::kNone);
    for (std::size_t v = 0; v < values.size(); ++v) {
      const Value& value = values[v];
      const std::size_t root = aliases_.Root(v);
      if (!value.bytes.has_value()) graph_.unknown.push_back(value.name);
      const std::optional<Bytes>& bytes = values[root].bytes;
      if (bytes.value_or(0) == 0) continue;
      if (storage_of_[root] == plan::kNone) {  // a root need not come before its aliases
        storage_of_[root] = static_cast<StorageIndex>(graph_.storages.size());
        plan::Storage& made = graph_.storages.emplace_back();
        made.name = values[root].name;
        made.bytes = *bytes;
      }
      storage_of_[v] = storage_of_[root];
      plan::Storage& storage = graph_.storages[storage_of_[v]];
      if (v != root) storage.aliases.push_back(value.name);
      if (value.weight) storage.kind = TensorKind::kWeight;
      if (value.kv_cache) storage.kind = TensorKind::kKvCache;
      storage.persistent |= value.weight || aliases_.Persistent(root);
      storage.input |= value.input;
      storage.output |= value.output;
    }
  }

  void AddOp(std::size_t position, const std::string& name) {
    const onnx::NodeProto& node = scope_.graph->node(scope_.order[position]);
    const NodeView view(node, scope_);
    plan::Op op;
    op.name = name;
    op.type = node.op_type();
    bool constant = node.output_size() > 0;
    for (const std::string& output : node.output()) {
      const std::size_t value = aliases_.IndexOf(output);
      constant = constant && value != kNoPosition && aliases_.values()[value].weight;
    }
    // Constants are there from the start; a view moves no byte, and a shape is no data.
    const bool no_kernel = constant || IsAlias(view) || ReadsShapeOnly(view);
    for (const std::string& input : aliases_.Reads(position)) {
      const std::size_t value = aliases_.IndexOf(input);
      if (value == kNoPosition) continue;  // of a graph around: counted there
      const StorageIndex storage = storage_of_[value];
      if (storage != plan::kNone && !no_kernel) op.reads.push_back(storage);
      // Order that no storage shows.
      const std::size_t made_at = aliases_.values()[value].made_at;
      if ((storage == plan::kNone || no_kernel) && made_at != kNoPosition) {
        op.after.push_back(static_cast<OpIndex>(made_at));
      }
    }
    if (!constant && !IsAlias(view)) {
      for (const std::string& output : node.output()) {
        const std::size_t value = aliases_.IndexOf(output);
        if (value != kNoPosition && storage_of_[value] != plan::kNone) {
          op.writes.push_back(storage_of_[value]);
        }
      }
    }
    AddSubgraphs(position, op);
    SortUnique(op.reads);
    SortUnique(op.writes);
    SortUnique(op.after);
    for (const StorageIndex s : op.writes) ++writers_[s];
    if (no_kernel) op.microseconds = kNoKernelUs;
    const Facts* output = node.output_size() > 0 ? scope_.Find(node.output(0)) : nullptr;
    if (output != nullptr) op.flops = NodeFlops(view, StaticShape(output->type));
    graph_.ops.push_back(std::move(op));
  }

  // A view that did come to share its input's bytes.
  bool IsAlias(const NodeView& view) const {
    if (!IsView(view)) return false;
    const std::size_t from = aliases_.IndexOf(view.node().input(0));
    const std::size_t to = aliases_.IndexOf(view.node().output(0));
    return from != kNoPosition && to != kNoPosition && aliases_.Root(from) == aliases_.Root(to);
  }

  // An op with subgraphs is opaque: their weights are read by it, the rest is its workspace.
  void AddSubgraphs(std::size_t position, plan::Op& op) {
    const auto inner = scope_.inner.find(scope_.order[position]);
    if (inner == scope_.inner.end()) return;
    for (std::size_t g = 0; g < inner->second.size(); ++g) {
      const plan::Graph graph = Builder(*inner->second[g], false).Build();
      const std::string prefix =
          absl::StrCat(op.name, inner->second.size() > 1 ? absl::StrCat("[", g, "]") : "", "/");
      Bytes persistent = 0;
      for (const plan::Storage& storage : graph.storages) {
        if (!storage.persistent) continue;
        persistent += storage.bytes;
        op.reads.push_back(static_cast<StorageIndex>(graph_.storages.size()));
        writers_.push_back(0);
        plan::Storage& copy = graph_.storages.emplace_back(storage);
        copy.name = absl::StrCat(prefix, storage.name);
        for (std::string& alias : copy.aliases) alias = absl::StrCat(prefix, alias);
        copy.input = copy.output = false;
      }
      for (const std::string& name : graph.unknown) {
        graph_.unknown.push_back(absl::StrCat(prefix, name));
      }
      if (graph.ops.empty()) continue;
      const plan::Lifetimes lives = ComputeLifetimes(graph, GivenOrder(graph));
      op.workspace = std::max(op.workspace, lives.peak_bytes - persistent);
    }
  }

  void MarkRecomputable() {
    for (const plan::Op& op : graph_.ops) {
      if (op.writes.size() != 1 || op.workspace > 0 || !IsCheapAndPure(op.type)) continue;
      plan::Storage& storage = graph_.storages[op.writes[0]];
      const bool alone = writers_[op.writes[0]] == 1 && !storage.persistent && !storage.input;
      storage.recomputable = alone && storage.kind == TensorKind::kActivation;
    }
  }

  const Scope& scope_;
  Aliases aliases_;
  plan::Graph graph_;
  std::vector<StorageIndex> storage_of_;  // by value; kNone: no bytes, or not known how many
  std::vector<std::uint32_t> writers_;    // by storage
};

}  // namespace

plan::Graph BuildGraph(const Scope& scope) { return Builder(scope, true).Build(); }

}  // namespace hmm::graph
