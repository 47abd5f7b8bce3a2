// SPDX-License-Identifier: Apache-2.0
//
// A planner's graph as nodes over named values, the form that ONNX and MindIR share: how graphs
// without a model behind them (generated, recorded) are written in those formats.
//
//   storages  x (given), y      values   x      y      y~1        each write makes a new value
//   op a      reads x, writes y          a: x -> y
//   op b      reads and writes y         b: y -> y~1, which takes the bytes of input 0
//
// What the formats have no place for (kinds, durations, groups, order beside data) travels beside
// the nodes as `facts`: an hmm.v1.Graph without what the nodes say, base64. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "plan/graph.h"

namespace hmm::graph {

// Key of the facts among a model's metadata.
inline constexpr char kFactsKey[] = "hmm.graph";
// Domain of the nodes in ONNX; an op without a type has kNoType.
inline constexpr char kStructureDomain[] = "hmm.graph";
inline constexpr char kNoType[] = "_";
// Attributes of a node: how many of its inputs it reads (the rest are overwritten, or members of a
// group of which some are read), and for each output whose bytes it takes.
inline constexpr char kReadsAttribute[] = "hmm_reads";
inline constexpr char kBytesOfAttribute[] = "hmm_bytes_of";
inline constexpr std::int64_t kNewBytes = -1;  // of its own
inline constexpr std::int64_t kNoBytes = -2;   // a sign that the op ran, where it writes nothing

struct StructureValue {
  std::string name;
  Bytes bytes = 0;
  plan::StorageIndex storage = 0;
};

struct StructureNode {
  std::string name;
  std::string type;
  std::vector<std::string> inputs;
  std::uint32_t reads = 0;
  std::vector<std::string> outputs;
  std::vector<Bytes> output_bytes;     // 0: a sign
  std::vector<std::int64_t> bytes_of;  // an index into inputs, or one of the two above
};

struct Structure {
  std::string name;
  std::vector<StructureValue> weights;  // persistent
  std::vector<StructureValue> inputs;   // given for the step
  std::vector<StructureNode> nodes;     // one an op
  std::vector<StructureValue> outputs;
  std::string facts;
};

// INVALID_ARGUMENT/BAD_GRAPH if no reader would take the graph back.
absl::StatusOr<Structure> StructureOf(const plan::Graph& graph);

// The graph again. The name, weights, inputs and nodes are looked at, outputs are not.
// `storage_of`, if given, is filled with the storage of each value. INVALID_ARGUMENT/BAD_GRAPH
// naming `file`.
absl::StatusOr<plan::Graph> GraphOfStructure(
    const Structure& structure, const std::string& file,
    absl::flat_hash_map<std::string, plan::StorageIndex>* storage_of);

}  // namespace hmm::graph
