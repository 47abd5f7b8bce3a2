// SPDX-License-Identifier: Apache-2.0
//
// The exact search of the layout: finds offsets within the packing's capacity or proves that there
// are none. Internal to the layout. Not shared between threads.
//
// Each section has a floor: no block still to be placed starts below it. The search takes a section
// whose floor is lower than around it, and asks what lies on the floor there: one of the blocks
// that fit into the valley, or nothing, and then the floor rises to the next height at which
// something could rest.
//
//   floor       ___                A valley: what lies on its floor in section s must fit between
//    ___       |   |_ _            the walls, for no section of it may be higher. So nothing is
//   |   |___ __|       |           ever left open below a block, and the state is just the floors
//   +-------^----------+ section   and the blocks left.
//           s
//
// Kept small by:
//   bounds     floor plus what is still to come in a section must not exceed the capacity; a floor
//              rises to the lowest offset any of the section's blocks can take
//   parts      where no block left crosses a border between sections, the two sides are separate
//   stacking   a block that lives throughout its part goes to the top of it
//   twins      of blocks that are alike one is tried
//   resting    "nothing on the floor" is worth trying only if something can keep the blocks up
//   memory     blocks left and floors that have failed, in 128-bit hashes of the blocks; any state
//              with the same blocks and no lower floors fails too. Kept across restarts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/layout_packing.h"

namespace hmm::plan::internal {

// Which valley is decided first.
enum class Selection {
  kFewestThenTightest,  // fewest possibilities, then least room to spare
  kFewestThenLowest,    // fewest possibilities, then lowest floor
  kLowest,              // lowest floor, then fewest possibilities
  kTightest,            // least room to spare, then fewest possibilities
};
inline constexpr Selection kSelections[] = {Selection::kFewestThenTightest,
                                            Selection::kFewestThenLowest, Selection::kLowest,
                                            Selection::kTightest};

class LayoutSearch {
 public:
  enum class Outcome {
    kFound,  // offsets() are within the capacity
    kNone,   // proved that there are none
    kSpent,  // nodes or steps ran out
  };

  // `packing` must outlive it.
  explicit LayoutSearch(const Packing& packing);

  // From the start, trying blocks in the order of `order`; what earlier runs learned is kept.
  Outcome Run(const std::vector<BlockIndex>& order, Selection selection, std::uint64_t nodes_max,
              std::uint64_t steps_max);

  const std::vector<Units>& offsets() const { return offsets_; }
  // Of all runs: nodes, plus one for each 1024 (block, section) pairs looked at.
  std::uint64_t steps() const { return nodes_ + cells_ / 1024; }

 private:
  // What a node may try in place of a block: nothing lies on the floor there.
  static constexpr BlockIndex kRaise = 0xffffffff;

  // blocks_[begin, end).
  struct Part {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };

  struct Key {
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const { return key.a; }
  };

  // A node: a part with its floors, and how far its possibilities have been tried.
  struct Node {
    Part part;
    Section first = 0;  // sections of the part
    Section last = 0;
    Units capacity = 0;       // its blocks must end at or below it
    std::size_t decided = 0;  // length of trail_ once its floors were raised
    std::size_t choices = 0;  // its possibilities begin here in choices_
    std::size_t next = 0;     // the one to try next
    std::size_t parts = 0;    // the parts that the present one leaves begin here in parts_
    std::size_t part_next = 0;
    Units below = 0;      // capacity of those parts
    bool on_top = false;  // its one possibility is a block on top of the part
    Section section = 0;  // else: what is decided is what lies in this section
    Units floor = 0;      // on this floor
    Units raised = 0;     // which kRaise raises to this
    Key key = {};         // for what has failed
  };

  // Headrooms (capacity less floor, by section) that were not enough, one after the other.
  struct Failures {
    std::vector<Units> rooms;
    std::size_t oldest = 0;
  };

  Outcome Solve(Part whole, std::uint64_t nodes_max, std::uint64_t steps_max);
  void Push(Part part, Units capacity);
  void Pop();

  bool Enter(Node& node);  // false: it has no solution
  bool EnterStack(Node& node);
  bool RaiseFloors(const Node& node);
  void CountCandidates(const Node& node);
  void SelectSection(Node& node) const;
  void ListChoices(Node& node);
  Units RaisedFloor(const Node& node);

  bool TryNext(Node& node);  // false: nothing is left to try
  void Put(BlockIndex index, Units offset, bool on_floor);
  void Split(Part part);
  void SetSection(Section section, Units floor, Units rest);
  void Undo(std::size_t length);

  Key KeyOf(const Part& part) const;
  bool KnownToFail(const Node& node) const;
  void Remember(const Node& node);

  const Packing& packing_;
  Selection selection_ = Selection::kFewestThenTightest;
  std::vector<std::uint32_t> rank_;  // by block: the lower, the sooner it is tried
  std::vector<Key> names_;           // by block: random, for hashing
  std::vector<Units> offsets_;       // by block; of those placed

  // The state. A part's blocks are a range of blocks_, and the nodes below it rearrange only that
  // range. Every change of floor_ and rest_ is on the trail.
  struct Change {
    Section section;
    Units floor;
    Units rest;
  };
  std::vector<BlockIndex> blocks_;
  std::vector<Units> floor_;  // by section
  std::vector<Units> rest_;   // by section: sizes of its blocks still to be placed
  std::vector<Change> trail_;
  std::vector<Node> open_;
  std::vector<BlockIndex> choices_;
  std::vector<Part> parts_;

  // About the node being entered.
  std::vector<Units> lowest_;              // by block: no offset below is possible
  std::vector<Units> section_lowest_;      // the same for all blocks of a section
  std::vector<std::uint32_t> candidates_;  // by section: blocks that can lie on its floor
  std::vector<Units> next_floor_;          // by section: at least this if none does
  std::vector<char> valley_;               // by section: no candidate reaches over a lower floor
  Units smallest_ = 0;                     // size of any block

  // Of Split.
  std::vector<std::int32_t> crossing_;
  std::vector<std::uint32_t> part_of_;
  std::vector<BlockIndex> sorted_;

  std::unordered_map<Key, Failures, KeyHash> failures_;
  std::size_t failure_bytes_ = 0;
  std::uint64_t nodes_ = 0;
  std::uint64_t cells_ = 0;
};

}  // namespace hmm::plan::internal
