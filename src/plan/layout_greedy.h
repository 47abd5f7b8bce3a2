// SPDX-License-Identifier: Apache-2.0
//
// The quick heuristics of the layout: blocks one after the other, each to the lowest or to the
// tightest place that is free. Enough for the graphs of real models; what the search starts from
// otherwise. Internal to the layout. Pure; may be called from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/layout_packing.h"

namespace hmm::plan::internal {

// What decides which block is first; ties by the next criterion, in the end by index.
enum class BlockOrder {
  kArea,       // size times sections, largest first
  kLoadSize,   // most live bytes in any of its sections first, then size
  kWidth,      // most sections first, then size
  kSize,       // largest first, then most sections
  kLoadWidth,  // most live bytes in any of its sections first, then most sections
};
inline constexpr BlockOrder kBlockOrders[] = {BlockOrder::kArea, BlockOrder::kLoadSize,
                                              BlockOrder::kWidth, BlockOrder::kSize,
                                              BlockOrder::kLoadWidth};

// Blocks in that order. With `noise` > 0 every block's key is first multiplied by a factor from
// [1, 1.3) that is drawn from `noise`: another order of the same kind.
std::vector<BlockIndex> OrderBlocks(const Packing& packing, BlockOrder order, std::uint64_t noise);

// A well mixed 64-bit value (the finaliser of splitmix64).
std::uint64_t Mix(std::uint64_t x);

struct Placement {
  std::vector<Units> offsets;  // by block
  Bytes high_water = 0;
};

// Of all intervals at these offsets.
Bytes HighWater(const Packing& packing, const std::vector<Units>& offsets);

// Moves every block down as far as those below allow. High water does not rise.
// REQUIRES: no two blocks that meet overlap.
void Settle(const Packing& packing, std::vector<Units>& offsets);

// The lowest of several heuristics; stops early once one is at or below `enough`. Counts work into
// `steps` and starts no further heuristic once `steps_max` is passed; the first always runs.
Placement PlaceGreedily(const Packing& packing, Bytes enough, std::uint64_t steps_max,
                        std::uint64_t& steps);

}  // namespace hmm::plan::internal
