// SPDX-License-Identifier: Apache-2.0
//
// The layout problem as the solver sees it: blocks over sections. Internal to the layout. A value;
// may be read from any thread.
//
// Time is cut into sections, and only those are kept whose set of live intervals is in no
// neighbour's: what fits there fits everywhere. Bytes become units, the largest number of bytes
// that divides all sizes (after rounding up to the alignment) and all alignments.
//
//   time      0   1   2   3   4   5              section 0: A B   section 1: B C
//   A         [---------)                        (time 0: A alone, and time 4: C alone, are
//   B             [-----------)                  not kept)
//   C                     [-------)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/layout.h"

namespace hmm::plan::internal {

using Units = std::int64_t;        // an offset or size in Packing::unit
using BlockIndex = std::uint32_t;  // into Packing::blocks
using Section = std::uint32_t;

// Sections [first, last).
struct Span {
  Section first = 0;
  Section last = 0;

  bool operator==(const Span&) const = default;
};

struct Block {
  Span hull;               // from its first to its last section
  std::vector<Span> runs;  // ascending; more than one if the interval has gaps
  Units size = 0;          // rounded up
  Units limit = 0;         // highest offset at which its bytes still end within the capacity
  Units alignment = 1;
  BlockIndex twin = 0;  // the first block that is alike in all of the above
  Bytes bytes = 0;      // not rounded
  std::uint32_t interval = 0;
};

struct Packing {
  // In an order that depends on what the intervals are, not on the order they came in.
  std::vector<Block> blocks;
  Section sections = 0;
  Units capacity = 0;
  Bytes unit = 1;
  // Capacity, sizes and alignments are such that blocks which live throughout may change places
  // with all above them.
  bool stackable = true;
};

struct Peak {
  Bytes bytes = 0;
  std::int64_t time = 0;
};

// What must fit at the worst time: live bytes, each interval but one rounded up to the smallest
// alignment.
Peak FindPeak(const LayoutProblem& problem);

// REQUIRES: CheckLayoutProblem(problem).ok(), capacity >= every interval's bytes.
Packing MakePacking(const LayoutProblem& problem, Bytes capacity);

// Whether two blocks are in a section together.
bool Meet(const Block& a, const Block& b);

// Offsets in the order of problem.intervals.
std::vector<Bytes> ToOffsets(const Packing& packing, const std::vector<Units>& placed);

}  // namespace hmm::plan::internal
