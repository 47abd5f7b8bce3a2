// SPDX-License-Identifier: Apache-2.0
//
// Internal to the ONNX importer: which values of a graph are the same bytes, and what they are.
//
//   x --Relu--> y --Reshape--> z --Add--> w      {x, y, z, w} one storage, when nobody else reads
//   past --Concat / ScatterND ...--> present     them later and sizes are equal
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "base/units.h"
#include "graph/onnx_facts.h"

namespace hmm::graph {

inline constexpr std::size_t kNoPosition = std::numeric_limits<std::size_t>::max();

// A value of the graph or of one around it that the graph reads.
struct Value {
  std::string name;
  std::optional<Bytes> bytes;
  std::size_t made_at = kNoPosition;  // position in Scope::order of its node
  bool input = false;
  bool output = false;
  bool weight = false;
  bool kv_cache = false;
};

// What all values with one root have in common.
struct Group {
  std::size_t first_write = kNoPosition;
  std::size_t last_read = 0;
  bool read = false;
  bool from_outside = false;  // holds an input or a weight
  bool output = false;
};

class Aliases {
 public:
  // `main`: past and present are looked for, graph inputs may be weights.
  Aliases(const Scope& scope, bool main);

  const std::vector<Value>& values() const { return values_; }
  // Index of a value of this graph; kNoPosition: none (of a graph around, or empty).
  std::size_t IndexOf(const std::string& name) const;
  // The value whose bytes these are.
  std::size_t Root(std::size_t value) const;
  // KV cache that a step updates in its place.
  bool Persistent(std::size_t root) const { return persistent_[root]; }
  // Names that the node at `position` of the order reads: inputs, and what its subgraphs capture.
  std::vector<std::string> Reads(std::size_t position) const;

 private:
  std::size_t Add(const std::string& name);
  void AddValues(bool main);
  void MarkConstants();
  void JoinViews();
  void JoinInPlace();
  void JoinCaches();
  void JoinCache(std::size_t past, std::size_t present);
  bool MayTake(std::size_t position, std::size_t from, std::size_t to) const;
  void Join(std::size_t root, std::size_t into);
  const onnx::NodeProto& Node(std::size_t position) const {
    return scope_.graph->node(scope_.order[position]);
  }

  const Scope& scope_;
  std::vector<Value> values_;
  absl::flat_hash_map<std::string, std::size_t> index_;
  mutable std::vector<std::size_t> root_;
  std::vector<Group> groups_;  // by root
  std::vector<bool> persistent_;
};

}  // namespace hmm::graph
