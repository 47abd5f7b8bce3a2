// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx_annotate.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/annotation.h"
#include "graph/onnx_structure.h"
#include "graph/weave.h"

namespace hmm::graph {
namespace {

using onnx::AttributeProto;
using onnx::GraphProto;
using onnx::ModelProto;
using onnx::NodeProto;

constexpr int kIrVersionOfFunctions = 8;
constexpr int kOpsetOfIdentity = 13;  // where the model imports none of the standard ops
constexpr char kDepend[] = "Depend";
using Renames = absl::flat_hash_map<std::string, std::string>;

std::vector<std::string> ListOf(const google::protobuf::RepeatedPtrField<std::string>& list) {
  return {list.begin(), list.end()};
}

// Renames what the graph reads from around it.
void RenameWithin(GraphProto& graph, Renames renames) {
  for (const auto& input : graph.input()) renames.erase(input.name());
  for (const auto& tensor : graph.initializer()) renames.erase(tensor.name());
  for (const auto& sparse : graph.sparse_initializer()) renames.erase(sparse.values().name());
  for (const NodeProto& node : graph.node()) {
    for (const std::string& output : node.output()) renames.erase(output);
  }
  if (renames.empty()) return;
  const auto rename = [&](std::string& name) {
    if (const auto found = renames.find(name); found != renames.end()) name = found->second;
  };
  for (NodeProto& node : *graph.mutable_node()) {
    for (std::string& input : *node.mutable_input()) rename(input);
    for (AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) RenameWithin(*attribute.mutable_g(), renames);
      for (GraphProto& inner : *attribute.mutable_graphs()) RenameWithin(inner, renames);
    }
  }
  for (auto& output : *graph.mutable_output()) rename(*output.mutable_name());
}

void RenameCaptured(NodeProto& node, const Renames& renames) {
  if (renames.empty()) return;
  for (AttributeProto& attribute : *node.mutable_attribute()) {
    if (attribute.has_g()) RenameWithin(*attribute.mutable_g(), renames);
    for (GraphProto& inner : *attribute.mutable_graphs()) RenameWithin(inner, renames);
  }
}

WeaveModel ModelOf(const plan::Graph& graph, const GraphProto& from, const std::vector<int>& order,
                   const absl::flat_hash_map<std::string, plan::StorageIndex>* storage_of) {
  WeaveModel model;
  for (std::size_t position = 0; position < order.size(); ++position) {
    const NodeProto& node = from.node(order[position]);
    WeaveNode& made = model.nodes.emplace_back();
    made.op = static_cast<plan::OpIndex>(position);
    made.inputs = ListOf(node.input());
    const std::vector<std::string> captured = CapturedNames(node);
    made.inputs.insert(made.inputs.end(), captured.begin(), captured.end());
    made.outputs = ListOf(node.output());
  }
  if (storage_of != nullptr) {
    for (const auto& [value, storage] : *storage_of) model.holds[value] = {storage};
    return model;
  }
  for (plan::StorageIndex s = 0; s < graph.storages.size(); ++s) {
    model.holds[graph.storages[s].name] = {s};
    for (const std::string& alias : graph.storages[s].aliases) model.holds[alias] = {s};
  }
  return model;
}

// Functions whose body is an Identity of the first input; the others only order.
void AddFunctions(ModelProto& model) {
  std::int64_t opset = 0;
  for (const auto& import : model.opset_import()) {
    if (import.domain().empty() || import.domain() == "ai.onnx") opset = import.version();
  }
  const auto import = [](onnx::OperatorSetIdProto& out, const char* domain, std::int64_t version) {
    out.set_domain(domain);
    out.set_version(version);
  };
  if (opset == 0) import(*model.add_opset_import(), "", opset = kOpsetOfIdentity);
  import(*model.add_opset_import(), kMoveDomain, 1);
  for (const char* name : {"SwapOut", "SwapIn", kDepend}) {
    onnx::FunctionProto& function = *model.add_functions();
    function.set_name(name);
    function.set_domain(kMoveDomain);
    import(*function.add_opset_import(), "", opset);
    function.add_input("x");
    if (name == std::string_view(kDepend)) {
      function.add_input("after");
    } else {
      for (const char* attribute : {"move", "bytes", "from", "to"}) {
        function.add_attribute(attribute);
      }
    }
    function.add_output("y");
    NodeProto& identity = *function.add_node();
    identity.set_op_type("Identity");
    identity.add_input("x");
    identity.add_output("y");
  }
}

void SetInt(NodeProto& node, const char* name, std::int64_t value) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::INT);
  attribute.set_i(value);
}

void SetText(NodeProto& node, const char* name, std::string_view value) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::STRING);
  attribute.set_s(std::string(value));
}

// What was woven, as nodes.
class Writer {
 public:
  Writer(const plan::Plan& plan, const WeaveModel& model, const GraphProto& from,
         const std::vector<int>& order)
      : plan_(plan), model_(model), from_(from), order_(order) {}

  NodeProto Node(const WovenNode& woven) const {
    switch (woven.kind) {
      case WovenNode::Kind::kNode:
      case WovenNode::Kind::kCopy:
        return OfModel(woven);
      case WovenNode::Kind::kMove:
        return OfMove(woven);
      case WovenNode::Kind::kAfter:
        break;
    }
    return Ours(kDepend, woven);
  }

 private:
  static NodeProto Ours(const char* type, const WovenNode& woven) {
    NodeProto node;
    node.set_name(woven.outputs[0]);
    node.set_domain(kMoveDomain);
    node.set_op_type(type);
    for (const std::string& input : woven.inputs) node.add_input(input);
    node.add_output(woven.outputs[0]);
    return node;
  }

  NodeProto OfModel(const WovenNode& woven) const {
    NodeProto node = from_.node(order_[woven.node]);
    Renames captured;
    for (std::size_t i = 0; i < woven.inputs.size(); ++i) {
      const int at = static_cast<int>(i);
      if (at < node.input_size()) {
        node.set_input(at, woven.inputs[i]);
      } else if (model_.nodes[woven.node].inputs[i] != woven.inputs[i]) {
        captured[model_.nodes[woven.node].inputs[i]] = woven.inputs[i];
      }
    }
    RenameCaptured(node, captured);
    if (woven.kind == WovenNode::Kind::kNode) return node;
    node.set_name(woven.outputs[0]);
    for (int o = 0; o < node.output_size(); ++o) {
      node.set_output(o, woven.outputs[static_cast<std::size_t>(o)]);
    }
    return node;
  }

  // A Drop moves nothing: what follows it takes the copy that stays by way of it.
  NodeProto OfMove(const WovenNode& woven) const {
    const plan::Move& move = plan_.moves[woven.move];
    if (move.kind == plan::MoveKind::kDrop) {
      NodeProto node = Ours(kDepend, woven);
      node.add_input(woven.inputs[0]);
      return node;
    }
    NodeProto node = Ours(WovenMoveName(move.kind), woven);
    SetInt(node, "move", woven.move);
    SetInt(node, "bytes", static_cast<std::int64_t>(move.bytes));
    SetText(node, "from", TierKindName(move.from));
    SetText(node, "to", TierKindName(move.to));
    return node;
  }

  const plan::Plan& plan_;
  const WeaveModel& model_;
  const GraphProto& from_;
  const std::vector<int>& order_;
};

void SetMetadata(ModelProto& model, const char* key, std::string value) {
  onnx::StringStringEntryProto& entry = *model.add_metadata_props();
  entry.set_key(key);
  entry.set_value(std::move(value));
}

const std::string* Metadata(const ModelProto& model, std::string_view key) {
  for (const auto& entry : model.metadata_props()) {
    if (entry.key() == key) return &entry.value();
  }
  return nullptr;
}

}  // namespace

absl::Status AnnotateOnnx(const plan::Graph& graph, const plan::Plan& plan, OnnxModel& model) {
  ModelProto& proto = *model.proto;
  HMM_ASSIGN_OR_RETURN(const std::vector<int> order, SortNodes(proto.graph(), model.name));
  absl::flat_hash_map<std::string, plan::StorageIndex> storage_of;
  const bool structure = HasOnnxStructure(proto);
  if (structure) {
    HMM_RETURN_IF_ERROR(GraphOfOnnxStructure(proto, model.name, &storage_of).status());
  }
  const WeaveModel weave = ModelOf(graph, proto.graph(), order, structure ? &storage_of : nullptr);
  HMM_ASSIGN_OR_RETURN(const Woven woven, Weave(graph, plan, weave));
  const Writer writer(plan, weave, proto.graph(), order);
  google::protobuf::RepeatedPtrField<NodeProto> nodes;
  std::vector<std::uint32_t> before;
  nodes.Reserve(static_cast<int>(woven.nodes.size()));
  for (const WovenNode& node : woven.nodes) {
    *nodes.Add() = writer.Node(node);
    if (node.kind != WovenNode::Kind::kNode) continue;
    before.push_back(static_cast<std::uint32_t>(order[node.node]));
  }
  proto.mutable_graph()->mutable_node()->Swap(&nodes);
  HMM_ASSIGN_OR_RETURN(std::string encoded, EncodePlan(plan, graph));
  SetMetadata(proto, kPlanKey, std::move(encoded));
  SetMetadata(proto, kBeforeKey, EncodeOrder(before));
  AddFunctions(proto);
  proto.set_ir_version(std::max<std::int64_t>(proto.ir_version(), kIrVersionOfFunctions));
  return absl::OkStatus();
}

bool IsAnnotatedOnnx(const ModelProto& model) { return Metadata(model, kBeforeKey) != nullptr; }

absl::Status UnannotateOnnx(OnnxModel& model) {
  ModelProto& proto = *model.proto;
  GraphProto& graph = *proto.mutable_graph();
  Unweaver unweaver;
  std::vector<NodeProto*> kept;
  for (NodeProto& node : *graph.mutable_node()) {
    if (unweaver.Take(ListOf(node.output()), ListOf(node.input()))) continue;
    Renames captured;
    for (const std::string& name : CapturedNames(node)) {
      if (const std::string value = unweaver.Value(name); value != name) captured[name] = value;
    }
    RenameCaptured(node, captured);
    for (std::string& input : *node.mutable_input()) input = unweaver.Value(input);
    kept.push_back(&node);
  }
  HMM_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> order,
                       DecodeOrder(*Metadata(proto, kBeforeKey), kept.size(), model.name));
  google::protobuf::RepeatedPtrField<NodeProto> nodes;
  std::vector<NodeProto*> sorted(kept.size());
  for (std::size_t n = 0; n < kept.size(); ++n) sorted[order[n]] = kept[n];
  for (NodeProto* node : sorted) nodes.Add()->Swap(node);
  graph.mutable_node()->Swap(&nodes);
  // Of the domain: with moves in it again there would be two of each.
  auto& functions = *proto.mutable_functions();
  functions.erase(std::remove_if(functions.begin(), functions.end(),
                                 [](const onnx::FunctionProto& function) {
                                   return function.domain() == kMoveDomain;
                                 }),
                  functions.end());
  auto& imports = *proto.mutable_opset_import();
  imports.erase(std::remove_if(imports.begin(), imports.end(),
                               [](const onnx::OperatorSetIdProto& import) {
                                 return import.domain() == kMoveDomain;
                               }),
                imports.end());
  auto& metadata = *proto.mutable_metadata_props();
  metadata.erase(std::remove_if(metadata.begin(), metadata.end(),
                                [](const onnx::StringStringEntryProto& entry) {
                                  return entry.key() == kPlanKey || entry.key() == kBeforeKey;
                                }),
                 metadata.end());
  return absl::OkStatus();
}

}  // namespace hmm::graph
