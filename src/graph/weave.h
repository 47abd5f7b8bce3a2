// SPDX-License-Identifier: Apache-2.0
//
// A plan's moves as nodes among the nodes of its graph: what both annotated formats (export.h)
// share. Pure.
//
//   plan     op a -> y    SwapOut y    op b ...    SwapIn y    op c reads y
//   nodes    a -> y    out(y) -> y'    b ...    after(y', b) -> y''    in(y'') -> z    c reads z
//
// A move makes a new name for the bytes, and whoever reads them later reads that name; so data
// alone carries the order. Where a task of the plan waits for another that no data leads from,
// "after" passes one of its inputs on and takes something of the other besides. That a channel (a
// stream, a direction of a link) runs its tasks one after another is said in the same way. What has
// no input stands at its place in the list, which is that of the plan's sequence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "plan/graph.h"
#include "plan/plan.h"

namespace hmm::graph {

// A node of the model: an op of the graph, or what only passes values on.
struct WeaveNode {
  std::vector<std::string> inputs;   // values that it reads; empty names are left alone
  std::vector<std::string> outputs;  // the first names what the node yields
  plan::OpIndex op = plan::kNone;
};

struct WeaveModel {
  // What ops need of each other stands before them, but for what passes on.
  std::vector<WeaveNode> nodes;
  // The storages that a value is, or (a tuple) consists of. A value without a node is there at
  // start.
  absl::flat_hash_map<std::string, std::vector<plan::StorageIndex>> holds;
};

struct WovenNode {
  enum class Kind : std::uint8_t {
    kNode,   // a node of the model, with other inputs
    kCopy,   // it again, with other outputs: a view of bytes that came back, or a recomputation
    kMove,   // a SwapOut, SwapIn or Drop of inputs[0]
    kAfter,  // passes inputs[0] on, and waits for what makes inputs[1]
  };
  Kind kind = Kind::kNode;
  std::uint32_t node = plan::kNone;  // kNode, kCopy: index into WeaveModel::nodes
  std::uint32_t move = plan::kNone;  // kMove, and kCopy of a recomputation: index into Plan::moves
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
};

struct Woven {
  std::vector<WovenNode> nodes;
  // Tasks that their place alone orders, for they have no input that could.
  std::size_t unordered = 0;
};

// Names that are made here begin like this; a model's own must not. kPartPrefix: nodes that the
// caller adds to take a tuple apart, which are taken out again as ours are.
inline constexpr char kWovenPrefix[] = "hmm.";
inline constexpr char kPartPrefix[] = "hmm.part/";

// FAILED_PRECONDITION/BAD_GRAPH: the plan is infeasible; it moves what the model's nodes do not
// show (weights inside an If or a called graph); a name begins with kWovenPrefix. REQUIRES:
// plan::Validate finds no fault.
absl::StatusOr<Woven> Weave(const plan::Graph& graph, const plan::Plan& plan,
                            const WeaveModel& model);

// What a name made by Weave stands for: the value of the model whose bytes these are, or empty if
// the name is not one of Weave's but for what it passes on (then its first input says).
struct WovenName {
  bool woven = false;
  std::string value;  // of a copy
};
WovenName ParseWovenName(const std::string& name);

// Whether Weave made the name, for models that do not say that moves are in them: a model may have
// other names that begin with kWovenPrefix.
bool IsWovenName(const std::string& name);

}  // namespace hmm::graph
