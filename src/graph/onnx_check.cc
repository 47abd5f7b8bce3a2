// SPDX-License-Identifier: Apache-2.0
//
// What must hold of a model before anything is inferred from it. One pass over all graphs.
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/external_file.h"
#include "graph/onnx_model.h"

namespace hmm::graph {
namespace {

using onnx::GraphProto;
using onnx::NodeProto;
using onnx::TensorProto;
using onnx::TypeProto;

std::string Quoted(std::string_view name) { return absl::StrCat("\"", std::string(name), "\""); }

// Elements held inline outside raw_data; packed types hold several to an entry.
std::uint64_t TypedEntries(const TensorProto& tensor) {
  return static_cast<std::uint64_t>(tensor.float_data_size()) +
         static_cast<std::uint64_t>(tensor.int32_data_size()) +
         static_cast<std::uint64_t>(tensor.int64_data_size()) +
         static_cast<std::uint64_t>(tensor.double_data_size()) +
         static_cast<std::uint64_t>(tensor.uint64_data_size()) +
         static_cast<std::uint64_t>(tensor.string_data_size());
}

std::uint64_t EntriesOf(int data_type, std::uint64_t elements) {
  const bool complex = data_type == TensorProto::COMPLEX64 || data_type == TensorProto::COMPLEX128;
  const int bits = ElementBits(data_type).value_or(0);
  return complex ? elements * 2 : bits == 4 ? (elements + 1) / 2 : elements;
}

// Names in sight, innermost graph last.
class Names {
 public:
  void Enter() { scopes_.emplace_back(); }
  void Leave() { scopes_.pop_back(); }
  // False: this graph has it already.
  bool Add(const std::string& name) { return scopes_.back().insert(name).second; }
  bool InSight(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (scope->contains(name)) return true;
    }
    return false;
  }

 private:
  std::vector<absl::flat_hash_set<std::string>> scopes_;
};

class Checker {
 public:
  Checker(const OnnxModel& model, const OnnxOptions& options)
      : model_(model),
        options_(options),
        external_(model.directory, options.external_data_required) {}

  absl::Status Run() { return CheckGraph(model_.proto->graph(), "", 0); }

 private:
  absl::Status Bad(std::string_view where, std::string_view what) const {
    return BadModel(model_.name, where, what);
  }

  absl::Status CheckDims(const std::vector<std::int64_t>& dims, const std::string& where) const {
    if (dims.size() > kRankMax) {
      return Bad(where, absl::StrCat("dims: ", dims.size(), " of them, at most ", kRankMax));
    }
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] < 0) return Bad(where, absl::StrCat("dims[", d, "] is ", dims[d], ", negative"));
    }
    if (!ElementCount(dims).has_value()) return Bad(where, "dims: their product is too large");
    return absl::OkStatus();
  }

  absl::Status CheckDataType(int data_type, const std::string& where) const {
    if (ElementBits(data_type).has_value()) return absl::OkStatus();
    return Bad(where, absl::StrCat("data type ", data_type, " is not known"));
  }

  absl::Status CheckTensor(const TensorProto& tensor, const std::string& where) {
    HMM_RETURN_IF_ERROR(CheckDataType(tensor.data_type(), where));
    const std::vector<std::int64_t> dims = DimsOf(tensor);
    HMM_RETURN_IF_ERROR(CheckDims(dims, where));
    if (tensor.data_location() == TensorProto::EXTERNAL) return CheckExternal(tensor, where);
    const std::optional<Bytes> bytes = TensorBytes(tensor.data_type(), dims);
    if (tensor.has_raw_data()) {
      if (!bytes.has_value()) return Bad(where, "raw_data: strings cannot stand there");
      if (tensor.raw_data().size() != *bytes) {
        return Bad(where, absl::StrCat("raw_data: ", tensor.raw_data().size(),
                                       " bytes, its shape needs ", *bytes));
      }
      return absl::OkStatus();
    }
    // No data at all is a model without its weights: its sizes are as good.
    const std::uint64_t entries = TypedEntries(tensor);
    const std::uint64_t needed = EntriesOf(tensor.data_type(), *ElementCount(dims));
    if (entries != 0 && entries != needed) {
      return Bad(where, absl::StrCat("data: ", entries, " entries, its shape needs ", needed));
    }
    return absl::OkStatus();
  }

  absl::Status CheckExternal(const TensorProto& tensor, const std::string& where) {
    std::string location;
    std::uint64_t offset = 0, length = 0;
    bool has_length = false;
    for (const auto& entry : tensor.external_data()) {
      if (entry.key() == "location") location = entry.value();
      const bool is_length = entry.key() == "length";
      if (!is_length && entry.key() != "offset") continue;
      if (!absl::SimpleAtoi(entry.value(), is_length ? &length : &offset)) {
        return Bad(where, absl::StrCat("external_data.", entry.key(), ": ", Quoted(entry.value()),
                                       " is no number of bytes"));
      }
      has_length |= is_length;
    }
    const std::optional<Bytes> bytes = TensorBytes(tensor.data_type(), DimsOf(tensor));
    if (!bytes.has_value()) return Bad(where, "external_data: strings cannot stand there");
    if (has_length && length != *bytes) {
      return Bad(where, absl::StrCat("external_data.length: ", length, " bytes, its shape needs ",
                                     *bytes));
    }
    return external_.CheckRange(location, offset, *bytes, absl::StrCat(model_.name, ": ", where));
  }

  absl::Status CheckType(const TypeProto& type, const std::string& where, int depth = 0) const {
    if (depth > kSubgraphDepthMax) return Bad(where, "type: nested too deep");
    switch (type.value_case()) {
      case TypeProto::kSequenceType:
        return CheckType(type.sequence_type().elem_type(), where, depth + 1);
      case TypeProto::kOptionalType:
        return CheckType(type.optional_type().elem_type(), where, depth + 1);
      case TypeProto::kTensorType:
        return CheckTensorType(type.tensor_type(), where);
      case TypeProto::kSparseTensorType:
        return CheckTensorType(type.sparse_tensor_type(), where);
      default:
        return absl::OkStatus();
    }
  }
  template <typename Tensor>
  absl::Status CheckTensorType(const Tensor& tensor, const std::string& where) const {
    if (tensor.elem_type() != 0) HMM_RETURN_IF_ERROR(CheckDataType(tensor.elem_type(), where));
    std::vector<std::int64_t> dims;  // unknown ones count as 1
    for (const auto& dim : tensor.shape().dim()) {
      dims.push_back(dim.has_dim_value() ? dim.dim_value() : 1);
    }
    return CheckDims(dims, where);
  }

  absl::Status CheckValues(const GraphProto& graph, const std::string& prefix) {
    absl::flat_hash_set<std::string> initializers;
    const auto own = [&](const std::string& name, const std::string& where) -> absl::Status {
      if (name.empty()) return Bad(where, "name: missing");
      if (!initializers.insert(name).second) return Bad(where, "name: used twice");
      names_.Add(name);
      return absl::OkStatus();
    };
    for (const auto& tensor : graph.initializer()) {
      const std::string where = absl::StrCat(prefix, "initializer ", Quoted(tensor.name()));
      HMM_RETURN_IF_ERROR(own(tensor.name(), where));
      HMM_RETURN_IF_ERROR(CheckTensor(tensor, where));
    }
    for (const auto& sparse : graph.sparse_initializer()) {
      const std::string& name = sparse.values().name();
      const std::string where = absl::StrCat(prefix, "sparse initializer ", Quoted(name));
      HMM_RETURN_IF_ERROR(own(name, where));
      HMM_RETURN_IF_ERROR(CheckTensor(sparse.values(), where));
      HMM_RETURN_IF_ERROR(CheckTensor(sparse.indices(), where));
    }
    absl::flat_hash_set<std::string> inputs;
    for (const auto& input : graph.input()) {
      const std::string where = absl::StrCat(prefix, "input ", Quoted(input.name()));
      if (input.name().empty()) return Bad(where, "name: missing");
      if (!inputs.insert(input.name()).second) return Bad(where, "name: used twice");
      names_.Add(input.name());  // may be an initializer too: a default, as old models write them
      HMM_RETURN_IF_ERROR(CheckType(input.type(), where));
    }
    for (const auto& info : graph.value_info()) {
      const std::string where = absl::StrCat(prefix, "value_info ", Quoted(info.name()));
      HMM_RETURN_IF_ERROR(CheckType(info.type(), where));
    }
    return absl::OkStatus();
  }

  absl::Status CheckGraph(const GraphProto& graph, const std::string& prefix, int depth) {
    if (depth > kSubgraphDepthMax) return Bad(prefix, "subgraphs: nested too deep");
    nodes_ += static_cast<std::size_t>(graph.node_size());
    if (nodes_ > options_.nodes_max) {
      return Error(absl::StatusCode::kResourceExhausted, Reason::kBadGraph,
                   absl::StrCat(model_.name, ": graph: more than ", options_.nodes_max, " nodes"));
    }
    names_.Enter();
    HMM_RETURN_IF_ERROR(CheckValues(graph, prefix));
    absl::flat_hash_set<std::string> constants;
    for (int n = 0; n < graph.node_size(); ++n) {
      const std::string where = absl::StrCat(prefix, NodePlace(graph.node(n), n));
      const bool constant = graph.node(n).op_type() == "Constant";
      for (const std::string& output : graph.node(n).output()) {
        if (output.empty()) continue;
        const bool first = names_.Add(output);
        const bool repeated = constants.contains(output);
        if (constant) constants.insert(output);
        // Edited models repeat constants. As in ONNX Runtime, the last one counts.
        if (first || (constant && repeated)) continue;
        return Bad(where, absl::StrCat("output ", Quoted(output),
                                       " is the name of another output, input or initializer"));
      }
    }
    for (int n = 0; n < graph.node_size(); ++n) {
      HMM_RETURN_IF_ERROR(CheckNode(graph.node(n), n, prefix, depth));
    }
    for (const auto& output : graph.output()) {
      const std::string where = absl::StrCat(prefix, "output ", Quoted(output.name()));
      HMM_RETURN_IF_ERROR(CheckType(output.type(), where));
      // An empty name: a subgraph's result that nobody wants.
      if (!output.name().empty() && !names_.InSight(output.name())) {
        return Bad(where, "no node makes it");
      }
    }
    names_.Leave();
    return absl::OkStatus();
  }

  absl::Status CheckNode(const NodeProto& node, int index, const std::string& prefix, int depth) {
    const std::string where = absl::StrCat(prefix, NodePlace(node, index));
    if (node.op_type().empty()) return Bad(where, "op_type: missing");
    for (int i = 0; i < node.input_size(); ++i) {
      const std::string& input = node.input(i);
      if (input.empty()) continue;
      if (!names_.InSight(input)) {
        return Bad(where, absl::StrCat("input ", i, " ", Quoted(input), ": nothing makes it"));
      }
      for (const std::string& output : node.output()) {
        if (output == input) {
          return Bad(where, absl::StrCat("input ", i, " ", Quoted(input), " is its own output"));
        }
      }
    }
    for (const auto& attribute : node.attribute()) {
      const std::string at = absl::StrCat(where, ": attribute ", Quoted(attribute.name()));
      if (attribute.has_t()) HMM_RETURN_IF_ERROR(CheckTensor(attribute.t(), at));
      for (const auto& tensor : attribute.tensors()) HMM_RETURN_IF_ERROR(CheckTensor(tensor, at));
      if (attribute.has_sparse_tensor()) {
        HMM_RETURN_IF_ERROR(CheckTensor(attribute.sparse_tensor().values(), at));
        HMM_RETURN_IF_ERROR(CheckTensor(attribute.sparse_tensor().indices(), at));
      }
      if (attribute.has_g()) {
        HMM_RETURN_IF_ERROR(CheckGraph(attribute.g(), absl::StrCat(at, ": "), depth + 1));
      }
      for (const auto& graph : attribute.graphs()) {
        HMM_RETURN_IF_ERROR(CheckGraph(graph, absl::StrCat(at, ": "), depth + 1));
      }
    }
    return absl::OkStatus();
  }

  const OnnxModel& model_;
  const OnnxOptions& options_;
  Names names_;
  std::size_t nodes_ = 0;
  ExternalFiles external_;
};

}  // namespace

absl::Status CheckOnnxModel(const OnnxModel& model, const OnnxOptions& options) {
  return Checker(model, options).Run();
}

}  // namespace hmm::graph
