// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx_infer.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "graph/onnx_dims.h"
#include "graph/onnx_library.h"

namespace hmm::graph {
namespace {

using onnx::GraphProto;
using onnx::NodeProto;
using onnx::TypeProto;

constexpr int kLatestOpset = 1 << 20;  // of a domain that the model does not import

class Inferer {
 public:
  Inferer(const OnnxModel& model, const OnnxOptions& options) : model_(model), options_(options) {
    for (const auto& opset : model.proto->opset_import()) {
      const bool main = opset.domain().empty() || opset.domain() == "ai.onnx";
      const auto version = std::clamp<std::int64_t>(opset.version(), 1, kLatestOpset);
      opsets_[main ? "" : opset.domain()] = static_cast<int>(version);
    }
  }

  absl::StatusOr<std::unique_ptr<Scope>> Run() {
    std::unique_ptr<Scope> scope = InferGraph(model_.proto->graph(), nullptr, nullptr, "");
    if (!failed_.ok()) return failed_;
    HMM_RETURN_IF_ERROR(CheckBindings());
    return scope;
  }

 private:
  using Types = std::vector<const TypeProto*>;
  using Declared = absl::flat_hash_map<std::string, const TypeProto*>;

  // The first problem wins; inference goes on only to its next look at failed_.
  void Fail(const std::string& where, const std::string& what) {
    if (failed_.ok()) failed_ = BadModel(model_.name, where, what);
  }

  // 1. Names with values. `missing` collects symbols that have none.
  void Bind(TypeProto& type, const std::string& where, std::set<std::string>* missing) {
    if (!type.has_tensor_type() || !type.tensor_type().has_shape()) return;
    onnx::TensorShapeProto& shape = *type.mutable_tensor_type()->mutable_shape();
    for (int d = 0; d < shape.dim_size(); ++d) {
      onnx::TensorShapeProto::Dimension& dim = *shape.mutable_dim(d);
      if (!dim.has_dim_param() || dim.dim_param().empty()) continue;
      for (const std::string& symbol : DimSymbols(dim.dim_param())) symbols_.insert(symbol);
      symbols_.insert(dim.dim_param());
      const DimValue value = EvaluateDim(dim.dim_param(), options_.dims);
      if (!value.problem.empty()) {
        return Fail(where,
                    absl::StrCat("dims[", d, "]: \"", dim.dim_param(), "\" ", value.problem));
      }
      if (value.value.has_value()) {
        dim.set_dim_value(*value.value);
      } else if (missing != nullptr) {
        missing->insert(value.unbound.begin(), value.unbound.end());
      }
    }
  }

  // Every dimension of an input has to be known: nothing can tell it but the caller.
  void BindInput(TypeProto& type, const std::string& name, const std::string& where,
                 std::set<std::string>& missing) {
    Bind(type, where, &missing);
    if (!type.has_tensor_type() || !type.tensor_type().has_shape()) return;
    onnx::TensorShapeProto& shape = *type.mutable_tensor_type()->mutable_shape();
    for (int d = 0; d < shape.dim_size(); ++d) {
      onnx::TensorShapeProto::Dimension& dim = *shape.mutable_dim(d);
      if (dim.has_dim_value() || (dim.has_dim_param() && !dim.dim_param().empty())) continue;
      const std::string symbol = absl::StrCat(name, ":", d);
      symbols_.insert(symbol);
      const auto bound = options_.dims.find(symbol);
      if (bound == options_.dims.end()) {
        missing.insert(symbol);
      } else if (bound->second < 0) {
        Fail(where, absl::StrCat("dims[", d, "] is ", bound->second, ", negative"));
      } else {
        dim.set_dim_value(bound->second);
      }
    }
  }

  void FailUnbound(const std::string& where, const std::set<std::string>& missing) {
    const std::string flags = absl::StrJoin(missing, " ", [](std::string* out, const auto& symbol) {
      absl::StrAppend(out, "--dim ", symbol, "=N");
    });
    Fail(where, absl::StrCat("dims: no value for the symbol ", absl::StrJoin(missing, ", "),
                             "; give ", flags));
  }

  absl::Status CheckBindings() {
    for (const auto& [name, value] : options_.dims) {
      if (symbols_.contains(name)) continue;
      return BadModel(model_.name, absl::StrCat("--dim ", name),
                      absl::StrCat("the model has no such dimension; it has: ",
                                   symbols_.empty() ? "none" : absl::StrJoin(symbols_, ", ")));
    }
    return absl::OkStatus();
  }

  // 2. What stands in the file.
  void DefineInitializers(const GraphProto& graph, Scope& scope) {
    for (const auto& tensor : graph.initializer()) {
      Facts& facts = scope.facts[tensor.name()];
      SetTensorType(facts.type, tensor.data_type(), DimsOf(tensor));
      SetData(facts, tensor);
    }
    for (const auto& sparse : graph.sparse_initializer()) {
      TypeProto& type = scope.facts[sparse.values().name()].type;
      SetTensorType(type, sparse.values().data_type(),
                    {sparse.dims().begin(), sparse.dims().end()});
    }
  }

  void SetData(Facts& facts, const onnx::TensorProto& tensor) {
    if (tensor.data_location() == onnx::TensorProto::EXTERNAL) return;
    facts.ints = IntsOf(tensor);
    // A tensor whose data was left out of the file would read as one of no elements.
    const bool whole = tensor.has_raw_data() || tensor.float_data_size() > 0 || facts.ints;
    if (whole) facts.data = &tensor;
  }

  void DefineInputs(const GraphProto& graph, Scope& scope, const Types* given,
                    const std::string& prefix) {
    std::set<std::string> missing;
    std::string first;  // input that misses one
    for (int i = 0; i < graph.input_size(); ++i) {
      const auto& input = graph.input(i);
      if (scope.facts.contains(input.name())) continue;  // has a value of its own
      const std::string where = absl::StrCat(prefix, "input \"", input.name(), "\"");
      Facts& facts = scope.facts[input.name()];
      const auto at = static_cast<std::size_t>(i);
      if (given != nullptr && at < given->size() && (*given)[at] != nullptr) {
        facts.type = Merge(*(*given)[at], BoundCopy(input.type(), where));
      } else {
        facts.type = input.type();
        BindInput(facts.type, input.name(), where, missing);
        if (options_.plain) facts.type = input.type();
      }
      CheckType(facts.type, where);
      if (!missing.empty() && first.empty()) first = where;
    }
    if (!missing.empty()) FailUnbound(first, missing);
  }

  TypeProto BoundCopy(const TypeProto& type, const std::string& where) {
    TypeProto copy = type;
    if (!options_.plain) Bind(copy, where, nullptr);
    return copy;
  }

  // What was inferred, and where that is open what was declared. Names stay those of the file.
  static TypeProto Merge(const TypeProto& inferred, const TypeProto& declared) {
    if (!declared.has_tensor_type()) return inferred;
    if (inferred.value_case() == TypeProto::VALUE_NOT_SET) return declared;
    if (!inferred.has_tensor_type()) return inferred;
    TypeProto merged = inferred;
    onnx::TypeProto::Tensor& out = *merged.mutable_tensor_type();
    const onnx::TypeProto::Tensor& in = declared.tensor_type();
    if (out.elem_type() == 0) out.set_elem_type(in.elem_type());
    if (!in.has_shape()) return merged;
    if (!out.has_shape()) {
      *out.mutable_shape() = in.shape();
    } else if (out.shape().dim_size() == in.shape().dim_size()) {
      for (int d = 0; d < in.shape().dim_size(); ++d) {
        if (out.shape().dim(d).has_dim_value()) continue;
        if (in.shape().dim(d).has_dim_value() || in.shape().dim(d).has_dim_param()) {
          *out.mutable_shape()->mutable_dim(d) = in.shape().dim(d);
        }
      }
    }
    return merged;
  }

  // 3. Negative or huge after inference: the library multiplies without a look.
  void CheckType(const TypeProto& type, const std::string& where) {
    if (!type.has_tensor_type()) return;
    Dims dims;
    for (const auto& dim : type.tensor_type().shape().dim()) {
      dims.push_back(dim.has_dim_value() ? dim.dim_value() : 1);
      if (dims.back() < 0) {
        return Fail(where, absl::StrCat("dims[", dims.size() - 1, "] comes to ", dims.back(),
                                        ", negative"));
      }
    }
    if (dims.size() > kRankMax || !ElementCount(dims).has_value()) {
      Fail(where, "dims: their product is too large");
    }
  }

  // A size that the caller bound has to be the one that the ops make.
  void CheckDeclared(const TypeProto& type, const TypeProto& declared, const std::string& where) {
    const auto made = StaticShape(type);
    if (options_.plain || !made.has_value() || !declared.has_tensor_type()) return;
    const auto& shape = declared.tensor_type().shape();
    if (static_cast<std::size_t>(shape.dim_size()) != made->size()) return;
    for (int d = 0; d < shape.dim_size(); ++d) {
      if (!shape.dim(d).has_dim_param()) continue;
      const DimValue value = EvaluateDim(shape.dim(d).dim_param(), options_.dims);
      const std::int64_t inferred = (*made)[static_cast<std::size_t>(d)];
      if (value.value.has_value() && *value.value != inferred) {
        Fail(where, absl::StrCat("dims[", d, "]: \"", shape.dim(d).dim_param(), "\" is ",
                                 *value.value, " by --dim, but comes to ", inferred));
      }
    }
  }

  // 4. Nodes.
  void InferNode(const GraphProto& graph, int index, Scope& scope, const Declared& declared,
                 const std::string& prefix);
  std::unique_ptr<Scope> InferGraph(const GraphProto& graph, const Scope* outer, const Types* given,
                                    const std::string& prefix);
  void InferTypes(const NodeProto& node, int index, Scope& scope, const std::string& where,
                  std::vector<TypeProto>& outputs);
  void SetElements(const NodeView& view, std::size_t output, Facts& facts);

  const OnnxModel& model_;
  const OnnxOptions& options_;
  absl::flat_hash_map<std::string, int> opsets_;
  std::set<std::string> symbols_;
  absl::Status failed_;
};

// One scope a subgraph, in the order of the node's attributes. The library asks for those of the
// ops it knows, with the types that go in; the rest are inferred from what they declare themselves.
void Inferer::InferTypes(const NodeProto& node, int index, Scope& scope, const std::string& where,
                         std::vector<TypeProto>& outputs) {
  std::vector<std::pair<std::string, const GraphProto*>> graphs;
  ForEachSubgraph(node, [&](const std::string& attribute, const GraphProto& graph) {
    graphs.emplace_back(attribute, &graph);
  });
  std::vector<std::unique_ptr<Scope>> inner(graphs.size());
  const auto infer = [&](std::size_t g, const Types* given) {
    const std::string inside = absl::StrCat(where, ": attribute \"", graphs[g].first, "\": ");
    inner[g] = InferGraph(*graphs[g].second, &scope, given, inside);
  };
  const auto by_library = [&](const std::string& attribute, const Types& given) {
    Types types;
    for (std::size_t g = 0; g < graphs.size(); ++g) {
      const GraphProto& graph = *graphs[g].second;
      // As often as the library asks, but work is done once.
      if (graphs[g].first != attribute) continue;
      if (inner[g] == nullptr) infer(g, &given);
      if (!failed_.ok()) return Types();
      for (const auto& output : graph.output()) {
        const Facts* facts = inner[g]->Find(output.name());
        types.push_back(facts != nullptr ? &facts->type : nullptr);
        if (types.back() == nullptr) return Types();
      }
      break;
    }
    return types;
  };
  const NodeView view(node, scope);
  const std::string domain = node.domain() == "ai.onnx" ? "" : node.domain();
  const auto opset = opsets_.find(domain);
  const std::string problem = InferByLibrary(
      view, opset != opsets_.end() ? opset->second : kLatestOpset, by_library, outputs);
  bool known = true;  // else it only follows from an earlier one
  for (std::size_t i = 0; i < view.inputs(); ++i) {
    known = known && (!view.HasInput(i) || view.Shape(i).has_value());
  }
  const bool noted = !problem.empty() && known && options_.notes != nullptr;
  if (noted && options_.notes->size() < kOnnxNotesMax) {
    options_.notes->push_back(absl::StrCat(where, ": ", problem));
  }
  if (!options_.plain) InferByRule(view, outputs);
  for (std::size_t g = 0; g < graphs.size() && failed_.ok(); ++g) {
    if (inner[g] == nullptr) infer(g, nullptr);
  }
  if (!graphs.empty()) scope.inner[index] = std::move(inner);
}

void Inferer::InferNode(const GraphProto& graph, int index, Scope& scope, const Declared& declared,
                        const std::string& prefix) {
  const NodeProto& node = graph.node(index);
  const std::string where = absl::StrCat(prefix, NodePlace(node, index));
  std::vector<TypeProto> types(static_cast<std::size_t>(node.output_size()));
  InferTypes(node, index, scope, where, types);
  if (!failed_.ok()) return;
  const NodeView view(node, scope);
  std::vector<Facts> made(types.size());
  for (std::size_t i = 0; i < types.size(); ++i) {
    const std::string& name = node.output(static_cast<int>(i));
    if (name.empty()) continue;
    const std::string at = absl::StrCat(where, ": output ", i, " \"", name, "\"");
    made[i].type = std::move(types[i]);
    CheckType(made[i].type, at);
    if (const auto found = declared.find(name); found != declared.end()) {
      made[i].type = Merge(made[i].type, BoundCopy(*found->second, at));
      CheckDeclared(made[i].type, *found->second, at);
      CheckType(made[i].type, at);
    }
    if (!failed_.ok()) return;
    SetElements(view, i, made[i]);
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    const std::string& name = node.output(static_cast<int>(i));
    if (!name.empty()) scope.facts[name] = std::move(made[i]);
  }
}

// Elements of an output that are known before the run.
void Inferer::SetElements(const NodeView& view, std::size_t output, Facts& facts) {
  if (view.node().op_type() == "Constant") {
    const onnx::AttributeProto* value = view.Attribute("value");
    if (value != nullptr && value->has_t()) SetData(facts, value->t());
  }
  if (options_.plain || facts.data != nullptr) return;
  facts.ints = FoldInts(view, output, facts.type);
  if (facts.ints == nullptr) return;
  const int type = ElementType(facts.type);
  auto tensor = std::make_shared<onnx::TensorProto>();
  tensor->set_data_type(type != 0 ? type : onnx::TensorProto::INT64);
  for (const std::int64_t dim : facts.ints->dims) tensor->add_dims(dim);
  for (const std::int64_t value : facts.ints->values) {
    if (tensor->data_type() == onnx::TensorProto::INT64) {
      tensor->add_int64_data(value);
    } else {
      tensor->add_int32_data(static_cast<std::int32_t>(value));
    }
  }
  facts.data = tensor.get();
  facts.made = std::move(tensor);
}

// Returns the scope even after a failure, as far as it came.
std::unique_ptr<Scope> Inferer::InferGraph(const GraphProto& graph, const Scope* outer,
                                           const Types* given, const std::string& prefix) {
  auto scope = std::make_unique<Scope>();
  scope->graph = &graph;
  scope->outer = outer;
  absl::StatusOr<std::vector<int>> order = SortNodes(graph, model_.name);
  if (!order.ok()) {
    if (failed_.ok()) failed_ = order.status();
    return scope;
  }
  scope->order = *std::move(order);
  DefineInitializers(graph, *scope);
  DefineInputs(graph, *scope, given, prefix);
  Declared declared;
  for (const auto& info : graph.value_info()) declared.emplace(info.name(), &info.type());
  for (const auto& info : graph.output()) declared.emplace(info.name(), &info.type());
  for (const int index : scope->order) {
    if (!failed_.ok()) return scope;
    InferNode(graph, index, *scope, declared, prefix);
  }
  if (options_.plain && failed_.ok()) {
    for (auto& [name, facts] : scope->facts) {
      const std::string where = absl::StrCat(prefix, "value \"", name, "\"");
      Bind(facts.type, where, nullptr);
      CheckType(facts.type, where);
    }
  }
  return scope;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scope>> InferOnnx(const OnnxModel& model,
                                                 const OnnxOptions& options) {
  return Inferer(model, options).Run();
}

}  // namespace hmm::graph
