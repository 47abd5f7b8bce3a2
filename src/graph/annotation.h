// SPDX-License-Identifier: Apache-2.0
//
// Internal: what annotated files of both formats keep in their metadata, and how their nodes are
// told from the model's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/weave.h"
#include "plan/graph.h"
#include "plan/plan.h"

namespace hmm::graph {

// Keys of the metadata: the plan as hmm.v1.Plan, base64; and how the model was before.
inline constexpr char kPlanKey[] = "hmm.plan";
inline constexpr char kBeforeKey[] = "hmm.before";

absl::StatusOr<std::string> EncodePlan(const plan::Plan& plan, const plan::Graph& graph);

// Where the model's nodes stood before: for each that is kept, in the order of the file, its place.
std::string EncodeOrder(const std::vector<std::uint32_t>& order);
// INVALID_ARGUMENT/BAD_GRAPH unless it is an order of `count` nodes.
absl::StatusOr<std::vector<std::uint32_t>> DecodeOrder(std::string_view text, std::size_t count,
                                                       const std::string& file);

// What CheckNothingWoven says of `name`.
absl::Status MovesWithoutPlan(const std::string& file, const std::string& name);

// "SwapOut", "SwapIn", "Drop".
const char* WovenMoveName(plan::MoveKind kind);

// INVALID_ARGUMENT/BAD_GRAPH if moves are in a model whose metadata does not say so: it would be
// read as another graph, with the moves as ops.
template <typename Nodes>
absl::Status CheckNothingWoven(const Nodes& nodes, const std::string& file) {
  for (const auto& node : nodes) {
    for (const std::string& output : node.output()) {
      if (IsWovenName(output)) return MovesWithoutPlan(file, output);
    }
  }
  return absl::OkStatus();
}

// Nodes as bytes, for CheckMoves; their names are for people, and other tools give them anew.
template <typename Nodes>
std::vector<std::string> NodeBytes(const Nodes& nodes) {
  std::vector<std::string> bytes;
  bytes.reserve(static_cast<std::size_t>(nodes.size()));
  for (auto node : nodes) {
    node.clear_name();
    bytes.push_back(node.SerializeAsString());
  }
  return bytes;
}

// Takes Weave's names out again, in the order of the file's nodes.
class Unweaver {
 public:
  // Whether the node is one of Weave's, which is taken out.
  bool Take(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs);
  // What a name stands for in the model.
  std::string Value(const std::string& name) const;

 private:
  absl::flat_hash_map<std::string, std::string> values_;
};

}  // namespace hmm::graph
