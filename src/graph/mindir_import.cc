// SPDX-License-Identifier: Apache-2.0
#include "graph/mindir_import.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/annotation.h"
#include "graph/file_error.h"
#include "graph/mindir_annotate.h"
#include "graph/mindir_flatten.h"
#include "graph/mindir_structure.h"
#include "plan/lifetimes.h"

namespace hmm::graph {
namespace {

using plan::StorageIndex;

absl::StatusOr<MindIrSymbols> SymbolsOf(const MindIrModel& model) {
  MindIrSymbols symbols;
  for (const auto& primitive : model.proto->primitives()) {
    if (symbols.primitives.emplace(primitive.name(), &primitive).second) continue;
    return BadMindIr(model.name, absl::StrCat("primitive ", Shown(primitive.name())),
                     "name: used twice");
  }
  for (const auto& graph : model.proto->functions()) {
    const bool top = graph.name() == model.proto->graph().name();
    if (!top && symbols.graphs.emplace(graph.name(), &graph).second) continue;
    return BadMindIr(model.name, absl::StrCat("graph ", Shown(graph.name())), "name: used twice");
  }
  symbols.graphs.emplace(model.proto->graph().name(), &model.proto->graph());
  return symbols;
}

absl::StatusOr<plan::Graph> Import(absl::StatusOr<MindIrModel> loaded,
                                   const MindIrOptions& options) {
  if (!loaded.ok()) return loaded.status();
  const MindIrModel& model = *loaded;
  if (IsAnnotatedMindIr(*model.proto)) HMM_RETURN_IF_ERROR(UnannotateMindIr(*loaded));
  HMM_RETURN_IF_ERROR(CheckNothingWoven(model.proto->graph().node(), model.name));
  if (HasMindIrStructure(*model.proto)) {
    return GraphOfMindIrStructure(*model.proto, model.name, nullptr);
  }
  const absl::StatusOr<FlatGraph> flat = FlattenMindIr(model, options);
  if (!flat.ok()) return flat.status();
  std::string name = model.proto->graph().name();
  if (name.empty()) name = model.name;
  plan::Graph graph = BuildMindIrGraph(*flat, name, nullptr);
  if (const absl::Status sound = plan::CheckGraph(graph); !sound.ok()) {
    return BadMindIr(model.name, "graph", std::string(sound.message()));
  }
  return graph;
}

}  // namespace

absl::StatusOr<FlatGraph> FlattenMindIr(const MindIrModel& model, const MindIrOptions& options) {
  const absl::StatusOr<MindIrSymbols> symbols = SymbolsOf(model);
  if (!symbols.ok()) return symbols.status();
  return Flattener(model, options, *symbols, nullptr).RunTop();
}

plan::Graph BuildMindIrGraph(const FlatGraph& flat, const std::string& name,
                             std::vector<LeafIndex>* roots) {
  plan::Graph graph;
  graph.name = name;
  std::vector<StorageIndex> storage_of(flat.leaves.size(), plan::kNone);
  for (LeafIndex l = 0; l < flat.leaves.size(); ++l) {
    const FlatLeaf& leaf = flat.leaves[l];
    const LeafIndex root = leaf.root;  // whose root is itself
    const FlatLeaf& of = flat.leaves[root];
    if (of.outside) continue;
    if (!of.bytes.has_value() && root == l) graph.unknown.push_back(leaf.name);
    if (of.bytes.value_or(0) == 0) continue;
    if (storage_of[root] == plan::kNone) {
      storage_of[root] = static_cast<StorageIndex>(graph.storages.size());
      plan::Storage& made = graph.storages.emplace_back();
      made.name = of.name;
      made.bytes = *of.bytes;
      made.kind = of.kind;
      if (roots != nullptr) roots->push_back(root);
    }
    storage_of[l] = storage_of[root];
    plan::Storage& storage = graph.storages[storage_of[l]];
    if (l != root) storage.aliases.push_back(leaf.name);
    storage.persistent |= leaf.persistent;
    storage.input |= leaf.input;
    storage.output |= leaf.output;
  }
  graph.unknown.insert(graph.unknown.end(), flat.unknown.begin(), flat.unknown.end());
  std::vector<std::uint32_t> writers(graph.storages.size(), 0);
  const auto map = [&](std::vector<std::uint32_t>& list) {
    std::vector<std::uint32_t> mapped;
    for (const LeafIndex leaf : list) {
      if (storage_of[leaf] != plan::kNone) mapped.push_back(storage_of[leaf]);
    }
    std::sort(mapped.begin(), mapped.end());
    mapped.erase(std::unique(mapped.begin(), mapped.end()), mapped.end());
    list = std::move(mapped);
  };
  for (const plan::Op& op : flat.ops) {
    plan::Op& copy = graph.ops.emplace_back(op);
    map(copy.reads);
    map(copy.writes);
    for (const StorageIndex s : copy.writes) ++writers[s];
  }
  for (const plan::Op& op : graph.ops) {
    if (op.writes.size() != 1 || op.workspace > 0 || !IsCheapAndPureMindIr(op.type)) continue;
    plan::Storage& storage = graph.storages[op.writes[0]];
    storage.recomputable = writers[op.writes[0]] == 1 && !storage.persistent && !storage.input &&
                           storage.kind == TensorKind::kActivation;
  }
  return graph;
}

absl::StatusOr<plan::Graph> ImportMindIr(const std::string& path, const MindIrOptions& options) {
  return Import(LoadMindIrFile(path, options), options);
}

absl::StatusOr<plan::Graph> ImportMindIrBytes(std::string_view bytes, const std::string& name,
                                              const std::string& directory,
                                              const MindIrOptions& options) {
  return Import(LoadMindIrBytes(bytes, name, directory, options), options);
}

}  // namespace hmm::graph
