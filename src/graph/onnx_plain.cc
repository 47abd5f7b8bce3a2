// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "graph/onnx_build.h"

namespace hmm::graph {

plan::Graph BuildPlainGraph(const Scope& scope) {
  plan::Graph graph;
  graph.name = scope.graph->name();
  absl::flat_hash_map<std::string, plan::StorageIndex> storages;
  std::vector<std::string> names = OpNames(scope);
  for (std::size_t at = 0; at < scope.order.size(); ++at) {
    const onnx::NodeProto& node = scope.graph->node(scope.order[at]);
    plan::Op op;
    op.name = std::move(names[at]);
    op.type = node.op_type();
    for (const std::string& input : node.input()) {
      const auto found = storages.find(input);
      if (found != storages.end()) op.reads.push_back(found->second);
    }
    std::sort(op.reads.begin(), op.reads.end());
    op.reads.erase(std::unique(op.reads.begin(), op.reads.end()), op.reads.end());
    for (const std::string& output : node.output()) {
      if (output.empty()) continue;
      const std::optional<Bytes> bytes = FactsBytes(scope.Find(output));
      if (!bytes.has_value()) graph.unknown.push_back(output);
      if (bytes.value_or(0) == 0) continue;
      const auto index = static_cast<plan::StorageIndex>(graph.storages.size());
      storages.emplace(output, index);
      op.writes.push_back(index);
      plan::Storage& storage = graph.storages.emplace_back();
      storage.name = output;
      storage.bytes = *bytes;
    }
    op.flops = NodeFlops(NodeView(node, scope),
                         node.output_size() > 0 && scope.Find(node.output(0)) != nullptr
                             ? StaticShape(scope.Find(node.output(0))->type)
                             : std::nullopt);
    graph.ops.push_back(std::move(op));
  }
  return graph;
}

}  // namespace hmm::graph
