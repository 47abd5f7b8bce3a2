// SPDX-License-Identifier: Apache-2.0
//
// Calls of graphs: in their place where it is certain what is called, else an op that holds the
// worst.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/file_error.h"
#include "graph/mindir_flatten.h"
#include "plan/lifetimes.h"

namespace hmm::graph {
namespace {

using mind_ir::GraphProto;
using mind_ir::NodeProto;

constexpr std::size_t kCallDepthMax = 48;
constexpr std::size_t kClosuresMax = 4096;  // that one value may stand for

// A unit of work keeps some 16 bytes at most, so this is a kilobyte for each node allowed: several
// times what nodes of real models take.
constexpr std::size_t kWorkOfNode = 64;
constexpr std::size_t kNameBytesOfWork = 16;

// What a model can make without any calls.
std::size_t NodesOf(const mind_ir::ModelProto& model) {
  const GraphProto& top = model.graph();
  auto nodes = static_cast<std::size_t>(top.node_size() + top.input_size()) +
               static_cast<std::size_t>(top.parameter_size() + top.map_parameter_size());
  for (const GraphProto& graph : model.functions()) {
    nodes += static_cast<std::size_t>(graph.node_size());
  }
  return nodes;
}

std::string ShortName(const std::string& name) {
  const std::size_t colon = name.find(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

}  // namespace

Flattener::Flattener(const MindIrModel& model, const MindIrOptions& options,
                     const MindIrSymbols& symbols, Flattener* outer)
    : model_(model), options_(options), symbols_(symbols), outer_(outer) {
  if (outer != nullptr) {
    depth_ = outer->depth_ + 1;
    stack_ = outer->stack_;
    work_ = outer->work_;
    return;
  }
  work_ = &own_work_;
  work_->nodes_max = std::min(options.nodes_max, NodesOf(*model.proto) + options.called_nodes_max);
  work_->left = kWorkOfNode * work_->nodes_max;
}

// Each node that is met, in every run of its graph: calls of calls make that many more than the
// file has.
absl::Status Flattener::CountNode() {
  if (++work_->nodes <= work_->nodes_max) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted, Reason::kBadGraph,
               absl::StrCat(model_.name, ": graph: more than ", work_->nodes_max,
                            " nodes, the limit here for a file with ", NodesOf(*model_.proto),
                            ", once calls are replaced by what they call"));
}

// Besides nodes, every look at a value costs, and what is kept of it.
void Flattener::Charge(std::size_t work, std::string_view name) {
  work_->left -= std::min(work_->left, work + name.size() / kNameBytesOfWork);
}

absl::Status Flattener::Spend(std::size_t work) {
  if (work_->left >= work) {
    work_->left -= work;
    return absl::OkStatus();
  }
  work_->left = 0;
  return Error(absl::StatusCode::kResourceExhausted, Reason::kBadGraph,
               absl::StrCat(model_.name, ": graph: takes more work than ", work_->nodes_max,
                            " nodes, the limit here, once calls are replaced by what they call"));
}

absl::StatusOr<ValueIndex> Flattener::Closure(const std::string& type, const std::string& name,
                                              const std::vector<ValueIndex>& inputs) {
  FlatValue value;
  value.kind = FlatValue::Kind::kClosure;
  value.name = name;
  if (type == "Partial") {
    if (inputs.empty() || flat_.values[inputs[0]].kind != FlatValue::Kind::kClosure)
      return kNoIndex;
    value.closures = flat_.values[inputs[0]].closures;
    value.elements = flat_.values[inputs[0]].elements;
    for (FlatClosure& closure : value.closures) {
      closure.bound.insert(closure.bound.end(), inputs.begin() + 1, inputs.end());
    }
  } else {
    if (inputs.size() < 2) return kNoIndex;
    value.elements.push_back(inputs[0]);  // the condition, or the index
    std::vector<ValueIndex> choices(inputs.begin() + 1, inputs.end());
    if (type == "SwitchLayer") choices = flat_.values[inputs[1]].elements;
    for (const ValueIndex choice : choices) {
      const FlatValue& chosen = flat_.values[choice];
      // A Switch between tensors is an op as any other.
      if (chosen.kind != FlatValue::Kind::kClosure) return kNoIndex;
      value.closures.insert(value.closures.end(), chosen.closures.begin(), chosen.closures.end());
      value.elements.insert(value.elements.end(), chosen.elements.begin(), chosen.elements.end());
    }
  }
  if (value.closures.size() > kClosuresMax) {
    return Bad(absl::StrCat("node ", Shown(name)),
               absl::StrCat("stands for more than ", kClosuresMax, " graphs"));
  }
  std::size_t bound = value.elements.size() + 2 * value.closures.size();
  for (const FlatClosure& closure : value.closures) bound += closure.bound.size();
  HMM_RETURN_IF_ERROR(Spend(bound));
  return AddValue(std::move(value));
}

bool Flattener::Running(const GraphProto* graph) const {
  return std::find(stack_.begin(), stack_.end(), graph) != stack_.end();
}

// Puts the graphs on the stack that ran around this node before it was written among others.
void Flattener::Resume(const NodeProto& node) {
  for (const mind_ir::AttributeProto& attribute : node.node_attr()) {
    if (attribute.name() != kRunningAttribute) continue;
    for (const mind_ir::AttributeProto& name : attribute.values()) {
      Charge(1);
      const auto graph = symbols_.graphs.find(name.s());
      if (graph != symbols_.graphs.end()) stack_.push_back(graph->second);
    }
  }
}

absl::StatusOr<ValueIndex> Flattener::Call(const NodeProto& node, ValueIndex closure,
                                           const std::string& name, const std::string& where,
                                           FlatNode& flat) {
  const std::size_t running = stack_.size();
  Resume(node);
  for (std::size_t g = 1; outer_ == nullptr && g < stack_.size(); ++g) {
    flat.running.push_back(stack_[g]->name());
    Charge(1, flat.running.back());
  }
  absl::StatusOr<ValueIndex> result = CallResumed(node, closure, name, where, flat);
  stack_.resize(running);
  return result;
}

absl::StatusOr<ValueIndex> Flattener::CallResumed(const NodeProto& node, ValueIndex closure,
                                                  const std::string& name, const std::string& where,
                                                  FlatNode& flat) {
  const FlatValue& called = flat_.values[closure];
  const bool one = called.kind == FlatValue::Kind::kClosure && called.closures.size() == 1 &&
                   called.elements.empty() && !Running(called.closures[0].graph);
  if (!one) return CallWithin(node, closure, name, where, flat);
  if (stack_.size() >= kCallDepthMax) {
    return Bad(where, absl::StrCat("calls nested deeper than ", kCallDepthMax));
  }
  std::vector<ValueIndex> arguments = called.closures[0].bound;
  arguments.insert(arguments.end(), flat.inputs.begin(), flat.inputs.end());
  flat_.calls = true;
  flat.node = nullptr;
  return RunGraph(*called.closures[0].graph, arguments, where);
}

// One op: it reads its arguments, what chooses, and what the graphs take from around them.
absl::StatusOr<ValueIndex> Flattener::CallWithin(const NodeProto& node, ValueIndex closure,
                                                 const std::string& name, const std::string& where,
                                                 FlatNode& flat) {
  const FlatValue called = flat_.values[closure];
  std::vector<ValueIndex> inputs = flat.inputs;
  inputs.push_back(closure);
  const std::size_t leaves = flat_.leaves.size();
  plan::Op within;
  const std::string scope = node.domain().empty() ? name : node.domain();
  for (std::size_t c = 0; c < called.closures.size(); ++c) {
    std::vector<ValueIndex> arguments = called.closures[c].bound;
    arguments.insert(arguments.end(), flat.inputs.begin(), flat.inputs.end());
    const std::string prefix =
        absl::StrCat(scope, called.closures.size() > 1 ? absl::StrCat("[", c, "]") : "", "/");
    HMM_RETURN_IF_ERROR(AddWithin(called.closures[c], arguments, prefix, where, within, inputs));
  }
  plan::Op op = ReadingOp(node, flat.type, inputs);
  for (std::size_t leaf = leaves; leaf < flat_.leaves.size(); ++leaf) {  // constants inside
    op.reads.push_back(static_cast<LeafIndex>(leaf));
  }
  op.workspace = within.workspace;
  for (const LeafIndex written : within.writes) op.writes.push_back(written);
  std::sort(op.reads.begin(), op.reads.end());
  const MindIrAbstract abstract = AbstractOf(node);
  HMM_RETURN_IF_ERROR(Spend(abstract.elements.size()));
  const ValueIndex output = NewValue(name, abstract, name);
  flat.op = AddOp(std::move(op), output);
  return output;
}

// Runs one graph that may be called, in a list of nodes of its own. A graph that is running already
// calls itself: what it needs is counted where it began.
absl::Status Flattener::AddWithin(const FlatClosure& closure,
                                  const std::vector<ValueIndex>& arguments,
                                  const std::string& prefix, const std::string& where, plan::Op& op,
                                  std::vector<ValueIndex>& captured) {
  if (Running(closure.graph)) return absl::OkStatus();
  if (stack_.size() + depth_ >= kCallDepthMax) {
    return Bad(where, absl::StrCat("calls nested deeper than ", kCallDepthMax));
  }
  HMM_RETURN_IF_ERROR(Spend(1 + arguments.size()));
  Flattener inner(model_, options_, symbols_, this);
  std::vector<ValueIndex> given;
  for (const ValueIndex argument : arguments) given.push_back(inner.FromOutside(argument));
  const absl::StatusOr<ValueIndex> result = inner.RunGraph(*closure.graph, given, where);
  if (!result.ok()) return result.status();
  for (const LeafIndex leaf : inner.ContentsOf({*result}).leaves) {
    inner.flat_.leaves[leaf].output = true;
  }
  captured.insert(captured.end(), inner.captured_.begin(), inner.captured_.end());
  // Parameters that it writes in place.
  absl::flat_hash_map<LeafIndex, LeafIndex> outer_leaf;
  for (const auto& [out, in] : inner.outside_) {
    const LeafIndex leaf = flat_.values[out].leaf;
    if (leaf != kNoIndex) outer_leaf[inner.flat_.values[in].leaf] = flat_.leaves[leaf].root;
  }
  for (const plan::Op& inside : inner.flat_.ops) {
    for (const LeafIndex written : inside.writes) {
      const auto found = outer_leaf.find(written);
      if (found != outer_leaf.end()) op.writes.push_back(found->second);
    }
  }
  const plan::Graph graph = BuildMindIrGraph(inner.flat_, "", nullptr);
  Bytes persistent = 0;
  for (const plan::Storage& storage : graph.storages) {
    if (!storage.persistent) continue;
    persistent += storage.bytes;
    FlatLeaf& leaf = flat_.leaves[AddLeaf(absl::StrCat(prefix, storage.name), storage.bytes)];
    leaf.kind = storage.kind;
    leaf.persistent = true;
  }
  for (const std::string& name : graph.unknown) {
    Charge(2 + prefix.size() / kNameBytesOfWork, name);
    flat_.unknown.push_back(absl::StrCat(prefix, name));
  }
  if (graph.ops.empty() || !plan::CheckGraph(graph).ok()) return absl::OkStatus();
  const plan::Lifetimes lives = ComputeLifetimes(graph, plan::GivenOrder(graph));
  op.workspace = std::max(op.workspace, lives.peak_bytes - persistent);
  return absl::OkStatus();
}

absl::StatusOr<FlatGraph> Flattener::RunTop() {
  const GraphProto& top = model_.proto->graph();
  const auto given = [&](const std::string& name, const std::string& user,
                         const MindIrAbstract& abstract) {
    const bool free = !user.empty() && !leaf_names_.contains(user);
    const ValueIndex value = NewValue(name, abstract, free ? user : name);
    if (free && user != name && flat_.values[value].leaf != kNoIndex) {
      const LeafIndex leaf = AddLeaf(name, abstract.bytes);
      flat_.leaves[leaf].root = flat_.values[value].leaf;
    }
    return value;
  };
  const auto parameter = [&](const std::string& name, const std::string& key,
                             std::optional<Bytes> bytes,
                             const mind_ir::TensorProto* shape) -> absl::Status {
    if (name.empty()) return Bad("parameter", "name: missing");
    const std::string user = key.empty() ? ShortName(name) : key;
    MindIrAbstract abstract;
    abstract.kind = MindIrAbstract::Kind::kTensor;
    abstract.bytes = bytes;
    abstract.tensor = shape;
    const ValueIndex value = given(name, user, abstract);
    FlatLeaf& leaf = flat_.leaves[flat_.values[value].leaf];
    leaf.kind = ParameterKind(user);
    leaf.persistent = true;
    if (!names_.emplace(name, value).second) {
      return Bad(absl::StrCat("parameter ", Shown(name)), "name: used twice");
    }
    return absl::OkStatus();
  };
  for (const auto& tensor : top.parameter()) {
    std::optional<Bytes> bytes = MindIrTensorBytes(tensor);
    HMM_RETURN_IF_ERROR(parameter(tensor.name(), tensor.ref_key(), bytes, &tensor));
  }
  for (const auto& map : top.map_parameter()) {
    const std::optional<Bytes> keys = MindIrTensorBytes(map.key_tensor());
    const std::optional<Bytes> values = MindIrTensorBytes(map.value_tensor());
    const bool known = keys.has_value() && values.has_value();
    const auto both = known ? std::optional<Bytes>(*keys + *values) : std::nullopt;
    HMM_RETURN_IF_ERROR(parameter(map.name(), "", both, nullptr));
  }
  std::vector<ValueIndex> arguments;
  for (const auto& input : top.input()) {
    const auto known = names_.find(input.name());
    if (known != names_.end()) {
      arguments.push_back(known->second);
      continue;
    }
    const MindIrAbstract abstract = AbstractOfInput(input);
    HMM_RETURN_IF_ERROR(Spend(1 + abstract.elements.size()));
    arguments.push_back(given(input.name(), ShortName(input.name()), abstract));
    for (const LeafIndex leaf : ContentsOf({arguments.back()}).leaves) {
      flat_.leaves[leaf].input = true;
    }
  }
  HMM_ASSIGN_OR_RETURN(const ValueIndex result,
                       RunGraph(top, arguments, absl::StrCat("graph ", Shown(top.name()))));
  flat_.outputs = {result};
  for (const LeafIndex leaf : ContentsOf({result}).leaves) flat_.leaves[leaf].output = true;
  return std::move(flat_);
}

}  // namespace hmm::graph
