// SPDX-License-Identifier: Apache-2.0
//
// Order and reading of a sound model.
#include "graph/onnx_model.h"

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace hmm::graph {
namespace {

using onnx::GraphProto;
using onnx::NodeProto;
using onnx::TensorProto;

// Adds what `graph` reads and does not define. `sight` holds the names defined around it, inside
// the node in question.
void Capture(const GraphProto& graph, std::vector<absl::flat_hash_set<std::string>>& sight,
             absl::flat_hash_set<std::string>& seen, std::vector<std::string>& captured) {
  absl::flat_hash_set<std::string>& own = sight.emplace_back();
  for (const auto& input : graph.input()) own.insert(input.name());
  for (const auto& tensor : graph.initializer()) own.insert(tensor.name());
  for (const auto& sparse : graph.sparse_initializer()) own.insert(sparse.values().name());
  for (const auto& node : graph.node()) own.insert(node.output().begin(), node.output().end());
  const auto read = [&](const std::string& name) {
    if (name.empty()) return;
    for (const auto& scope : sight) {
      if (scope.contains(name)) return;
    }
    if (seen.insert(name).second) captured.push_back(name);
  };
  for (const auto& node : graph.node()) {
    for (const std::string& input : node.input()) read(input);
    ForEachSubgraph(node, [&](const std::string&, const GraphProto& inner) {
      Capture(inner, sight, seen, captured);
    });
  }
  for (const auto& output : graph.output()) read(output.name());
  sight.pop_back();
}

}  // namespace

absl::Status BadModel(std::string_view file, std::string_view where, std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadGraph,
               absl::StrCat(std::string(file), ": ", std::string(where), ": ", std::string(what)));
}

std::string NodePlace(const NodeProto& node, int index) {
  std::string name = node.name();
  if (name.empty() && node.output_size() > 0) name = node.output(0);
  return absl::StrCat("node \"", name, "\" (", node.op_type(), ", #", index, ")");
}

void ForEachSubgraph(
    const NodeProto& node,
    absl::FunctionRef<void(const std::string& attribute, const GraphProto& graph)> visit) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) visit(attribute.name(), attribute.g());
    for (const auto& graph : attribute.graphs()) visit(attribute.name(), graph);
  }
}

std::vector<std::string> CapturedNames(const NodeProto& node) {
  std::vector<absl::flat_hash_set<std::string>> sight;
  absl::flat_hash_set<std::string> seen;
  std::vector<std::string> captured;
  ForEachSubgraph(node, [&](const std::string&, const GraphProto& graph) {
    Capture(graph, sight, seen, captured);
  });
  return captured;
}

// Each node at its place, what it needs and is not there yet right before it: a valid order comes
// out as it went in. Of constants of one name the last counts, so they keep their order. Depth
// first, without recursion.
absl::StatusOr<std::vector<int>> SortNodes(const GraphProto& graph, const std::string& file) {
  const auto count = static_cast<std::size_t>(graph.node_size());
  absl::flat_hash_map<std::string, int> maker;
  absl::flat_hash_map<int, int> earlier;  // that makes the same name
  for (int n = 0; n < graph.node_size(); ++n) {
    for (const std::string& output : graph.node(n).output()) {
      if (output.empty()) continue;
      const auto [made, first] = maker.try_emplace(output, n);
      if (!first && made->second != n) earlier[n] = made->second;
      made->second = n;
    }
  }
  const auto needs = [&](int n) {
    std::vector<int> makers;
    if (const auto found = earlier.find(n); found != earlier.end()) makers = {found->second};
    const auto add = [&](const std::string& name) {
      const auto found = maker.find(name);
      if (found != maker.end()) makers.push_back(found->second);
    };
    for (const std::string& input : graph.node(n).input()) add(input);
    for (const std::string& name : CapturedNames(graph.node(n))) add(name);
    return makers;
  };
  struct Visit {
    int node;
    std::vector<int> needs;
    std::size_t next = 0;
  };
  enum : std::uint8_t { kNew, kOpen, kDone };
  std::vector<std::uint8_t> state(count, kNew);
  std::vector<int> order;
  order.reserve(count);
  std::vector<Visit> open;
  for (int start = 0; start < graph.node_size(); ++start) {
    if (state[static_cast<std::size_t>(start)] == kDone) continue;
    state[static_cast<std::size_t>(start)] = kOpen;
    open.push_back({start, needs(start)});
    while (!open.empty()) {
      Visit& visit = open.back();
      if (visit.next == visit.needs.size()) {
        state[static_cast<std::size_t>(visit.node)] = kDone;
        order.push_back(visit.node);
        open.pop_back();
        continue;
      }
      const int need = visit.needs[visit.next++];
      std::uint8_t& known = state[static_cast<std::size_t>(need)];
      if (known == kOpen) {
        return BadModel(file, NodePlace(graph.node(visit.node), visit.node),
                        absl::StrCat("inputs: depends on itself, by way of ",
                                     NodePlace(graph.node(need), need)));
      }
      if (known == kDone) continue;
      known = kOpen;
      open.push_back({need, needs(need)});
    }
  }
  return order;
}

std::optional<int> ElementBits(int data_type) {
  // The numbers past bfloat16 are of later ONNX than the library's.
  constexpr int kFloat8First = 17, kFloat8Last = 20, kUint4 = 21, kInt4 = 22, kFloat4 = 23;
  if (data_type >= kFloat8First && data_type <= kFloat8Last) return 8;
  if (data_type == kUint4 || data_type == kInt4 || data_type == kFloat4) return 4;
  switch (data_type) {
    case TensorProto::UINT8:
    case TensorProto::INT8:
    case TensorProto::BOOL:
      return 8;
    case TensorProto::UINT16:
    case TensorProto::INT16:
    case TensorProto::FLOAT16:
    case TensorProto::BFLOAT16:
      return 16;
    case TensorProto::FLOAT:
    case TensorProto::INT32:
    case TensorProto::UINT32:
      return 32;
    case TensorProto::DOUBLE:
    case TensorProto::INT64:
    case TensorProto::UINT64:
    case TensorProto::COMPLEX64:
      return 64;
    case TensorProto::COMPLEX128:
      return 128;
    case TensorProto::STRING:
      return 0;
    default:
      return std::nullopt;
  }
}

std::optional<std::uint64_t> ElementCount(const std::vector<std::int64_t>& dims) {
  std::uint64_t count = 1;
  bool zero = false;
  for (const std::int64_t dim : dims) {
    if (dim < 0 || dim > kDimMax) return std::nullopt;
    zero = zero || dim == 0;
    if (dim == 0) continue;
    if (count > kElementsMax / static_cast<std::uint64_t>(dim)) return std::nullopt;
    count *= static_cast<std::uint64_t>(dim);
  }
  return zero ? 0 : count;
}

std::optional<Bytes> TensorBytes(int data_type, const std::vector<std::int64_t>& dims) {
  const int bits = ElementBits(data_type).value_or(0);
  const std::optional<std::uint64_t> count = ElementCount(dims);
  if (bits == 0 || !count.has_value()) return std::nullopt;
  return bits >= 8 ? *count * static_cast<Bytes>(bits / 8) : (*count + 1) / 2;
}

std::vector<std::int64_t> DimsOf(const TensorProto& tensor) {
  return {tensor.dims().begin(), tensor.dims().end()};
}

}  // namespace hmm::graph
