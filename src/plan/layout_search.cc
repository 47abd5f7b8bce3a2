// SPDX-License-Identifier: Apache-2.0
//
// Why the search misses nothing. Take any solution of a part and let its blocks sink, each as far
// as it goes. In a section s on the floor F of a valley, then either some block lies at F, and it
// is one of those whose lowest offset is F; all its sections have the floor F, or one of them would
// be outside of the valley. Or the first block above F in s, had it not been kept up, would lie
// there too: so another one that is not in s lies under it, whose top bounds the floor from below.
#include "plan/layout_search.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "plan/layout_greedy.h"

namespace hmm::plan::internal {
namespace {

constexpr Units kNever = std::numeric_limits<Units>::max();
constexpr std::size_t kFailuresPerKey = 4;
constexpr std::size_t kFailureBytesMax = std::size_t{64} << 20;  // then all are forgotten

Units AlignUp(Units offset, Units alignment) {
  return alignment == 1 ? offset : (offset + alignment - 1) / alignment * alignment;
}

bool Covers(const Block& block, Section section) {
  return std::any_of(block.runs.begin(), block.runs.end(), [section](const Span& run) {
    return run.first <= section && section < run.last;
  });
}

}  // namespace

LayoutSearch::LayoutSearch(const Packing& packing)
    : packing_(packing),
      rank_(packing.blocks.size()),
      names_(packing.blocks.size()),
      offsets_(packing.blocks.size()),
      blocks_(packing.blocks.size()),
      floor_(packing.sections, 0),
      rest_(packing.sections, 0),
      lowest_(packing.blocks.size()),
      section_lowest_(packing.sections),
      candidates_(packing.sections),
      next_floor_(packing.sections),
      valley_(packing.sections),
      crossing_(packing.sections + 1),
      part_of_(packing.sections),
      sorted_(packing.blocks.size()) {
  for (BlockIndex i = 0; i < packing.blocks.size(); ++i) {
    names_[i] = {.a = Mix(2 * std::uint64_t{i}), .b = Mix(2 * std::uint64_t{i} + 1)};
    for (const Span& run : packing.blocks[i].runs) {
      for (Section s = run.first; s < run.last; ++s) rest_[s] += packing.blocks[i].size;
    }
  }
}

LayoutSearch::Outcome LayoutSearch::Run(const std::vector<BlockIndex>& order, Selection selection,
                                        std::uint64_t nodes_max, std::uint64_t steps_max) {
  selection_ = selection;
  for (std::uint32_t i = 0; i < order.size(); ++i) rank_[order[i]] = i;
  std::iota(blocks_.begin(), blocks_.end(), 0);
  parts_.clear();
  Split({.begin = 0, .end = static_cast<std::uint32_t>(blocks_.size())});
  const std::vector<Part> wholes = parts_;

  const std::uint64_t nodes_end = nodes_ + nodes_max;
  Outcome outcome = Outcome::kFound;
  for (const Part& whole : wholes) {
    outcome = Solve(whole, nodes_end, steps_max);
    if (outcome != Outcome::kFound) break;
  }
  open_.clear();
  choices_.clear();
  Undo(0);
  return outcome;
}

LayoutSearch::Outcome LayoutSearch::Solve(Part whole, std::uint64_t nodes_max,
                                          std::uint64_t steps_max) {
  Push(whole, packing_.capacity);
  bool entering = true;  // the last of open_; else a node above it was closed, and `solved` or not
  bool solved = false;
  while (!open_.empty()) {
    Node& node = open_.back();
    bool trying = true;
    if (entering) {
      if (nodes_ >= nodes_max || steps() >= steps_max) return Outcome::kSpent;
      ++nodes_;
      if (!Enter(node)) {
        Pop();
        entering = solved = false;
        continue;
      }
      trying = TryNext(node);
    } else if (solved) {
      ++node.part_next;
    } else {
      trying = TryNext(node);
    }
    entering = false;
    if (!trying) {
      Remember(node);
      Pop();
      solved = false;
    } else if (node.part_next == parts_.size()) {
      Pop();
      solved = true;
    } else {
      Push(parts_[node.part_next], node.below);
      entering = true;
    }
  }
  return solved ? Outcome::kFound : Outcome::kNone;
}

void LayoutSearch::Push(Part part, Units capacity) {
  open_.push_back({.part = part,
                   .capacity = capacity,
                   .choices = choices_.size(),
                   .next = choices_.size(),
                   .parts = parts_.size()});
}

void LayoutSearch::Pop() {
  choices_.resize(open_.back().choices);
  parts_.resize(open_.back().parts);
  open_.pop_back();
}

// Entering a node.

bool LayoutSearch::Enter(Node& node) {
  node.first = packing_.sections;
  node.last = 0;
  for (std::uint32_t i = node.part.begin; i < node.part.end; ++i) {
    const Block& block = packing_.blocks[blocks_[i]];
    node.first = std::min(node.first, block.hull.first);
    node.last = std::max(node.last, block.hull.last);
  }
  cells_ += node.part.end - node.part.begin + (node.last - node.first);
  if (EnterStack(node)) return true;
  if (!RaiseFloors(node)) return false;
  node.decided = trail_.size();
  node.key = KeyOf(node.part);
  if (KnownToFail(node)) return false;
  CountCandidates(node);
  SelectSection(node);
  ListChoices(node);
  return true;
}

// What lives throughout may as well lie on top: those above it can all come down by its size.
bool LayoutSearch::EnterStack(Node& node) {
  if (!packing_.stackable) return false;
  for (std::uint32_t i = node.part.begin; i < node.part.end; ++i) {
    const Block& block = packing_.blocks[blocks_[i]];
    if (block.runs.size() > 1 || block.hull != Span{.first = node.first, .last = node.last}) {
      continue;
    }
    node.on_top = true;
    node.decided = trail_.size();
    choices_.push_back(blocks_[i]);
    return true;
  }
  return false;
}

// The lowest offset of each block, and with it the floors. False if something does not fit.
bool LayoutSearch::RaiseFloors(const Node& node) {
  std::fill(section_lowest_.begin() + node.first, section_lowest_.begin() + node.last, kNever);
  smallest_ = kNever;
  for (std::uint32_t i = node.part.begin; i < node.part.end; ++i) {
    const BlockIndex index = blocks_[i];
    const Block& block = packing_.blocks[index];
    Units lowest = 0;
    for (const Span& run : block.runs) {
      for (Section s = run.first; s < run.last; ++s) lowest = std::max(lowest, floor_[s]);
      cells_ += run.last - run.first;
    }
    lowest = AlignUp(lowest, block.alignment);
    if (lowest > block.limit || lowest + block.size > node.capacity) return false;
    lowest_[index] = lowest;
    smallest_ = std::min(smallest_, block.size);
    for (const Span& run : block.runs) {
      for (Section s = run.first; s < run.last; ++s) {
        section_lowest_[s] = std::min(section_lowest_[s], lowest);
      }
    }
  }
  // One pass is enough: a floor rises to what all its blocks have as their lowest, or more.
  for (Section s = node.first; s < node.last; ++s) {
    if (section_lowest_[s] == kNever) continue;  // all that live here have a gap here
    if (section_lowest_[s] + rest_[s] > node.capacity) return false;
    if (section_lowest_[s] > floor_[s]) SetSection(s, section_lowest_[s], rest_[s]);
  }
  return true;
}

void LayoutSearch::CountCandidates(const Node& node) {
  for (Section s = node.first; s < node.last; ++s) {
    candidates_[s] = 0;
    next_floor_[s] = kNever;
    valley_[s] = 1;
  }
  for (std::uint32_t i = node.part.begin; i < node.part.end; ++i) {
    const Block& block = packing_.blocks[blocks_[i]];
    const Units lowest = lowest_[blocks_[i]];
    Units floor = kNever;
    for (const Span& run : block.runs) {
      for (Section s = run.first; s < run.last; ++s) floor = std::min(floor, floor_[s]);
    }
    for (const Span& run : block.runs) {
      for (Section s = run.first; s < run.last; ++s) {
        if (floor_[s] != lowest) {
          next_floor_[s] = std::min(next_floor_[s], lowest);
          continue;
        }
        ++candidates_[s];
        next_floor_[s] = std::min(next_floor_[s], lowest + smallest_);
        if (floor < lowest) valley_[s] = 0;
      }
    }
  }
}

void LayoutSearch::SelectSection(Node& node) const {
  std::pair<Units, Units> best = {kNever, kNever};
  for (Section s = node.first; s < node.last; ++s) {
    if (candidates_[s] == 0 || valley_[s] == 0) continue;
    const bool raisable = next_floor_[s] <= node.capacity - rest_[s];
    const Units count = Units{candidates_[s]} + (raisable ? 1 : 0);
    const Units room = node.capacity - floor_[s] - rest_[s];
    std::pair<Units, Units> cost;
    switch (selection_) {
      case Selection::kFewestThenTightest:
        cost = {count, room};
        break;
      case Selection::kFewestThenLowest:
        cost = {count, floor_[s]};
        break;
      case Selection::kLowest:
        cost = {floor_[s], count};
        break;
      case Selection::kTightest:
        cost = {room, count};
        break;
    }
    if (cost < best) {
      best = cost;
      node.section = s;
    }
  }
}

void LayoutSearch::ListChoices(Node& node) {
  node.floor = floor_[node.section];
  for (std::uint32_t i = node.part.begin; i < node.part.end; ++i) {
    if (lowest_[blocks_[i]] == node.floor && Covers(packing_.blocks[blocks_[i]], node.section)) {
      choices_.push_back(blocks_[i]);
    }
  }
  const auto begin = choices_.begin() + static_cast<std::ptrdiff_t>(node.choices);
  const auto twin = [this](BlockIndex i) { return packing_.blocks[i].twin; };
  std::sort(begin, choices_.end(), [&twin](BlockIndex a, BlockIndex b) {
    return std::pair(twin(a), a) < std::pair(twin(b), b);
  });
  choices_.erase(std::unique(begin, choices_.end(),
                             [&twin](BlockIndex a, BlockIndex b) { return twin(a) == twin(b); }),
                 choices_.end());
  std::sort(begin, choices_.end(),
            [this](BlockIndex a, BlockIndex b) { return rank_[a] < rank_[b]; });
  node.raised = RaisedFloor(node);
  if (node.raised <= node.capacity - rest_[node.section]) choices_.push_back(kRaise);
}

// The next height at which a block can rest in the node's section if none lies on the floor.
Units LayoutSearch::RaisedFloor(const Node& node) {
  Units raised = kNever;
  for (std::uint32_t i = node.part.begin; i < node.part.end; ++i) {
    const Block& block = packing_.blocks[blocks_[i]];
    if (!Covers(block, node.section)) continue;
    if (lowest_[blocks_[i]] > node.floor) {
      raised = std::min(raised, lowest_[blocks_[i]]);
      continue;
    }
    cells_ += node.part.end - node.part.begin;
    for (std::uint32_t j = node.part.begin; j < node.part.end; ++j) {
      const Block& under = packing_.blocks[blocks_[j]];
      const Units lowest = lowest_[blocks_[j]];
      if (lowest < node.floor + block.size && lowest + under.size < raised && Meet(block, under) &&
          !Covers(under, node.section)) {
        raised = lowest + under.size;
      }
    }
  }
  return raised;
}

// Trying its possibilities.

bool LayoutSearch::TryNext(Node& node) {
  Undo(node.decided);
  parts_.resize(node.parts);
  node.part_next = node.parts;
  node.below = node.capacity;
  if (node.next == choices_.size()) return false;
  const BlockIndex choice = choices_[node.next++];
  if (choice == kRaise) {
    SetSection(node.section, node.raised, rest_[node.section]);
    parts_.push_back(node.part);
    return true;
  }
  const auto begin = blocks_.begin() + node.part.begin;
  const auto last = blocks_.begin() + node.part.end - 1;
  std::iter_swap(std::find(begin, last, choice), last);
  if (node.on_top) {
    node.below = node.capacity - packing_.blocks[choice].size;
    for (Section s = node.first; s < node.last; ++s) {
      if (floor_[s] + rest_[s] > node.capacity) return false;
    }
  }
  Put(choice, node.on_top ? node.below : node.floor, !node.on_top);
  Split({.begin = node.part.begin, .end = node.part.end - 1});
  return true;
}

void LayoutSearch::Put(BlockIndex index, Units offset, bool on_floor) {
  const Block& block = packing_.blocks[index];
  offsets_[index] = offset;
  for (const Span& run : block.runs) {
    for (Section s = run.first; s < run.last; ++s) {
      SetSection(s, on_floor ? offset + block.size : floor_[s], rest_[s] - block.size);
    }
  }
}

// Appends to parts_ what falls apart between sections that no block spans, the smallest first.
void LayoutSearch::Split(Part part) {
  if (part.begin == part.end) return;
  Section first = packing_.sections;
  Section last = 0;
  for (std::uint32_t i = part.begin; i < part.end; ++i) {
    const Section begin = packing_.blocks[blocks_[i]].hull.first;
    first = std::min(first, begin);
    last = std::max(last, packing_.blocks[blocks_[i]].hull.last);
  }
  std::fill(crossing_.begin() + first, crossing_.begin() + last + 1, 0);
  for (std::uint32_t i = part.begin; i < part.end; ++i) {
    const Block& block = packing_.blocks[blocks_[i]];
    ++crossing_[block.hull.first + 1];  // crosses the borders in front of these sections
    --crossing_[block.hull.last];
  }
  std::int32_t crossing = 0;
  std::uint32_t count = 1;
  for (Section s = first; s < last; ++s) {
    crossing += crossing_[s];
    if (s > first && crossing == 0) ++count;
    part_of_[s] = count - 1;
  }
  if (count == 1) {
    parts_.push_back(part);
    return;
  }
  const auto of = [this](BlockIndex i) { return part_of_[packing_.blocks[i].hull.first]; };
  const auto begin = blocks_.begin() + part.begin;
  const auto end = blocks_.begin() + part.end;
  std::sort(begin, end, [&of](BlockIndex a, BlockIndex b) {
    return std::pair(of(a), a) < std::pair(of(b), b);
  });
  const auto parts_begin = static_cast<std::ptrdiff_t>(parts_.size());
  for (std::uint32_t i = part.begin; i < part.end; ++i) {
    if (i == part.begin || of(blocks_[i]) != of(blocks_[i - 1])) {
      parts_.push_back({.begin = i, .end = i});
    }
    ++parts_.back().end;
  }
  std::stable_sort(parts_.begin() + parts_begin, parts_.end(),
                   [](const Part& a, const Part& b) { return a.end - a.begin < b.end - b.begin; });
}

void LayoutSearch::SetSection(Section section, Units floor, Units rest) {
  trail_.push_back({.section = section, .floor = floor_[section], .rest = rest_[section]});
  floor_[section] = floor;
  rest_[section] = rest;
}

void LayoutSearch::Undo(std::size_t length) {
  while (trail_.size() > length) {
    const Change& change = trail_.back();
    floor_[change.section] = change.floor;
    rest_[change.section] = change.rest;
    trail_.pop_back();
  }
}

// What has failed.

LayoutSearch::Key LayoutSearch::KeyOf(const Part& part) const {
  Key key;
  for (std::uint32_t i = part.begin; i < part.end; ++i) {
    key.a ^= names_[blocks_[i]].a;
    key.b ^= names_[blocks_[i]].b;
  }
  return key;
}

bool LayoutSearch::KnownToFail(const Node& node) const {
  const auto found = failures_.find(node.key);
  if (found == failures_.end()) return false;
  const std::vector<Units>& rooms = found->second.rooms;
  for (std::size_t at = 0; at < rooms.size(); at += node.last - node.first) {
    Section s = node.first;
    while (s < node.last && node.capacity - floor_[s] <= rooms[at + s - node.first]) ++s;
    if (s == node.last) return true;
  }
  return false;
}

void LayoutSearch::Remember(const Node& node) {
  if (node.on_top) return;
  if (failure_bytes_ > kFailureBytesMax) {
    failures_.clear();
    failure_bytes_ = 0;
  }
  const std::size_t width = node.last - node.first;
  Failures& failures = failures_[node.key];
  std::size_t at = failures.rooms.size();
  if (at < kFailuresPerKey * width) {
    failures.rooms.resize(at + width);
    failure_bytes_ += width * sizeof(Units) + sizeof(Failures) + sizeof(Key) + 2 * sizeof(void*);
  } else {
    at = failures.oldest * width;
    failures.oldest = (failures.oldest + 1) % kFailuresPerKey;
  }
  for (Section s = node.first; s < node.last; ++s) {
    failures.rooms[at + s - node.first] = node.capacity - floor_[s];
  }
}

}  // namespace hmm::plan::internal
