// SPDX-License-Identifier: Apache-2.0
//
// Internal to the MindIR importer: runs through a model's graphs, from the top one, and writes down
// what is met. One object for the top graph, one more for each graph that stays inside an op.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/mindir_flat.h"

namespace hmm::graph {

class Flattener {
 public:
  // `outer`: runs the graph around; nullptr for the top one.
  Flattener(const MindIrModel& model, const MindIrOptions& options, const MindIrSymbols& symbols,
            Flattener* outer);

  absl::StatusOr<FlatGraph> RunTop();

 private:
  struct Callee {
    MindIrCall call;                // the op
    ValueIndex closure = kNoIndex;  // or what is called
  };
  struct Contents {
    std::vector<LeafIndex> leaves;
    std::vector<plan::OpIndex> after;
  };

  // What may still be done and kept, one for all graphs.
  struct Work {
    std::size_t left = 0;
    std::size_t nodes = 0;
    std::size_t nodes_max = 0;
  };

  absl::Status Bad(const std::string& where, std::string_view what) const;
  absl::Status CountNode();
  absl::Status Spend(std::size_t work);
  void Charge(std::size_t work, std::string_view name = {});  // RunNode finds that none is left
  std::string UniqueLeafName(const std::string& name);
  std::string UniqueOpName(const std::string& name);
  LeafIndex AddLeaf(const std::string& name, std::optional<Bytes> bytes);
  ValueIndex AddValue(FlatValue value);
  ValueIndex NewValue(const std::string& name, const MindIrAbstract& abstract,
                      const std::string& leaf_name);
  ValueIndex Alias(const std::string& name, ValueIndex value);
  const mind_ir::TensorProto* ShapeOf(const std::vector<ValueIndex>& values, std::size_t at) const;
  Contents ContentsOf(const std::vector<ValueIndex>& values);
  std::vector<plan::OpIndex> MakersOf(const std::vector<ValueIndex>& values);
  void Shorten(const std::string& name, std::vector<plan::OpIndex>& after);

  plan::Op ReadingOp(const mind_ir::NodeProto& node, const std::string& type,
                     const std::vector<ValueIndex>& inputs);
  plan::OpIndex AddOp(plan::Op op, ValueIndex output);
  void WriteInPlace(const std::string& type, const std::vector<ValueIndex>& inputs,
                    ValueIndex output, plan::Op& op);
  absl::StatusOr<ValueIndex> Compute(const MindIrCall& call, const std::vector<ValueIndex>& inputs,
                                     const std::string& name, plan::OpIndex& made);

  absl::StatusOr<ValueIndex> Find(const std::string& name, const std::string& where);
  ValueIndex FromOutside(ValueIndex outside);
  absl::StatusOr<Callee> Resolve(const mind_ir::NodeProto& node, const std::string& where);
  absl::StatusOr<ValueIndex> RunGraph(const mind_ir::GraphProto& graph,
                                      const std::vector<ValueIndex>& arguments,
                                      const std::string& where);
  absl::Status RunNode(const mind_ir::NodeProto& node, int index, const mind_ir::GraphProto& graph);

  absl::StatusOr<ValueIndex> PassOn(const mind_ir::NodeProto& node, const std::string& type,
                                    const std::string& name, const std::vector<ValueIndex>& inputs);
  absl::StatusOr<ValueIndex> Constant(const mind_ir::NodeProto& node, const std::string& name);
  absl::StatusOr<ValueIndex> Element(const std::string& name,
                                     const std::vector<ValueIndex>& inputs);
  absl::StatusOr<ValueIndex> View(const mind_ir::NodeProto& node, const std::string& name,
                                  const std::vector<ValueIndex>& inputs);
  absl::StatusOr<ValueIndex> Closure(const std::string& type, const std::string& name,
                                     const std::vector<ValueIndex>& inputs);

  // Calls (mindir_call.cc).
  absl::StatusOr<ValueIndex> Call(const mind_ir::NodeProto& node, ValueIndex closure,
                                  const std::string& name, const std::string& where,
                                  FlatNode& flat);
  absl::StatusOr<ValueIndex> CallResumed(const mind_ir::NodeProto& node, ValueIndex closure,
                                         const std::string& name, const std::string& where,
                                         FlatNode& flat);
  absl::StatusOr<ValueIndex> CallWithin(const mind_ir::NodeProto& node, ValueIndex closure,
                                        const std::string& name, const std::string& where,
                                        FlatNode& flat);
  absl::Status AddWithin(const FlatClosure& closure, const std::vector<ValueIndex>& arguments,
                         const std::string& prefix, const std::string& where, plan::Op& op,
                         std::vector<ValueIndex>& captured);
  bool Running(const mind_ir::GraphProto* graph) const;
  void Resume(const mind_ir::NodeProto& node);

  const MindIrModel& model_;
  const MindIrOptions& options_;
  const MindIrSymbols& symbols_;
  Flattener* outer_;
  std::size_t depth_ = 0;
  Work own_work_;
  Work* work_ = nullptr;
  FlatGraph flat_;
  absl::flat_hash_map<std::string, ValueIndex> names_;
  absl::flat_hash_map<std::string, std::size_t> runs_;     // of a node, by its name
  absl::flat_hash_map<ValueIndex, std::int64_t> numbers_;  // constants
  absl::flat_hash_set<std::string> leaf_names_, op_names_;
  absl::flat_hash_map<std::string, std::size_t> next_suffix_;
  std::vector<const mind_ir::GraphProto*> stack_;
  absl::flat_hash_map<ValueIndex, ValueIndex> outside_;  // of the graph around, and here
  std::vector<ValueIndex> captured_;
};

}  // namespace hmm::graph
