// SPDX-License-Identifier: Apache-2.0
//
// From an order of ops to lives: when each storage must have its bytes, what that adds up to, and
// the gaps in which it need not be in HBM. Pure; O(n + accesses), plus a sort of the lives.
//
//   position   0    1    2    3    4          curve: sum of the lives that span a position, plus
//   A         [W    .    .    R]              workspace; peak: its maximum (exact)
//   Wgt        R    .    .    R    .          own: what the op there touches; floor: its maximum
//   gaps: A (0,3); Wgt (0,3) and, being persistent, (3, next step's 0)
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "plan/graph.h"
#include "plan/plan.h"

namespace hmm::plan {

// INVALID_ARGUMENT naming the op or storage: an index out of range, lists not sorted and unique, a
// size of 0, a duration that is no number, a read before any write, a dependency that points
// forward.
absl::Status CheckGraph(const Graph& graph);

// Whether a group's members may lie in DDR with k of them fetched at each use: all persistent, not
// pinned, in no other group and touched by no op directly; and room for k takes less than all do.
std::vector<bool> OffloadableGroups(const Graph& graph);

// What runs at one position: an op, or an op again to make `remakes` anew.
struct ExecStep {
  OpIndex op = 0;
  StorageIndex remakes = kNone;
};
struct Order {
  std::vector<ExecStep> steps;
  std::vector<bool> offloaded;  // one per group; an op of another group reads all its members
};
Order GivenOrder(const Graph& graph);

struct Access {
  std::uint32_t position = 0;
  bool write = false;
};
// One stay of a storage's bytes: the whole of it, or a part between recomputations.
struct Life {
  StorageIndex storage = 0;
  Bytes bytes = 0;
  std::uint32_t access_begin = 0;  // into Lifetimes::accesses, ascending positions
  std::uint32_t access_end = 0;
  bool at_start = false;  // there before position 0
  bool at_end = false;    // needed after the last position
  bool cyclic = false;    // persistent: at_end and the next step's at_start are the same bytes
  bool fixed = false;     // pinned
  bool remade = false;    // a later life makes the bytes anew
  bool clean = false;     // cyclic and never written: the copy below is always valid
};
struct Use {
  std::uint32_t life = 0;
  bool write = false;
};

struct Lifetimes {
  std::uint32_t positions = 0;
  std::vector<Life> lives;  // sorted by their accesses and sizes, so that names and input order
                            // of storages do not matter
  std::vector<Access> accesses;
  std::vector<std::uint32_t> use_begin;  // uses of position p: uses[use_begin[p] .. use_begin[p+1])
  std::vector<Use> uses;
  std::vector<std::uint32_t> dep_begin;  // positions on other streams that p must follow
  std::vector<std::uint32_t> deps;
  std::vector<Bytes> scratch;  // workspace and slots of offloaded groups
  std::vector<Bytes> own;
  std::vector<Bytes> curve;
  Bytes peak_bytes = 0;
  std::uint32_t peak_position = 0;
  Bytes floor_bytes = 0;
  std::uint32_t floor_position = 0;
};
// REQUIRES: CheckGraph(graph) is OK and `order` is an order of its ops.
Lifetimes ComputeLifetimes(const Graph& graph, const Order& order);

// Bytes of HBM that k fetched members of the group take.
Bytes GroupSlotBytes(const Graph& graph, std::uint32_t group);

enum class GapKind : std::uint8_t {
  kInner,  // absent at (from, to)
  kHead,   // an input: absent at [0, to)
  kTail,   // an output: absent at (from, n), never brought back
  kWrap,   // cyclic: absent at (from, n) and [0, to)
  kAll,    // at start or end, and never touched: absent throughout
};
struct Gap {
  std::uint32_t life = 0;
  GapKind kind = GapKind::kInner;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t last_write = kNone;  // latest write at or before `from`; kNone: none in this step
};
// Every gap with at least one position in it, by life and then by time.
std::vector<Gap> FindGaps(const Lifetimes& lifetimes);

}  // namespace hmm::plan
