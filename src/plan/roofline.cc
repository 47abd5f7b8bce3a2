// SPDX-License-Identifier: Apache-2.0
#include "plan/roofline.h"

#include <algorithm>

namespace hmm::plan {

double OpTrafficBytes(const Graph& graph, const Op& op) {
  double bytes = 0;
  for (const StorageIndex s : op.reads) bytes += static_cast<double>(graph.storages[s].bytes);
  for (const StorageIndex s : op.writes) bytes += static_cast<double>(graph.storages[s].bytes);
  if (op.group.has_value()) {
    const DataDependentGroup& group = graph.groups[*op.group];
    double members = 0;
    for (const StorageIndex s : group.members) {
      members += static_cast<double>(graph.storages[s].bytes);
    }
    if (!group.members.empty()) {
      bytes += members / static_cast<double>(group.members.size()) * group.k;
    }
  }
  return bytes;
}

double RooflineUs(const Graph& graph, const Op& op, const Machine& machine) {
  const double compute = machine.flops_per_us > 0 ? op.flops / machine.flops_per_us : 0;
  const double memory =
      machine.hbm_bytes_per_us > 0 ? OpTrafficBytes(graph, op) / machine.hbm_bytes_per_us : 0;
  return std::max(compute, memory) + machine.launch_us;
}

std::size_t FillDurations(Graph& graph, const Machine& machine) {
  std::size_t filled = 0;
  for (Op& op : graph.ops) {
    if (op.microseconds > 0) continue;
    op.microseconds = RooflineUs(graph, op, machine);
    ++filled;
  }
  return filled;
}

}  // namespace hmm::plan
