// SPDX-License-Identifier: Apache-2.0
#include "plan/reorder.h"

#include <algorithm>

namespace hmm::plan {
namespace {

constexpr std::size_t kStalledMax = 8;   // ops looked at, the most stalled first
constexpr std::uint32_t kAheadMax = 48;  // positions looked ahead of each

bool Meet(const std::vector<StorageIndex>& a, const std::vector<StorageIndex>& b) {
  auto i = a.begin();
  auto j = b.begin();
  while (i != a.end() && j != b.end()) {
    if (*i == *j) return true;
    if (*i < *j) {
      ++i;
    } else {
      ++j;
    }
  }
  return false;
}

// Whether `later` must stay behind `earlier`.
bool Depends(const Graph& graph, OpIndex later, OpIndex earlier) {
  const Op& a = graph.ops[earlier];
  const Op& b = graph.ops[later];
  if (std::find(b.after.begin(), b.after.end(), earlier) != b.after.end()) return true;
  if (Meet(a.writes, b.reads) || Meet(a.writes, b.writes) || Meet(a.reads, b.writes)) return true;
  const auto member = [&graph](const Op& op, const Op& writer) {
    return op.group.has_value() && Meet(graph.groups[*op.group].members, writer.writes);
  };
  return member(b, a) || member(a, b);
}

// The order with the given positions moved, in their order, to just before `to`.
Order Moved(const Order& order, const std::vector<std::uint32_t>& positions, std::uint32_t to) {
  Order result;
  result.offloaded = order.offloaded;
  result.steps.assign(order.steps.begin(), order.steps.begin() + to);
  for (const std::uint32_t p : positions) result.steps.push_back(order.steps[p]);
  for (std::uint32_t p = to; p < order.steps.size(); ++p) {
    if (!std::binary_search(positions.begin(), positions.end(), p)) {
      result.steps.push_back(order.steps[p]);
    }
  }
  return result;
}

// Positions behind `to`, near it, that depend on nothing from `to` to themselves.
std::vector<std::uint32_t> Movable(const Graph& graph, const Order& order, std::uint32_t to) {
  std::vector<std::uint32_t> movable;
  const auto end =
      std::min<std::uint32_t>(static_cast<std::uint32_t>(order.steps.size()), to + 1 + kAheadMax);
  for (std::uint32_t q = to + 1; q < end; ++q) {
    bool free = true;
    for (std::uint32_t p = to; p < q && free; ++p) {
      const bool goes_along = std::binary_search(movable.begin(), movable.end(), p);
      free = goes_along || !Depends(graph, order.steps[q].op, order.steps[p].op);
    }
    if (free) movable.push_back(q);
  }
  return movable;
}

}  // namespace

bool ValidOrder(const Graph& graph, const Order& order) {
  std::vector<bool> done(graph.ops.size(), false);
  std::vector<std::uint32_t> place(graph.ops.size(), kNone);
  std::uint32_t count = 0;
  for (const ExecStep& step : order.steps) {
    if (step.remakes != kNone) continue;
    if (step.op >= graph.ops.size() || done[step.op]) return false;
    for (const OpIndex before : graph.ops[step.op].after) {
      if (!done[before]) return false;
    }
    done[step.op] = true;
    place[step.op] = count++;
  }
  if (count != graph.ops.size()) return false;
  // Writers and readers of a storage keep their given order among each other.
  std::vector<OpIndex> writer(graph.storages.size(), kNone);
  std::vector<std::uint32_t> last_place(graph.storages.size(), 0);
  std::vector<std::uint32_t> write_place(graph.storages.size(), 0);
  for (OpIndex op = 0; op < graph.ops.size(); ++op) {
    const auto reads = [&](StorageIndex s) {
      if (writer[s] != kNone && place[op] < write_place[s]) return false;
      last_place[s] = std::max(last_place[s], place[op]);
      return true;
    };
    for (const StorageIndex s : graph.ops[op].reads) {
      if (!reads(s)) return false;
    }
    if (graph.ops[op].group.has_value()) {
      for (const StorageIndex s : graph.groups[*graph.ops[op].group].members) {
        if (!reads(s)) return false;
      }
    }
    for (const StorageIndex s : graph.ops[op].writes) {
      if (place[op] < last_place[s]) return false;
      if (writer[s] != kNone && place[op] < write_place[s]) return false;
      writer[s] = op;
      write_place[s] = last_place[s] = place[op];
    }
  }
  return true;
}

std::vector<Order> OtherOrders(const Graph& graph, const Order& order, const Assembled& assembled) {
  std::vector<std::pair<double, std::uint32_t>> stalled;  // -time, position
  double end = 0;
  for (std::uint32_t p = 0; p < order.steps.size(); ++p) {
    const double stall = assembled.op_start[p] - end;
    if (stall > 0) stalled.emplace_back(-stall, p);
    end = std::max(end, assembled.op_end[p]);
  }
  std::sort(stalled.begin(), stalled.end());
  if (stalled.size() > kStalledMax) stalled.resize(kStalledMax);
  std::vector<Order> result;
  for (const auto& [stall, p] : stalled) {
    const std::vector<std::uint32_t> movable = Movable(graph, order, p);
    if (movable.empty()) continue;
    // As many as fill the stall, then the first alone.
    std::vector<std::uint32_t> some;
    double filled = 0;
    for (const std::uint32_t q : movable) {
      if (filled >= -stall) break;
      some.push_back(q);
      filled += graph.ops[order.steps[q].op].microseconds;
    }
    for (const auto& set : {some, std::vector<std::uint32_t>{movable.front()}}) {
      Order other = Moved(order, set, p);
      if (ValidOrder(graph, other)) result.push_back(std::move(other));
      if (some.size() <= 1) break;
    }
  }
  return result;
}

}  // namespace hmm::plan
