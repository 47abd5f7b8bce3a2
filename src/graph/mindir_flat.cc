// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "graph/file_error.h"
#include "graph/mindir_flatten.h"

namespace hmm::graph {

using mind_ir::GraphProto;
using mind_ir::NodeProto;

namespace {

constexpr char kReference[] = "REF::";
constexpr std::size_t kAfterMax = 32;   // of one value; more are gathered by an op of no work
constexpr std::size_t kWorkOfKept = 8;  // a value or a leaf, beside its name
constexpr double kNoKernelUs = 1e-9;    // as in onnx_build.cc

void SortUnique(std::vector<std::uint32_t>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace

absl::Status Flattener::Bad(const std::string& where, std::string_view what) const {
  return BadMindIr(model_.name, where, what);
}

std::string Flattener::UniqueLeafName(const std::string& name) {
  std::string unique = name;
  while (unique.empty() || !leaf_names_.insert(unique).second) {
    unique = absl::StrCat(name, "#", ++next_suffix_[name] + 1);
  }
  return unique;
}

std::string Flattener::UniqueOpName(const std::string& name) {
  Charge(0, name);
  std::string unique = name;
  while (unique.empty() || !op_names_.insert(unique).second) {
    unique = absl::StrCat(name, "#", ++next_suffix_[name] + 1);
  }
  return unique;
}

LeafIndex Flattener::AddLeaf(const std::string& name, std::optional<Bytes> bytes) {
  Charge(kWorkOfKept, name);
  const auto index = static_cast<LeafIndex>(flat_.leaves.size());
  FlatLeaf& leaf = flat_.leaves.emplace_back();
  leaf.name = UniqueLeafName(name);
  leaf.bytes = bytes;
  leaf.root = index;
  return index;
}

ValueIndex Flattener::AddValue(FlatValue value) {
  Charge(kWorkOfKept, value.name);
  flat_.values.push_back(std::move(value));
  return static_cast<ValueIndex>(flat_.values.size() - 1);
}

// A new tensor, or tuple of tensors, of the stated form. Unknown: a tensor of unknown size.
ValueIndex Flattener::NewValue(const std::string& name, const MindIrAbstract& abstract,
                               const std::string& leaf_name) {
  FlatValue value;
  value.name = name;
  switch (abstract.kind) {
    case MindIrAbstract::Kind::kHost:
      break;
    case MindIrAbstract::Kind::kTuple:
      value.kind = FlatValue::Kind::kTuple;
      for (std::size_t i = 0; i < abstract.elements.size(); ++i) {
        value.elements.push_back(
            NewValue("", abstract.elements[i], absl::StrCat(leaf_name, "[", i, "]")));
      }
      break;
    case MindIrAbstract::Kind::kTensor:
    case MindIrAbstract::Kind::kUnknown:
      value.kind = FlatValue::Kind::kTensor;
      value.leaf = AddLeaf(leaf_name, abstract.bytes);
      flat_.leaves[value.leaf].tensor = abstract.tensor;
      break;
  }
  return AddValue(std::move(value));
}

// `value` under another name: the same bytes.
ValueIndex Flattener::Alias(const std::string& name, ValueIndex value) {
  FlatValue copy = flat_.values[value];
  copy.name = name;
  if (copy.kind == FlatValue::Kind::kTensor) {
    const FlatLeaf from = flat_.leaves[copy.leaf];
    copy.leaf = AddLeaf(name, from.bytes);
    FlatLeaf& leaf = flat_.leaves[copy.leaf];
    leaf.root = from.root;
    leaf.tensor = from.tensor;
    leaf.made_by = from.made_by;
    leaf.outside = from.outside;
  }
  return AddValue(std::move(copy));
}

// Leaves within a value, and the ops that have to run before it can be used. A tuple may hold
// another many times over, so each is looked at once.
Flattener::Contents Flattener::ContentsOf(const std::vector<ValueIndex>& values) {
  Contents contents;
  absl::flat_hash_set<ValueIndex> seen;
  std::vector<ValueIndex> open(values.rbegin(), values.rend());
  while (!open.empty()) {
    const ValueIndex index = open.back();
    open.pop_back();
    if (!seen.insert(index).second) continue;
    if (work_->left == 0) break;  // RunNode says so
    const FlatValue& value = flat_.values[index];
    Charge(1 + value.after.size());
    contents.after.insert(contents.after.end(), value.after.begin(), value.after.end());
    if (value.leaf != kNoIndex) contents.leaves.push_back(value.leaf);
    for (auto e = value.elements.rbegin(); e != value.elements.rend(); ++e) open.push_back(*e);
    for (const FlatClosure& closure : value.closures) {
      open.insert(open.end(), closure.bound.begin(), closure.bound.end());
    }
  }
  return contents;
}

std::vector<plan::OpIndex> Flattener::MakersOf(const std::vector<ValueIndex>& values) {
  Contents contents = ContentsOf(values);
  for (const LeafIndex leaf : contents.leaves) {
    const plan::OpIndex maker = flat_.leaves[leaf].made_by;
    if (maker != kNoIndex) contents.after.push_back(maker);
  }
  SortUnique(contents.after);
  return contents.after;
}

// Keeps what a value waits for short: one op of no work that waits for all of it.
void Flattener::Shorten(const std::string& name, std::vector<plan::OpIndex>& after) {
  SortUnique(after);
  if (after.size() <= kAfterMax) return;
  plan::Op op;
  op.name = UniqueOpName(absl::StrCat(name, ".order"));
  op.type = "UpdateState";
  op.after = std::move(after);
  op.microseconds = kNoKernelUs;
  after = {static_cast<plan::OpIndex>(flat_.ops.size())};
  flat_.ops.push_back(std::move(op));
}

// An op that reads what its inputs hold. The caller adds what it writes.
plan::Op Flattener::ReadingOp(const NodeProto& node, const std::string& type,
                              const std::vector<ValueIndex>& inputs) {
  plan::Op op;
  const bool scoped = !node.domain().empty();
  op.name = UniqueOpName(scoped ? node.domain() : node.output_size() > 0 ? node.output(0) : type);
  op.type = type;
  Contents contents = ContentsOf(inputs);
  op.after = std::move(contents.after);
  const bool reads = !ReadsNoData(type);
  for (const LeafIndex index : contents.leaves) {
    const FlatLeaf& leaf = flat_.leaves[index];
    const bool counted = flat_.leaves[leaf.root].bytes.value_or(0) > 0;
    if (reads && counted) op.reads.push_back(leaf.root);
    // Order that no storage shows.
    if ((!reads || !counted) && leaf.made_by != kNoIndex) op.after.push_back(leaf.made_by);
  }
  if (!reads) op.microseconds = kNoKernelUs;
  SortUnique(op.reads);
  SortUnique(op.after);
  return op;
}

plan::OpIndex Flattener::AddOp(plan::Op op, ValueIndex output) {
  const auto index = static_cast<plan::OpIndex>(flat_.ops.size());
  const Contents made = ContentsOf({output});
  for (const LeafIndex leaf : made.leaves) {
    FlatLeaf& written = flat_.leaves[leaf];
    written.made_by = index;
    if (flat_.leaves[written.root].bytes.value_or(0) > 0) op.writes.push_back(written.root);
  }
  // What it yields besides tensors (a length, a shape) waits for it too.
  if (made.leaves.empty()) flat_.values[output].after = {index};
  SortUnique(op.writes);
  flat_.ops.push_back(std::move(op));
  return index;
}

const mind_ir::TensorProto* Flattener::ShapeOf(const std::vector<ValueIndex>& values,
                                               std::size_t at) const {
  if (at >= values.size() || flat_.values[values[at]].leaf == kNoIndex) return nullptr;
  return flat_.leaves[flat_.values[values[at]].leaf].tensor;
}

// An op as any other.
absl::StatusOr<ValueIndex> Flattener::Compute(const MindIrCall& call,
                                              const std::vector<ValueIndex>& inputs,
                                              const std::string& name, plan::OpIndex& made) {
  plan::Op op = ReadingOp(*call.node, call.type, inputs);
  const MindIrAbstract abstract = AbstractOf(*call.node);
  HMM_RETURN_IF_ERROR(Spend(abstract.elements.size()));
  const ValueIndex output = NewValue(name, abstract, name);
  op.flops = MindIrFlops(call, ShapeOf(inputs, 0), ShapeOf(inputs, 1), ShapeOf({output}, 0));
  WriteInPlace(call.type, inputs, output, op);
  made = AddOp(std::move(op), output);
  return output;
}

// Results that are the parameters themselves.
void Flattener::WriteInPlace(const std::string& type, const std::vector<ValueIndex>& inputs,
                             ValueIndex output, plan::Op& op) {
  const std::vector<std::size_t>& written = WrittenInputs(type);
  for (std::size_t w = 0; w < written.size(); ++w) {
    if (written[w] >= inputs.size()) continue;
    const FlatValue& target = flat_.values[inputs[written[w]]];
    if (target.kind != FlatValue::Kind::kTensor) continue;
    const LeafIndex root = flat_.leaves[target.leaf].root;
    const std::optional<Bytes> bytes = flat_.leaves[root].bytes;
    if (bytes.value_or(0) == 0) continue;
    op.writes.push_back(root);
    if (type == "Assign")
      op.reads.erase(std::remove(op.reads.begin(), op.reads.end(), root), op.reads.end());
    // The result of the same place, where it has the size of what is written.
    const FlatValue& result = flat_.values[output];
    LeafIndex leaf = w == 0 ? result.leaf : kNoIndex;
    if (result.kind == FlatValue::Kind::kTuple && w < result.elements.size()) {
      leaf = flat_.values[result.elements[w]].leaf;
    }
    if (leaf != kNoIndex && flat_.leaves[leaf].bytes == bytes) flat_.leaves[leaf].root = root;
  }
}

absl::StatusOr<ValueIndex> Flattener::Find(const std::string& name, const std::string& where) {
  const auto found = names_.find(name);
  if (found != names_.end()) return found->second;
  if (const auto graph = symbols_.graphs.find(name); graph != symbols_.graphs.end()) {
    FlatValue closure;
    closure.kind = FlatValue::Kind::kClosure;
    closure.name = name;
    closure.closures.push_back({graph->second, {}});
    return AddValue(std::move(closure));
  }
  if (outer_ != nullptr) {
    const absl::StatusOr<ValueIndex> outside = outer_->Find(name, where);
    if (!outside.ok()) return outside.status();
    const ValueIndex value = FromOutside(*outside);
    names_[name] = value;
    return value;
  }
  // A primitive as an argument: nothing that takes memory.
  if (symbols_.primitives.contains(absl::StripPrefix(name, kReference))) {
    FlatValue primitive;
    primitive.name = name;
    return AddValue(std::move(primitive));
  }
  return Bad(where, absl::StrCat("input ", Shown(name), ": nothing makes it"));
}

// A value of the graph around this one, which counts its bytes. Values are younger than what they
// hold, so ascending order has the parts first.
ValueIndex Flattener::FromOutside(ValueIndex outside) {
  captured_.push_back(outside);
  const std::vector<FlatValue>& theirs = outer_->flat_.values;
  std::vector<ValueIndex> open = {outside}, wanted;
  absl::flat_hash_set<ValueIndex> seen;
  while (!open.empty()) {
    const ValueIndex index = open.back();
    open.pop_back();
    if (outside_.contains(index) || !seen.insert(index).second) continue;
    Charge(1);
    wanted.push_back(index);
    const FlatValue& value = theirs[index];
    open.insert(open.end(), value.elements.begin(), value.elements.end());
    for (const FlatClosure& closure : value.closures) {
      open.insert(open.end(), closure.bound.begin(), closure.bound.end());
    }
  }
  std::sort(wanted.begin(), wanted.end());
  for (const ValueIndex index : wanted) {
    FlatValue value = theirs[index];
    value.after.clear();
    if (value.leaf != kNoIndex) {
      const FlatLeaf& leaf = outer_->flat_.leaves[value.leaf];
      const mind_ir::TensorProto* tensor = leaf.tensor;
      value.leaf = AddLeaf(leaf.name, leaf.bytes);
      flat_.leaves[value.leaf].outside = true;
      flat_.leaves[value.leaf].tensor = tensor;
    }
    for (ValueIndex& element : value.elements) element = outside_[element];
    for (FlatClosure& closure : value.closures) {
      for (ValueIndex& bound : closure.bound) bound = outside_[bound];
    }
    outside_[index] = AddValue(std::move(value));
  }
  return outside_[outside];
}

absl::StatusOr<ValueIndex> Flattener::RunGraph(const GraphProto& graph,
                                               const std::vector<ValueIndex>& arguments,
                                               const std::string& where) {
  if (arguments.size() != static_cast<std::size_t>(graph.input_size())) {
    return Bad(where, absl::StrCat("calls graph ", Shown(graph.name()), ", which takes ",
                                   graph.input_size(), " arguments, with ", arguments.size()));
  }
  HMM_RETURN_IF_ERROR(Spend(1 + arguments.size() + static_cast<std::size_t>(graph.output_size())));
  for (int i = 0; i < graph.input_size(); ++i) {
    names_[graph.input(i).name()] = arguments[static_cast<std::size_t>(i)];
  }
  stack_.push_back(&graph);
  for (int n = 0; n < graph.node_size(); ++n) {
    HMM_RETURN_IF_ERROR(RunNode(graph.node(n), n, graph));
  }
  stack_.pop_back();
  std::vector<ValueIndex> outputs;
  const std::string at = absl::StrCat("graph ", Shown(graph.name()), ": output");
  for (const auto& output : graph.output()) {
    HMM_ASSIGN_OR_RETURN(const ValueIndex value, Find(output.name(), at));
    outputs.push_back(value);
  }
  if (outputs.size() == 1) return outputs[0];
  FlatValue all;
  all.kind = FlatValue::Kind::kTuple;
  all.elements = std::move(outputs);
  return AddValue(std::move(all));
}

absl::Status Flattener::RunNode(const NodeProto& node, int index, const GraphProto& graph) {
  HMM_RETURN_IF_ERROR(CountNode());
  HMM_RETURN_IF_ERROR(Spend(1 + static_cast<std::size_t>(node.input_size())));
  const std::string where = MindIrNodePlace(node, index, graph);
  if (node.output_size() != 1 || node.output(0).empty()) {
    return Bad(where, absl::StrCat("has ", node.output_size(), " outputs; each node has one name"));
  }
  // Not the first run of this graph: the name is taken.
  std::size_t& runs = runs_[node.output(0)];
  const std::string name = ++runs == 1 ? node.output(0) : absl::StrCat(node.output(0), "#", runs);
  FlatNode flat;
  flat.node = &node;
  for (const std::string& input : node.input()) {
    HMM_ASSIGN_OR_RETURN(const ValueIndex value, Find(input, where));
    flat.inputs.push_back(value);
  }
  HMM_ASSIGN_OR_RETURN(const Callee callee, Resolve(node, where));
  flat.type = callee.call.type;
  absl::StatusOr<ValueIndex> output = 0;
  if (callee.closure != kNoIndex) {
    output = Call(node, callee.closure, name, where, flat);
  } else {
    output = PassOn(node, flat.type, name, flat.inputs);
    if (output.ok() && *output == kNoIndex) {
      output = Compute(callee.call, flat.inputs, name, flat.op);
    }
  }
  if (!output.ok()) return output.status();
  names_[node.output(0)] = *output;
  flat.output = *output;
  // A call that was replaced by its nodes leaves none itself.
  if (flat.node != nullptr) flat_.nodes.push_back(std::move(flat));
  return work_->left > 0 ? absl::OkStatus() : Spend(1);
}

absl::StatusOr<Flattener::Callee> Flattener::Resolve(const NodeProto& node,
                                                     const std::string& where) {
  absl::string_view type = node.op_type();
  if (type.empty()) return Bad(where, "op_type: missing");
  Callee callee;
  callee.call.node = &node;
  if (!absl::ConsumePrefix(&type, kReference)) {
    callee.call.type = std::string(type);
    return callee;
  }
  const std::string name(type);
  if (const auto found = symbols_.primitives.find(name); found != symbols_.primitives.end()) {
    const std::string& op_type = found->second->op_type();
    callee.call.primitive = found->second;
    callee.call.type = op_type.empty() ? name.substr(0, name.find(':')) : op_type;
    return callee;
  }
  // Functions of MindSpore that it resolves when it compiles.
  if (absl::StartsWith(name, "MetaFuncGraph::") || absl::StartsWith(name, "ClassType::")) {
    callee.call.type = name.substr(name.rfind(':') + 1);
    return callee;
  }
  const absl::StatusOr<ValueIndex> value = Find(name, where);
  if (!value.ok()) {
    return Bad(where, absl::StrCat("op_type: ", Shown(name),
                                   " is no primitive, graph or node of the model"));
  }
  callee.call.type = "Call";
  callee.closure = *value;
  return callee;
}

// What no op of ours stands for. kNoIndex: it is one.
absl::StatusOr<ValueIndex> Flattener::PassOn(const NodeProto& node, const std::string& type,
                                             const std::string& name,
                                             const std::vector<ValueIndex>& inputs) {
  if (type == "Constant") return Constant(node, name);
  if (PassesOn(type) && !inputs.empty()) {
    const ValueIndex output = Alias(name, inputs[0]);
    std::vector<plan::OpIndex> after = MakersOf({inputs.begin() + 1, inputs.end()});
    const std::vector<plan::OpIndex> own = flat_.values[inputs[0]].after;
    after.insert(after.end(), own.begin(), own.end());
    Shorten(name, after);
    flat_.values[output].after = std::move(after);
    return output;
  }
  if (type == "UpdateState") {
    std::vector<plan::OpIndex> after = MakersOf(inputs);
    Shorten(name, after);
    FlatValue monad;
    monad.name = name;
    monad.after = std::move(after);
    return AddValue(std::move(monad));
  }
  if (type == "MakeTuple" || type == "MakeList") {
    FlatValue tuple;
    tuple.kind = FlatValue::Kind::kTuple;
    tuple.name = name;
    tuple.elements = inputs;
    return AddValue(std::move(tuple));
  }
  if (type == "TupleGetItem" || type == "ListGetItem") return Element(name, inputs);
  if (type == "Partial" || type == "Switch" || type == "SwitchLayer") {
    return Closure(type, name, inputs);
  }
  if (IsMindIrView(type) && !inputs.empty()) return View(node, name, inputs);
  return kNoIndex;
}

absl::StatusOr<ValueIndex> Flattener::Constant(const NodeProto& node, const std::string& name) {
  for (const mind_ir::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() != "value") continue;
    const MindIrAbstract abstract = AbstractOfValue(attribute);
    HMM_RETURN_IF_ERROR(Spend(abstract.elements.size()));
    const ValueIndex value = NewValue(name, abstract, name);
    for (const LeafIndex index : ContentsOf({value}).leaves) {
      flat_.leaves[index].kind = TensorKind::kWeight;
      flat_.leaves[index].persistent = true;
    }
    if (abstract.kind == MindIrAbstract::Kind::kHost && attribute.has_i()) {
      numbers_[value] = attribute.i();
    }
    return value;
  }
  FlatValue nothing;
  nothing.name = name;
  return AddValue(std::move(nothing));
}

absl::StatusOr<ValueIndex> Flattener::Element(const std::string& name,
                                              const std::vector<ValueIndex>& inputs) {
  if (inputs.size() < 2) return kNoIndex;
  const FlatValue& tuple = flat_.values[inputs[0]];
  const auto number = numbers_.find(inputs[1]);
  if (tuple.kind != FlatValue::Kind::kTuple || number == numbers_.end()) return kNoIndex;
  const auto size = static_cast<std::int64_t>(tuple.elements.size());
  const std::int64_t at = number->second < 0 ? number->second + size : number->second;
  if (at < 0 || at >= size) return kNoIndex;
  const ValueIndex element = tuple.elements[static_cast<std::size_t>(at)];
  const std::vector<plan::OpIndex> of_tuple = tuple.after;
  const ValueIndex output = Alias(name, element);
  std::vector<plan::OpIndex>& after = flat_.values[output].after;
  after.insert(after.end(), of_tuple.begin(), of_tuple.end());
  Shorten(name, after);
  return output;
}

absl::StatusOr<ValueIndex> Flattener::View(const NodeProto& node, const std::string& name,
                                           const std::vector<ValueIndex>& inputs) {
  const FlatValue& from = flat_.values[inputs[0]];
  if (from.kind != FlatValue::Kind::kTensor) return kNoIndex;
  const MindIrAbstract abstract = AbstractOf(node);
  const std::optional<Bytes> bytes = flat_.leaves[from.leaf].bytes;
  const bool same = abstract.kind == MindIrAbstract::Kind::kUnknown ||
                    (abstract.kind == MindIrAbstract::Kind::kTensor &&
                     (!abstract.bytes.has_value() || abstract.bytes == bytes));
  if (!same) return kNoIndex;
  const ValueIndex output = Alias(name, inputs[0]);
  flat_.leaves[flat_.values[output].leaf].tensor = abstract.tensor;
  std::vector<plan::OpIndex> after = flat_.values[output].after;
  const std::vector<plan::OpIndex> more = MakersOf({inputs.begin() + 1, inputs.end()});
  after.insert(after.end(), more.begin(), more.end());
  Shorten(name, after);
  flat_.values[output].after = std::move(after);
  return output;
}

}  // namespace hmm::graph
