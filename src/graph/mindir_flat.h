// SPDX-License-Identifier: Apache-2.0
//
// Internal to the MindIR importer: a model as one list of nodes. Names are resolved, calls replaced
// by what they call; what is left are ops and what only passes values on.
//
//   value     what a node, a parameter or an input yields: a tensor, a tuple of values, a
//             closure, or nothing that takes memory (numbers, monads)
//
//   leaf      a tensor among them, by its name; leaves of one root are the same bytes
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "graph/mindir_model.h"
#include "plan/graph.h"

namespace hmm::graph {

using ValueIndex = std::uint32_t;
using LeafIndex = std::uint32_t;
inline constexpr std::uint32_t kNoIndex = std::numeric_limits<std::uint32_t>::max();

struct FlatLeaf {
  std::string name;
  std::optional<Bytes> bytes;                    // nullopt: not known
  LeafIndex root = kNoIndex;                     // itself, or whose bytes it is
  const mind_ir::TensorProto* tensor = nullptr;  // its shape; nullptr: not known
  plan::OpIndex made_by = kNoIndex;
  TensorKind kind = TensorKind::kActivation;
  bool persistent = false;
  bool input = false;
  bool output = false;
  bool outside = false;  // of a graph around this one, which counts it
};

struct FlatClosure {
  const mind_ir::GraphProto* graph = nullptr;
  std::vector<ValueIndex> bound;  // arguments given before the call
};

struct FlatValue {
  enum class Kind : std::uint8_t { kHost, kTensor, kTuple, kClosure };
  Kind kind = Kind::kHost;
  std::string name;                  // under which the file's other nodes know it; may be empty
  LeafIndex leaf = kNoIndex;         // kTensor
  std::vector<ValueIndex> elements;  // kTuple; kClosure: what chooses among several
  std::vector<FlatClosure> closures;
  std::vector<plan::OpIndex> after;  // ops that have to run before what uses it, besides its makers
};

struct FlatNode {
  const mind_ir::NodeProto* node = nullptr;
  std::string type;  // of the op, without "REF::" and number
  std::vector<ValueIndex> inputs;
  ValueIndex output = kNoIndex;
  plan::OpIndex op = kNoIndex;  // kNoIndex: only passes on
  // Of a call that stays an op: the graphs that ran around it, whose calls were replaced.
  std::vector<std::string> running;
};

// They stand as this attribute of a node once it is written among the top graph's: a graph that
// calls itself is counted where it began, there as here.
inline constexpr char kRunningAttribute[] = "hmm_running";

struct FlatGraph {
  std::vector<FlatLeaf> leaves;
  std::vector<FlatValue> values;
  std::vector<FlatNode> nodes;
  // Ops, with leaves in place of storages: reads and writes are roots of leaves.
  std::vector<plan::Op> ops;
  std::vector<std::string> unknown;  // of graphs within ops
  std::vector<ValueIndex> outputs;
  bool calls = false;  // some nodes are of called graphs: names and places are not the top graph's
};

// The names of a model.
struct MindIrSymbols {
  absl::flat_hash_map<std::string, const mind_ir::PrimitiveProto*> primitives;
  absl::flat_hash_map<std::string, const mind_ir::GraphProto*> graphs;
};

// INVALID_ARGUMENT: a name that is used twice or that nothing makes, a call with too few arguments;
// RESOURCE_EXHAUSTED: past options.nodes_max.
absl::StatusOr<FlatGraph> FlattenMindIr(const MindIrModel& model, const MindIrOptions& options);

// The plan's graph of it. `roots`, if given, is filled with the root leaf of each storage.
plan::Graph BuildMindIrGraph(const FlatGraph& flat, const std::string& name,
                             std::vector<LeafIndex>* roots);

// What a node yields, as the file states it.
struct MindIrAbstract {
  enum class Kind : std::uint8_t { kHost, kTensor, kTuple, kUnknown };
  Kind kind = Kind::kUnknown;
  std::optional<Bytes> bytes;                    // kTensor
  const mind_ir::TensorProto* tensor = nullptr;  // likewise; of the model
  std::vector<MindIrAbstract> elements;
};
MindIrAbstract AbstractOf(const mind_ir::NodeProto& node);
MindIrAbstract AbstractOfValue(const mind_ir::AttributeProto& attribute);
MindIrAbstract AbstractOfInput(const mind_ir::ValueInfoProto& info);

// What a node runs.
struct MindIrCall {
  const mind_ir::NodeProto* node = nullptr;
  const mind_ir::PrimitiveProto* primitive = nullptr;  // nullptr: a file of 1.x
  std::string type;
};
// FLOPs; 0: not known. The first two inputs and the result, nullptr where they are no tensors.
double MindIrFlops(const MindIrCall& call, const mind_ir::TensorProto* a,
                   const mind_ir::TensorProto* b, const mind_ir::TensorProto* output);

// How ops treat memory, by type.
bool PassesOn(const std::string& type);      // Load, Depend, Return: yields its first input
bool IsMindIrView(const std::string& type);  // yields its first input's bytes in another shape
bool ReadsNoData(const std::string& type);   // asks for shapes alone
bool IsCheapAndPureMindIr(const std::string& type);
// Positions of inputs that it writes; empty: none.
const std::vector<std::size_t>& WrittenInputs(const std::string& type);
TensorKind ParameterKind(const std::string& name);

}  // namespace hmm::graph
