// SPDX-License-Identifier: Apache-2.0
//
// One step of a model as the planner sees it: ops in order, the storages they read and write, sizes
// and times. A value: importers (src/graph) make it, every stage of the planner takes it const.
//
//   op      0      1      2      3              a storage is what has bytes; views and in-place
//   A      [W------R]                           results of it are names in `aliases`, not storages
//   B             [W-------------R]
//   Wgt     R............................R      persistent: lives across steps, its last use wraps
//   to
//                                               its first use of the next step
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/units.h"

namespace hmm::plan {

using OpIndex = std::uint32_t;  // position in execution order
using StorageIndex = std::uint32_t;

struct Storage {
  std::string name;                  // of the tensor that made it; unique in the graph
  std::vector<std::string> aliases;  // further names of the same bytes
  Bytes bytes = 0;                   // > 0
  TensorKind kind = TensorKind::kActivation;
  // Lives across steps (weights, optimizer states, KV cache): present before op 0 and after the
  // last.
  bool persistent = false;
  // Produced outside and only there from the start (graph inputs), or read outside after the last
  // op (graph outputs). Persistent storages are both.
  bool input = false;
  bool output = false;
  bool pinned = false;  // never moved (the caller needs it in HBM throughout)
  // The planner may make it anew instead of bringing it back: its producer is pure and cheap. 0
  // time: not known. Set by importers where the producing op alone suffices.
  bool recomputable = false;
};

// A read whose target only the data decides (an expert of an MoE layer): `k` of the group's members
// are read. Room for k is reserved; the fetch follows the router and is never counted as hidden.
struct DataDependentGroup {
  std::string name;
  std::vector<StorageIndex> members;
  std::uint32_t k = 0;
};

struct Op {
  std::string name;                  // unique in the graph
  std::string type;                  // "MatMul"
  std::vector<StorageIndex> reads;   // sorted, unique
  std::vector<StorageIndex> writes;  // sorted, unique; an in-place op has it in both
  std::vector<OpIndex> after;  // dependencies not visible in reads and writes; all < own index
  std::optional<std::uint32_t> group;  // index into Graph::groups read by this op
  Bytes workspace = 0;                 // needed in HBM while it runs
  double microseconds = 0;             // >= 0
  double flops = 0;                    // for the roofline; 0: unknown
  std::uint32_t stream = 0;            // compute streams run side by side; 0 is the main one
};

struct Graph {
  std::string name;
  std::vector<Op> ops;  // a valid topological order
  std::vector<Storage> storages;
  std::vector<DataDependentGroup> groups;
  // Tensors whose size could not be told, by name: counted in no total, and said so in every
  // report.
  std::vector<std::string> unknown;
};

}  // namespace hmm::plan
