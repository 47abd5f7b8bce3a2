// SPDX-License-Identifier: Apache-2.0
#include "plan/layout_greedy.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace hmm::plan::internal {
namespace {

enum class Fit { kFirst, kBest };

Section Width(const Block& block) {
  Section width = 0;
  for (const Span& run : block.runs) width += run.last - run.first;
  return width;
}

std::vector<Units> Loads(const Packing& packing) {
  std::vector<Units> loads(packing.sections, 0);
  for (const Block& block : packing.blocks) {
    for (const Span& run : block.runs) {
      for (Section s = run.first; s < run.last; ++s) loads[s] += block.size;
    }
  }
  return loads;
}

Units WorstLoad(const Block& block, const std::vector<Units>& loads) {
  Units worst = 0;
  for (const Span& run : block.runs) {
    for (Section s = run.first; s < run.last; ++s) worst = std::max(worst, loads[s]);
  }
  return worst;
}

// One number for two criteria, so that noise can trade one for the other. Load and size are parts
// of the worst load.
double Key(const Block& block, BlockOrder order, double load, double size) {
  const double width = Width(block);
  switch (order) {
    case BlockOrder::kArea:
      return width * size;
    case BlockOrder::kLoadSize:
      return load * 1e5 + size;
    case BlockOrder::kWidth:
      return width * 1e2 + size;
    case BlockOrder::kSize:
      return size * 1e6 + width;
    case BlockOrder::kLoadWidth:
      return load * 1e8 + width;
  }
  return 0;
}

// Puts blocks down one by one. Those placed are kept in the order of their offsets, so that the
// free places between those that meet a new one come in ascending order.
class Shelf {
 public:
  explicit Shelf(const Packing& packing) : packing_(packing), offsets_(packing.blocks.size(), 0) {}

  void Put(BlockIndex index, Fit fit) {
    const Block& block = packing_.blocks[index];
    Units best = -1;
    Units best_room = std::numeric_limits<Units>::max();
    Units top = 0;  // of those that meet `block` and lie below the place looked at
    for (const BlockIndex other : placed_) {
      const Block& below = packing_.blocks[other];
      if (!Meet(block, below)) continue;
      const Units at = AlignUp(top, block.alignment);
      const Units room = offsets_[other] - at;
      if (room >= block.size && room < best_room) {
        best = at;
        best_room = room;
        if (fit == Fit::kFirst) break;
      }
      top = std::max(top, offsets_[other] + below.size);
    }
    offsets_[index] = best >= 0 ? best : AlignUp(top, block.alignment);
    const auto after = std::upper_bound(
        placed_.begin(), placed_.end(), offsets_[index],
        [this](Units offset, BlockIndex other) { return offset < offsets_[other]; });
    placed_.insert(after, index);
  }

  std::vector<Units> Take() { return std::move(offsets_); }

 private:
  static Units AlignUp(Units offset, Units alignment) {
    return (offset + alignment - 1) / alignment * alignment;
  }

  const Packing& packing_;
  std::vector<Units> offsets_;
  std::vector<BlockIndex> placed_;  // ascending offsets
};

std::vector<Units> PlaceInOrder(const Packing& packing, const std::vector<BlockIndex>& order,
                                Fit fit) {
  Shelf shelf(packing);
  for (const BlockIndex index : order) shelf.Put(index, fit);
  return shelf.Take();
}

std::vector<BlockIndex> InOrderOfStart(const Packing& packing) {
  std::vector<BlockIndex> order(packing.blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&packing](BlockIndex a, BlockIndex b) {
    const Block& x = packing.blocks[a];
    const Block& y = packing.blocks[b];
    return std::pair(x.hull.first, -x.size) < std::pair(y.hull.first, -y.size);
  });
  return order;
}

}  // namespace

std::uint64_t Mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::vector<BlockIndex> OrderBlocks(const Packing& packing, BlockOrder order, std::uint64_t noise) {
  const std::vector<Units> loads = Loads(packing);
  const auto worst = static_cast<double>(
      loads.empty() ? 1 : std::max<Units>(1, *std::max_element(loads.begin(), loads.end())));
  std::vector<double> keys(packing.blocks.size());
  for (BlockIndex i = 0; i < keys.size(); ++i) {
    const Block& block = packing.blocks[i];
    keys[i] = Key(block, order, static_cast<double>(WorstLoad(block, loads)) / worst,
                  static_cast<double>(block.size) / worst);
    if (noise > 0) keys[i] *= 1.0 + 0.3 * static_cast<double>(Mix(noise + i) % 1000) / 1000.0;
  }
  std::vector<BlockIndex> blocks(packing.blocks.size());
  std::iota(blocks.begin(), blocks.end(), 0);
  std::stable_sort(blocks.begin(), blocks.end(),
                   [&keys](BlockIndex a, BlockIndex b) { return keys[a] > keys[b]; });
  return blocks;
}

Bytes HighWater(const Packing& packing, const std::vector<Units>& offsets) {
  Bytes top = 0;
  for (BlockIndex i = 0; i < offsets.size(); ++i) {
    top = std::max(top, static_cast<Bytes>(offsets[i]) * packing.unit + packing.blocks[i].bytes);
  }
  return top;
}

void Settle(const Packing& packing, std::vector<Units>& offsets) {
  std::vector<BlockIndex> order(offsets.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&offsets](BlockIndex a, BlockIndex b) { return offsets[a] < offsets[b]; });
  // Where it was is still free when its turn comes, since all below went down; so first fit puts it
  // there or lower.
  offsets = PlaceInOrder(packing, order, Fit::kFirst);
}

Placement PlaceGreedily(const Packing& packing, Bytes enough, std::uint64_t steps_max,
                        std::uint64_t& steps) {
  const std::uint64_t count = packing.blocks.size();
  Placement best;
  const auto attempt = [&](const std::vector<BlockIndex>& order, Fit fit) {
    if (!best.offsets.empty() && (best.high_water <= enough || steps >= steps_max)) return;
    std::vector<Units> offsets = PlaceInOrder(packing, order, fit);
    steps += 1 + count * count / 2 / 1024;
    const Bytes high_water = HighWater(packing, offsets);
    if (best.offsets.empty() || high_water < best.high_water) {
      best = {.offsets = std::move(offsets), .high_water = high_water};
    }
  };
  attempt(OrderBlocks(packing, BlockOrder::kSize, 0), Fit::kBest);
  attempt(InOrderOfStart(packing), Fit::kBest);
  for (const BlockOrder order : kBlockOrders) {
    attempt(OrderBlocks(packing, order, 0), Fit::kFirst);
    attempt(OrderBlocks(packing, order, 0), Fit::kBest);
  }
  return best;
}

}  // namespace hmm::plan::internal
