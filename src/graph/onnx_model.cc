// SPDX-License-Identifier: Apache-2.0
//
// Order and reading of a sound model.
#include "graph/onnx_model.h"

#include <functional>
#include <queue>

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

// Names a node of a cycle, found by walking back from any node that could not be placed.
absl::Status CycleError(const GraphProto& graph, const std::string& file,
                        const std::vector<std::vector<int>>& users,
                        const std::vector<int>& waits_for) {
  std::vector<int> before(waits_for.size(), -1);  // one unplaced node that each waits for
  for (std::size_t n = 0; n < users.size(); ++n) {
    if (waits_for[n] == 0) continue;
    for (const int user : users[n]) before[static_cast<std::size_t>(user)] = static_cast<int>(n);
  }
  int at = 0;
  while (waits_for[static_cast<std::size_t>(at)] == 0) ++at;
  for (std::size_t step = 0; step < waits_for.size(); ++step) {
    at = before[static_cast<std::size_t>(at)];
  }
  const int next = before[static_cast<std::size_t>(at)];
  return BadModel(
      file, NodePlace(graph.node(at), at),
      absl::StrCat("inputs: depends on itself, by way of ", NodePlace(graph.node(next), next)));
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

absl::StatusOr<std::vector<int>> SortNodes(const GraphProto& graph, const std::string& file) {
  const auto count = static_cast<std::size_t>(graph.node_size());
  absl::flat_hash_map<std::string, int> maker;
  for (int n = 0; n < graph.node_size(); ++n) {
    for (const std::string& output : graph.node(n).output()) {
      if (!output.empty()) maker.emplace(output, n);
    }
  }
  std::vector<std::vector<int>> users(count);
  std::vector<int> waits_for(count, 0);
  const auto read = [&](int n, const std::string& name) {
    const auto found = maker.find(name);
    if (found == maker.end()) return;
    users[static_cast<std::size_t>(found->second)].push_back(n);
    ++waits_for[static_cast<std::size_t>(n)];
  };
  for (int n = 0; n < graph.node_size(); ++n) {
    for (const std::string& input : graph.node(n).input()) read(n, input);
    for (const std::string& name : CapturedNames(graph.node(n))) read(n, name);
  }
  // The least position that is ready goes next: a valid order comes out as it went in.
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int n = 0; n < graph.node_size(); ++n) {
    if (waits_for[static_cast<std::size_t>(n)] == 0) ready.push(n);
  }
  std::vector<int> order;
  order.reserve(count);
  while (!ready.empty()) {
    const int n = ready.top();
    ready.pop();
    order.push_back(n);
    for (const int user : users[static_cast<std::size_t>(n)]) {
      if (--waits_for[static_cast<std::size_t>(user)] == 0) ready.push(user);
    }
  }
  if (order.size() != count) return CycleError(graph, file, users, waits_for);
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
