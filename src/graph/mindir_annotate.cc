// SPDX-License-Identifier: Apache-2.0
#include "graph/mindir_annotate.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/annotation.h"
#include "graph/file_error.h"
#include "graph/mindir_flat.h"
#include "graph/mindir_structure.h"
#include "graph/weave.h"

namespace hmm::graph {
namespace {

using mind_ir::AttributeProto;
using mind_ir::GraphProto;
using mind_ir::ModelProto;
using mind_ir::NodeProto;
using plan::StorageIndex;

constexpr char kOurPrimitive[] = ":hmm";
constexpr std::size_t kHeldMax = 50'000'000;  // storages within values, all together

std::vector<std::string> ListOf(const google::protobuf::RepeatedPtrField<std::string>& list) {
  return {list.begin(), list.end()};
}

bool IsShape(const AttributeProto& attribute) {
  return attribute.name() == "shape" || absl::StrContains(attribute.ref_attr_name(), "shape:");
}

// Nodes to weave into, and where each comes from.
struct Fabric {
  WeaveModel model;
  std::vector<const NodeProto*> from;  // nullptr: takes `part_of` apart
  struct Part {
    std::string index;  // of the constant
    AttributeProto shape;
  };
  absl::flat_hash_map<std::uint32_t, Part> parts;                        // by node
  absl::flat_hash_map<std::uint32_t, std::vector<std::string>> running;  // by node (mindir_flat.h)
  std::vector<NodeProto> constants;
  std::vector<std::string> outputs;  // of the graph

  void Add(const NodeProto& node, std::vector<std::string> inputs, std::string output,
           plan::OpIndex op) {
    model.nodes.push_back({std::move(inputs), {std::move(output)}, op});
    from.push_back(&node);
  }
};

AttributeProto ShapeOfTensor(const mind_ir::TensorProto& tensor, bool old) {
  AttributeProto shape;
  mind_ir::TensorProto& out = *shape.add_tensors();
  *out.mutable_dims() = tensor.dims();
  out.set_data_type(tensor.data_type());
  if (old) {
    out.set_name("shape1");
    shape.set_ref_attr_name("shape:shape1,");
  } else {
    shape.set_name("shape");
    shape.set_type(kMindIrTensors);
  }
  return shape;
}

// What a node states of part `index` of its result; empty if that is no tensor.
AttributeProto ShapeOfPart(const NodeProto& node, std::size_t index, bool old) {
  for (const AttributeProto& attribute : node.attribute()) {
    if (!IsShape(attribute)) continue;
    const int at = static_cast<int>(index);
    if (at < attribute.tensors_size()) return ShapeOfTensor(attribute.tensors(at), old);
    if (at < attribute.values_size() && attribute.values(at).tensors_size() == 1) {
      return ShapeOfTensor(attribute.values(at).tensors(0), old);
    }
  }
  return {};
}

// A graph without a model behind it: values and storages are those of structure.h.
Fabric OfStructure(const ModelProto& model,
                   const absl::flat_hash_map<std::string, StorageIndex>& storage_of) {
  Fabric fabric;
  plan::OpIndex op = 0;
  for (const auto& [value, storage] : storage_of) fabric.model.holds[value] = {storage};
  for (const NodeProto& node : model.graph().node()) {
    const bool is_op = node.node_attr_size() > 0;
    fabric.Add(node, ListOf(node.input()), node.output(0), is_op ? op++ : plan::kNone);
    // "op~all" consists of what is taken out of it; the result of what goes into it.
    const bool result = !is_op && node.input_size() != 2;
    const bool element = !is_op && node.input_size() == 2 && storage_of.contains(node.output(0)) &&
                         !storage_of.contains(node.input(0));
    if (element) fabric.model.holds[node.input(0)].push_back(storage_of.at(node.output(0)));
    if (!result) continue;
    for (const std::string& input : node.input()) {
      const auto found = storage_of.find(input);
      if (found != storage_of.end()) fabric.model.holds[node.output(0)].push_back(found->second);
    }
  }
  for (const auto& output : model.graph().output()) fabric.outputs.push_back(output.name());
  return fabric;
}

class FlatFabric {
 public:
  FlatFabric(const FlatGraph& flat, const std::string& file, bool old)
      : flat_(flat), file_(file), old_(old) {}

  absl::StatusOr<Fabric> Run() {
    std::vector<LeafIndex> roots;
    BuildMindIrGraph(flat_, "", &roots);
    for (std::size_t s = 0; s < roots.size(); ++s) {
      storage_of_[roots[s]] = static_cast<StorageIndex>(s);
    }
    HMM_RETURN_IF_ERROR(SetHolds());
    FindTaken();
    for (const FlatNode& node : flat_.nodes) {
      std::vector<std::string> inputs;
      for (const ValueIndex input : node.inputs) {
        HMM_ASSIGN_OR_RETURN(std::string name, NameOf(input, node.node->name()));
        inputs.push_back(std::move(name));
      }
      const std::string& name = flat_.values[node.output].name;
      fabric_.Add(*node.node, std::move(inputs), name, node.op);
      if (!node.running.empty()) {
        fabric_.running[static_cast<std::uint32_t>(fabric_.from.size() - 1)] = node.running;
      }
      if (node.op != plan::kNone) AddParts(node, name);
    }
    const FlatValue& result = flat_.values[flat_.outputs[0]];
    if (!result.name.empty()) {
      fabric_.outputs = {result.name};
    } else {
      for (const ValueIndex e : result.elements) {
        HMM_ASSIGN_OR_RETURN(std::string name, NameOf(e, "its outputs"));
        fabric_.outputs.push_back(std::move(name));
      }
    }
    return std::move(fabric_);
  }

 private:
  // All that a called graph with several outputs yields has no name once the call is replaced.
  absl::StatusOr<std::string> NameOf(ValueIndex value, const std::string& user) const {
    const std::string& name = flat_.values[value].name;
    if (!name.empty()) return name;
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kBadGraph,
                 absl::StrCat(file_, ": node ", Shown(user),
                              " takes the result of a called graph with several outputs, which "
                              "cannot be written with moves: give that graph one output, a "
                              "MakeTuple of them, and export the model anew"));
  }

  // Values are younger than what they hold.
  absl::Status SetHolds() {
    std::vector<std::vector<StorageIndex>> holds(flat_.values.size());
    std::size_t total = 0;
    for (ValueIndex v = 0; v < flat_.values.size(); ++v) {
      const FlatValue& value = flat_.values[v];
      std::vector<StorageIndex>& held = holds[v];
      if (value.leaf != kNoIndex) {
        const auto found = storage_of_.find(flat_.leaves[value.leaf].root);
        if (found != storage_of_.end()) held.push_back(found->second);
      }
      const auto add = [&](ValueIndex part) {
        for (const StorageIndex s : holds[part]) {
          if (std::find(held.begin(), held.end(), s) == held.end()) held.push_back(s);
        }
      };
      for (const ValueIndex element : value.elements) add(element);
      for (const FlatClosure& closure : value.closures) {
        for (const ValueIndex bound : closure.bound) add(bound);
      }
      total += held.size();
      if (total > kHeldMax) {
        return Error(absl::StatusCode::kResourceExhausted, Reason::kBadGraph,
                     "graph: its tuples hold too much to be written with moves");
      }
      if (!value.name.empty() && !held.empty()) fabric_.model.holds[value.name] = held;
    }
    return absl::OkStatus();
  }

  // Elements that nodes of the model take out of tuples.
  void FindTaken() {
    for (const FlatNode& node : flat_.nodes) {
      if (node.type != "TupleGetItem" || node.op != plan::kNone) continue;
      const LeafIndex leaf = flat_.values[node.output].leaf;
      if (leaf != kNoIndex) taken_.insert(flat_.leaves[leaf].root);
    }
  }

  // Nodes that take out what no node of the model does: a move needs it by itself.
  void AddParts(const FlatNode& node, const std::string& name) {
    const FlatValue& value = flat_.values[node.output];
    if (value.kind != FlatValue::Kind::kTuple) return;
    for (std::size_t i = 0; i < value.elements.size(); ++i) {
      const LeafIndex leaf = flat_.values[value.elements[i]].leaf;
      if (leaf == kNoIndex || taken_.contains(flat_.leaves[leaf].root)) continue;
      const auto storage = storage_of_.find(flat_.leaves[leaf].root);
      if (storage == storage_of_.end()) continue;
      const auto at = static_cast<std::uint32_t>(fabric_.model.nodes.size());
      const std::string part = absl::StrCat(kPartPrefix, at);
      fabric_.model.nodes.push_back({{name}, {part}, plan::kNone});
      fabric_.model.holds[part] = {storage->second};
      fabric_.from.push_back(nullptr);
      fabric_.parts[at] = {Constant(i), ShapeOfPart(*node.node, i, old_)};
    }
  }

  std::string Constant(std::size_t index) {
    std::string name = absl::StrCat(kPartPrefix, "index/", index);
    if (!constants_.insert(index).second) return name;
    NodeProto& node = fabric_.constants.emplace_back();
    node.set_op_type("Constant");
    node.set_name(name);
    node.add_output(name);
    AttributeProto& value = *node.add_attribute();
    value.set_name("value");
    value.set_type(kMindIrInt64);
    value.set_i(static_cast<std::int64_t>(index));
    if (old_) value.set_ref_attr_name("scalar:value0");
    return name;
  }

  const FlatGraph& flat_;
  const std::string& file_;
  bool old_;  // the dialect of files of 1.x, without primitives
  Fabric fabric_;
  absl::flat_hash_map<LeafIndex, StorageIndex> storage_of_;
  absl::flat_hash_set<LeafIndex> taken_;
  absl::flat_hash_set<std::size_t> constants_;
};

class Writer {
 public:
  Writer(const plan::Plan& plan, const Fabric& fabric, bool old, ModelProto& model)
      : plan_(plan), fabric_(fabric), old_(old), model_(model) {
    for (const auto& tensor : model.graph().parameter()) {
      shapes_[tensor.name()] = ShapeOfTensor(tensor, old);
    }
    for (const auto& input : model.graph().input()) {
      if (input.tensor_size() == 1) shapes_[input.name()] = ShapeOfTensor(input.tensor(0), old);
    }
    for (const auto& primitive : model.primitives()) names_.insert(primitive.name());
  }

  NodeProto Node(const WovenNode& woven) {
    NodeProto node = Made(woven);
    node.clear_output();
    node.add_output(woven.outputs[0]);
    for (const AttributeProto& attribute : node.attribute()) {
      if (IsShape(attribute)) shapes_[woven.outputs[0]] = attribute;
      const bool constant = node.op_type() == "Constant" && attribute.name() == "value";
      if (constant && attribute.tensors_size() == 1) {  // it has no other shape
        shapes_[woven.outputs[0]] = ShapeOfTensor(attribute.tensors(0), old_);
      }
    }
    return node;
  }

 private:
  NodeProto Made(const WovenNode& woven) {
    if (woven.kind == WovenNode::Kind::kAfter) return Ours("Depend", woven);
    if (woven.kind == WovenNode::Kind::kMove) return OfMove(woven);
    const NodeProto* from = fabric_.from[woven.node];
    if (from == nullptr) {
      NodeProto node = Ours("TupleGetItem", woven);
      const Fabric::Part& part = fabric_.parts.at(woven.node);
      node.add_input(part.index);
      node.clear_attribute();
      *node.add_attribute() = part.shape;
      return node;
    }
    NodeProto node = *from;
    node.clear_input();
    for (const std::string& input : woven.inputs) node.add_input(input);
    node.set_name(woven.outputs[0]);
    if (const auto running = fabric_.running.find(woven.node); running != fabric_.running.end()) {
      SetRunning(running->second, node);
    }
    return node;
  }

  static void SetRunning(const std::vector<std::string>& graphs, NodeProto& node) {
    AttributeProto* attribute = nullptr;
    for (AttributeProto& known : *node.mutable_node_attr()) {
      if (known.name() == kRunningAttribute) attribute = &known;
    }
    if (attribute == nullptr) attribute = node.add_node_attr();
    attribute->set_name(kRunningAttribute);
    attribute->set_type(kMindIrTuple);
    attribute->clear_values();
    for (const std::string& graph : graphs) {
      AttributeProto& value = *attribute->add_values();
      value.set_type(kMindIrString);
      value.set_s(graph);
    }
  }

  // The operators that MindSpore's hyper_offload has for this. None of them is to stop the stream.
  NodeProto OfMove(const WovenNode& woven) {
    const plan::Move& move = plan_.moves[woven.move];
    const char* type = move.kind == plan::MoveKind::kSwapOut  ? "UpdateToRemote"
                       : move.kind == plan::MoveKind::kSwapIn ? "UpdateToDevice"
                                                              : "Detach";
    NodeProto node = Ours(type, woven);
    const auto add = [&node](const char* name, int form) -> AttributeProto& {
      AttributeProto& attribute = *node.add_node_attr();
      attribute.set_name(name);
      attribute.set_type(form);
      return attribute;
    };
    add("hmm_move", kMindIrInt64).set_i(woven.move);
    add("hmm_bytes", kMindIrInt64).set_i(static_cast<std::int64_t>(move.bytes));
    add("hmm_from", kMindIrString).set_s(std::string(TierKindName(move.from)));
    add("hmm_to", kMindIrString).set_s(std::string(TierKindName(move.to)));
    return node;
  }

  NodeProto Ours(const std::string& type, const WovenNode& woven) {
    NodeProto node;
    node.set_name(woven.outputs[0]);
    node.set_domain(absl::StrCat("Default/", woven.outputs[0]));
    for (const std::string& input : woven.inputs) node.add_input(input);
    if (const auto shape = shapes_.find(woven.inputs[0]); shape != shapes_.end()) {
      *node.add_attribute() = shape->second;
    }
    if (old_) {
      node.set_op_type(type);
      SetPrimitive(type, *node.mutable_attribute());
    } else {
      node.set_op_type(absl::StrCat("REF::", Primitive(type)));
    }
    return node;
  }

  void SetPrimitive(const std::string& type,
                    google::protobuf::RepeatedPtrField<AttributeProto>& attributes) const {
    if (type != "UpdateToDevice" && type != "Detach") return;
    AttributeProto& sync = *attributes.Add();
    sync.set_name("sync");
    sync.set_type(kMindIrBool);
    sync.set_i(0);
    if (old_) sync.set_ref_attr_name("scalar:value0");
  }

  std::string Primitive(const std::string& type) {
    std::string& name = primitives_[type];
    if (!name.empty()) return name;
    name = absl::StrCat(type, kOurPrimitive);
    while (!names_.insert(name).second) name += "_";
    mind_ir::PrimitiveProto& primitive = *model_.add_primitives();
    primitive.set_name(name);
    primitive.set_op_type(type);
    primitive.set_prim_type(1);
    SetPrimitive(type, *primitive.mutable_attribute());
    return name;
  }

  const plan::Plan& plan_;
  const Fabric& fabric_;
  bool old_;
  ModelProto& model_;
  absl::flat_hash_map<std::string, AttributeProto> shapes_;  // of what a name yields
  absl::flat_hash_map<std::string, std::string> primitives_;
  absl::flat_hash_set<std::string> names_;
};

// Moves name what they read: a name that two nodes write has no one meaning.
absl::Status CheckNamesOnce(const GraphProto& graph, const std::string& model) {
  absl::flat_hash_set<std::string_view> written;
  for (const NodeProto& node : graph.node()) {
    for (const std::string& output : node.output()) {
      if (written.insert(output).second) continue;
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kBadGraph,
                   absl::StrCat(model, ": two nodes write \"", output,
                                "\", so that moves cannot say which they mean"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AnnotateMindIr(const plan::Graph& graph, const plan::Plan& plan,
                            const MindIrOptions& options, MindIrModel& model) {
  ModelProto& proto = *model.proto;
  HMM_RETURN_IF_ERROR(CheckNamesOnce(proto.graph(), model.name));
  const bool structure = HasMindIrStructure(proto);
  const bool old = !structure && proto.primitives_size() == 0;
  absl::StatusOr<Fabric> fabric;
  if (structure) {
    absl::flat_hash_map<std::string, StorageIndex> storage_of;
    HMM_RETURN_IF_ERROR(GraphOfMindIrStructure(proto, model.name, &storage_of).status());
    fabric = OfStructure(proto, storage_of);
  } else {
    const absl::StatusOr<FlatGraph> flat = FlattenMindIr(model, options);
    if (!flat.ok()) return flat.status();
    fabric = FlatFabric(*flat, model.name, old).Run();
  }
  if (!fabric.ok()) return fabric.status();
  HMM_ASSIGN_OR_RETURN(const Woven woven, Weave(graph, plan, fabric->model));
  Writer writer(plan, *fabric, old, proto);
  google::protobuf::RepeatedPtrField<NodeProto> nodes;
  for (const NodeProto& constant : fabric->constants) *nodes.Add() = constant;
  std::vector<std::uint32_t> place(fabric->from.size());  // among the model's own
  std::uint32_t own = 0;
  for (std::size_t n = 0; n < place.size(); ++n) place[n] = fabric->from[n] != nullptr ? own++ : 0;
  std::vector<std::uint32_t> before;
  for (const WovenNode& node : woven.nodes) {
    *nodes.Add() = writer.Node(node);
    const bool kept = node.kind == WovenNode::Kind::kNode && fabric->from[node.node] != nullptr;
    if (kept) before.push_back(place[node.node]);
  }
  GraphProto& top = *proto.mutable_graph();
  top.mutable_node()->Swap(&nodes);
  for (std::size_t o = 0; o < fabric->outputs.size(); ++o) {
    const int at = static_cast<int>(o);
    if (at < top.output_size()) top.mutable_output(at)->set_name(fabric->outputs[o]);
  }
  HMM_ASSIGN_OR_RETURN((*proto.mutable_user_info())[kPlanKey], EncodePlan(plan, graph));
  (*proto.mutable_user_info())[kBeforeKey] = EncodeOrder(before);
  return absl::OkStatus();
}

bool IsAnnotatedMindIr(const ModelProto& model) { return model.user_info().contains(kBeforeKey); }

absl::Status UnannotateMindIr(MindIrModel& model) {
  ModelProto& proto = *model.proto;
  GraphProto& graph = *proto.mutable_graph();
  Unweaver unweaver;
  std::vector<NodeProto*> kept;
  absl::flat_hash_set<std::string> ours;  // primitives; with moves in it again there would be more
  for (NodeProto& node : *graph.mutable_node()) {
    if (unweaver.Take(ListOf(node.output()), ListOf(node.input()))) {
      if (absl::StrContains(node.op_type(), kOurPrimitive)) ours.insert(node.op_type());
      continue;
    }
    for (std::string& input : *node.mutable_input()) input = unweaver.Value(input);
    kept.push_back(&node);
  }
  HMM_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> order,
                       DecodeOrder(proto.user_info().at(kBeforeKey), kept.size(), model.name));
  google::protobuf::RepeatedPtrField<NodeProto> nodes;
  std::vector<NodeProto*> sorted(kept.size());
  for (std::size_t n = 0; n < kept.size(); ++n) sorted[order[n]] = kept[n];
  for (NodeProto* node : sorted) nodes.Add()->Swap(node);
  graph.mutable_node()->Swap(&nodes);
  auto& primitives = *proto.mutable_primitives();
  primitives.erase(std::remove_if(primitives.begin(), primitives.end(),
                                  [&](const mind_ir::PrimitiveProto& primitive) {
                                    return ours.contains(absl::StrCat("REF::", primitive.name()));
                                  }),
                   primitives.end());
  proto.mutable_user_info()->erase(kBeforeKey);
  proto.mutable_user_info()->erase(kPlanKey);
  return absl::OkStatus();
}

}  // namespace hmm::graph
