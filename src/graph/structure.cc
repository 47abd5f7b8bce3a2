// SPDX-License-Identifier: Apache-2.0
#include "graph/structure.h"

#include <hmm/v1/graph.pb.h>

#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/file_error.h"
#include "graph/graph_proto.h"
#include "graph/message_file.h"

namespace hmm::graph {
namespace {

using plan::StorageIndex;

class Writer {
 public:
  explicit Writer(const plan::Graph& graph) : graph_(graph), current_(graph.storages.size()) {
    for (const plan::Storage& storage : graph.storages) {
      taken_.insert(storage.name);
      taken_.insert(storage.aliases.begin(), storage.aliases.end());
    }
  }

  Structure Run() && {
    out_.name = graph_.name;
    for (StorageIndex s = 0; s < graph_.storages.size(); ++s) {
      const plan::Storage& storage = graph_.storages[s];
      if (!storage.persistent && !storage.input) continue;
      auto& list = storage.persistent ? out_.weights : out_.inputs;
      list.push_back({storage.name, storage.bytes, s});
      current_[s] = storage.name;
    }
    for (const plan::Op& op : graph_.ops) AddNode(op);
    for (StorageIndex s = 0; s < graph_.storages.size(); ++s) {
      if (!graph_.storages[s].output || current_[s].empty()) continue;
      out_.outputs.push_back({current_[s], graph_.storages[s].bytes, s});
    }
    return std::move(out_);
  }

 private:
  std::string NewName(const std::string& of) {
    std::string name;
    do {
      name = absl::StrCat(of, "~", ++versions_[of]);
    } while (!taken_.insert(name).second);
    return name;
  }

  void AddNode(const plan::Op& op) {
    StructureNode node;
    node.name = op.name;
    node.type = op.type.empty() ? kNoType : op.type;
    absl::flat_hash_map<StorageIndex, std::int64_t> place;
    const auto add = [&](StorageIndex s) {
      place.emplace(s, static_cast<std::int64_t>(node.inputs.size()));
      node.inputs.push_back(current_[s]);
    };
    for (const StorageIndex s : op.reads) add(s);
    node.reads = static_cast<std::uint32_t>(op.reads.size());
    for (const StorageIndex s : op.writes) {
      if (!current_[s].empty() && !place.contains(s)) add(s);
    }
    if (op.group.has_value()) {
      for (const StorageIndex s : graph_.groups[*op.group].members) {
        if (!place.contains(s)) add(s);
      }
    }
    for (const StorageIndex s : op.writes) {
      const bool first = current_[s].empty();
      node.bytes_of.push_back(first ? kNewBytes : place[s]);
      node.output_bytes.push_back(graph_.storages[s].bytes);
      node.outputs.push_back(first ? graph_.storages[s].name : NewName(graph_.storages[s].name));
      current_[s] = node.outputs.back();
    }
    if (op.writes.empty()) {
      node.bytes_of.push_back(kNoBytes);
      node.output_bytes.push_back(0);
      node.outputs.push_back(NewName(op.name));
    }
    out_.nodes.push_back(std::move(node));
  }

  const plan::Graph& graph_;
  Structure out_;
  std::vector<std::string> current_;  // value of each storage; empty: none yet
  absl::flat_hash_set<std::string> taken_;
  absl::flat_hash_map<std::string, std::size_t> versions_;
};

// Fills in what the nodes say.
class Reader {
 public:
  Reader(const Structure& structure, const std::string& file, v1::Graph& message)
      : structure_(structure), file_(file), message_(message) {}

  absl::Status Run() {
    for (int s = 0; s < message_.storages_size(); ++s) {
      by_name_.emplace(message_.storages(s).name(), static_cast<StorageIndex>(s));
    }
    for (const auto* given : {&structure_.weights, &structure_.inputs}) {
      for (const StructureValue& value : *given) {
        HMM_RETURN_IF_ERROR(Define(value.name, value.bytes, absl::StrCat("value ", value.name)));
      }
    }
    if (structure_.nodes.size() != static_cast<std::size_t>(message_.ops_size())) {
      return Bad(kFactsKey, absl::StrCat("speaks of ", message_.ops_size(), " ops, the file has ",
                                         structure_.nodes.size()));
    }
    for (std::size_t n = 0; n < structure_.nodes.size(); ++n) {
      HMM_RETURN_IF_ERROR(
          ReadNode(structure_.nodes[n], *message_.mutable_ops(static_cast<int>(n))));
    }
    return absl::OkStatus();
  }

  absl::flat_hash_map<std::string, StorageIndex> TakeValues() { return std::move(values_); }

 private:
  absl::Status Bad(const std::string& where, const std::string& what) const {
    return BadGraph(absl::StrCat(file_, ": ", where), what);
  }

  // A value that is the first of its storage.
  absl::Status Define(const std::string& name, Bytes bytes, const std::string& where) {
    const auto storage = by_name_.find(name);
    if (storage == by_name_.end()) {
      return Bad(where, absl::StrCat(Shown(name), " is no storage of ", kFactsKey));
    }
    if (!values_.emplace(name, storage->second).second) return Bad(where, "is made twice");
    message_.mutable_storages(static_cast<int>(storage->second))->set_bytes(bytes);
    return absl::OkStatus();
  }

  absl::Status ReadNode(const StructureNode& node, v1::Graph::Op& op) {
    const std::string where = absl::StrCat("node ", Shown(node.name));
    op.set_name(node.name);
    op.set_type(node.type == kNoType ? "" : node.type);
    std::vector<std::uint32_t> reads, writes;
    std::vector<StorageIndex> inputs;
    for (const std::string& input : node.inputs) {
      const auto value = values_.find(input);
      if (value == values_.end()) {
        return Bad(where, absl::StrCat("input ", Shown(input), ": nothing makes it"));
      }
      inputs.push_back(value->second);
    }
    if (node.reads > inputs.size() || node.outputs.size() != node.bytes_of.size()) {
      return Bad(where, absl::StrCat(kReadsAttribute, " and ", kBytesOfAttribute,
                                     " do not fit its inputs and outputs"));
    }
    reads.assign(inputs.begin(), inputs.begin() + node.reads);
    for (std::size_t o = 0; o < node.outputs.size(); ++o) {
      const std::int64_t of = node.bytes_of[o];
      if (of == kNoBytes) continue;
      if (of == kNewBytes) {
        HMM_RETURN_IF_ERROR(Define(node.outputs[o], node.output_bytes[o], where));
        writes.push_back(values_[node.outputs[o]]);
        continue;
      }
      if (of < 0 || static_cast<std::size_t>(of) >= inputs.size()) {
        return Bad(where, absl::StrCat(kBytesOfAttribute, "[", o, "]: ", of, " is no input"));
      }
      writes.push_back(inputs[static_cast<std::size_t>(of)]);
      if (!values_.emplace(node.outputs[o], writes.back()).second) {
        return Bad(where, absl::StrCat("output ", Shown(node.outputs[o]), " is made twice"));
      }
    }
    std::sort(reads.begin(), reads.end());
    std::sort(writes.begin(), writes.end());
    op.mutable_reads()->Assign(reads.begin(), reads.end());
    op.mutable_writes()->Assign(writes.begin(), writes.end());
    return absl::OkStatus();
  }

  const Structure& structure_;
  const std::string& file_;
  v1::Graph& message_;
  absl::flat_hash_map<std::string, StorageIndex> by_name_, values_;
};

}  // namespace

absl::StatusOr<Structure> StructureOf(const plan::Graph& graph) {
  HMM_RETURN_IF_ERROR(FormatGraphBinary(graph).status());
  Structure structure = Writer(graph).Run();
  v1::Graph facts = GraphToProto(graph);
  std::vector<bool> seen(graph.storages.size(), false);
  for (const auto* given : {&structure.weights, &structure.inputs}) {
    for (const StructureValue& value : *given) seen[value.storage] = true;
  }
  for (const plan::Op& op : graph.ops) {
    for (const StorageIndex s : op.writes) seen[s] = true;
  }
  for (int s = 0; s < facts.storages_size(); ++s) {
    if (seen[static_cast<std::size_t>(s)]) facts.mutable_storages(s)->clear_bytes();
  }
  for (v1::Graph::Op& op : *facts.mutable_ops()) {
    op.clear_name();
    op.clear_type();
    op.clear_reads();
    op.clear_writes();
  }
  HMM_ASSIGN_OR_RETURN(const std::string bytes, FormatMessageBinary(facts));
  structure.facts = absl::Base64Escape(bytes);
  return structure;
}

absl::StatusOr<plan::Graph> GraphOfStructure(
    const Structure& structure, const std::string& file,
    absl::flat_hash_map<std::string, StorageIndex>* storage_of) {
  const std::string where = absl::StrCat(file, ": ", kFactsKey);
  std::string bytes;
  if (!absl::Base64Unescape(structure.facts, &bytes)) return BadGraph(where, "is not base64");
  v1::Graph message;
  HMM_RETURN_IF_ERROR(ParseMessageBinary(bytes, where, message));
  Reader reader(structure, file, message);
  HMM_RETURN_IF_ERROR(reader.Run());
  if (storage_of != nullptr) *storage_of = reader.TakeValues();
  absl::StatusOr<plan::Graph> graph = GraphFromProto(message);
  if (!graph.ok()) return Annotate(graph.status(), file);
  return graph;
}

}  // namespace hmm::graph
