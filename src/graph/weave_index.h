// SPDX-License-Identifier: Apache-2.0
//
// Internal to weave.cc: a model's nodes by what they make and hold.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "graph/weave.h"

namespace hmm::graph {

// A storage as an op leaves it.
using Written = std::pair<plan::OpIndex, plan::StorageIndex>;

class WeaveIndex {
 public:
  // FAILED_PRECONDITION as Weave. Graph, plan and model outlive this.
  static absl::StatusOr<WeaveIndex> Make(const plan::Graph& graph, const plan::Plan& plan,
                                         const WeaveModel& model);

  // kNone: there at start, or of no node.
  std::uint32_t Producer(const std::string& value) const;
  std::uint32_t NodeOf(plan::OpIndex op) const { return node_of_op_[op]; }
  const std::vector<plan::StorageIndex>& Held(const std::string& value) const;
  // The value that is the storage at start; empty: none.
  const std::string& AtStart(plan::StorageIndex s) const { return at_start_[s]; }
  // The value that is what the op wrote; nullptr: none is by itself.
  const std::string* Holder(const Written& written) const;
  // What the value is by itself as an op left it; nullptr: it is not.
  const Written* WrittenBy(const std::string& value) const;
  // Nodes that take apart what the op yields.
  const std::vector<std::uint32_t>& PartsOf(plan::OpIndex op) const;
  // The node before it that makes the same name; kNone: there is none. Producer is the last.
  std::uint32_t Earlier(std::uint32_t n) const;
  // Whether another node makes the same name.
  bool IsRepeated(std::uint32_t n) const;
  std::size_t inputs() const { return inputs_; }  // of all nodes, and the nodes

 private:
  WeaveIndex(const plan::Graph& graph, const WeaveModel& model) : graph_(&graph), model_(&model) {}

  absl::Status AddNodes();
  void SetStart(plan::StorageIndex s, const std::string& value);
  void AddOutputs(std::uint32_t n);
  plan::OpIndex WriterOf(std::uint32_t n, plan::StorageIndex s) const;
  bool Writes(plan::OpIndex op, plan::StorageIndex s) const;
  bool Holds(const std::string& value, plan::StorageIndex s) const;
  bool Makes(std::uint32_t n, plan::StorageIndex s) const;
  absl::Status CheckReads(const plan::Plan& plan) const;

  const plan::Graph* graph_;
  const WeaveModel* model_;
  absl::flat_hash_map<std::string, std::uint32_t> producer_;
  absl::flat_hash_map<std::uint32_t, std::uint32_t> earlier_;
  std::vector<std::uint32_t> node_of_op_;
  std::vector<std::string> at_start_;
  std::map<Written, std::string> holder_;
  absl::flat_hash_map<std::string, Written> written_by_;
  absl::flat_hash_map<plan::OpIndex, std::vector<std::uint32_t>> parts_;
  std::size_t inputs_ = 0;
};

absl::Status CannotWeave(const std::string& what);

}  // namespace hmm::graph
