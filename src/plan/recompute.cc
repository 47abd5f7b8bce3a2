// SPDX-License-Identifier: Apache-2.0
#include "plan/recompute.h"

#include <algorithm>

namespace hmm::plan {
namespace {

constexpr std::size_t kAloneMax = 8;

struct Producers {
  std::vector<OpIndex> of;          // by storage: its only writer, kNone: none or several
  std::vector<OpIndex> last_write;  // by storage, kNone: never
};

Producers FindProducers(const Graph& graph) {
  Producers result;
  result.of.assign(graph.storages.size(), kNone);
  result.last_write.assign(graph.storages.size(), kNone);
  std::vector<bool> several(graph.storages.size(), false);
  for (OpIndex op = 0; op < graph.ops.size(); ++op) {
    for (const StorageIndex s : graph.ops[op].writes) {
      several[s] = several[s] || result.of[s] != kNone;
      result.of[s] = result.last_write[s] = op;
    }
  }
  for (StorageIndex s = 0; s < graph.storages.size(); ++s) {
    if (several[s]) result.of[s] = kNone;
  }
  return result;
}

// The op alone makes the storage, from inputs that nothing writes after it.
bool CanRemake(const Graph& graph, const Producers& producers, StorageIndex s) {
  const Storage& storage = graph.storages[s];
  const OpIndex producer = producers.of[s];
  if (!storage.recomputable || storage.persistent || storage.input || producer == kNone) {
    return false;
  }
  const Op& op = graph.ops[producer];
  if (op.writes.size() != 1 || op.group.has_value()) return false;
  return std::all_of(op.reads.begin(), op.reads.end(), [&](StorageIndex read) {
    const OpIndex last = producers.last_write[read];
    return read != s && (last == kNone || last < producer);
  });
}

struct Remake {
  double stall_us;
  StorageIndex storage;
  OpIndex before;  // the use it is made anew for
};

Order With(const Order& order, const Producers& producers, std::vector<Remake> remakes) {
  std::stable_sort(remakes.begin(), remakes.end(),
                   [](const Remake& a, const Remake& b) { return a.before < b.before; });
  Order result;
  result.offloaded = order.offloaded;
  for (const ExecStep& step : order.steps) {
    if (step.remakes == kNone) {
      auto it =
          std::lower_bound(remakes.begin(), remakes.end(), step.op,
                           [](const Remake& remake, OpIndex op) { return remake.before < op; });
      for (; it != remakes.end() && it->before == step.op; ++it) {
        result.steps.push_back({producers.of[it->storage], it->storage});
      }
    }
    result.steps.push_back(step);
  }
  return result;
}

}  // namespace

std::vector<Order> RecomputingOrders(const Graph& graph, const Machine& machine, const Order& order,
                                     const Plan& plan) {
  const Producers producers = FindProducers(graph);
  const Link* out = FindLink(machine, TierKind::kHbm, TierKind::kDdr);
  const Link* in = FindLink(machine, TierKind::kDdr, TierKind::kHbm);
  std::vector<Remake> remakes;
  std::vector<double> out_stall(graph.storages.size(), 0);
  for (const Move& move : plan.moves) {
    if (move.storage == kNone) continue;
    if (move.kind == MoveKind::kSwapOut) out_stall[move.storage] += move.stall_us;
    const bool back = move.kind == MoveKind::kSwapIn && move.to == TierKind::kHbm;
    if (!back || move.before_op == kNone || !CanRemake(graph, producers, move.storage)) continue;
    const double again = graph.ops[producers.of[move.storage]].microseconds;
    const double trip = TransferUs(*out, move.bytes) + TransferUs(*in, move.bytes);
    const double stall = move.stall_us + out_stall[move.storage];
    if (again < trip) remakes.push_back({stall, move.storage, move.before_op});
  }
  std::stable_sort(remakes.begin(), remakes.end(),
                   [](const Remake& a, const Remake& b) { return a.stall_us > b.stall_us; });
  std::vector<Order> result;
  std::vector<Remake> paying;
  for (const Remake& remake : remakes) {
    if (remake.stall_us > graph.ops[producers.of[remake.storage]].microseconds) {
      paying.push_back(remake);
    }
  }
  if (paying.size() > 1) result.push_back(With(order, producers, paying));
  for (std::size_t i = 0; i < std::min(remakes.size(), kAloneMax); ++i) {
    result.push_back(With(order, producers, {remakes[i]}));
  }
  return result;
}

}  // namespace hmm::plan
