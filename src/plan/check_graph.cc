// SPDX-License-Identifier: Apache-2.0
//
// What must hold of a graph before anything is computed from it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "plan/lifetimes.h"

namespace hmm::plan {
namespace {

constexpr std::uint32_t kStreamsMax = 64;

absl::Status Bad(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument, what);
}

template <typename Index>
bool SortedBelow(const std::vector<Index>& list, std::size_t limit) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] >= limit || (i > 0 && list[i] <= list[i - 1])) return false;
  }
  return true;
}

absl::Status CheckStorages(const Graph& graph) {
  Bytes sum = 0;
  for (const Storage& storage : graph.storages) {
    if (storage.bytes == 0) return Bad(absl::StrCat("storage ", storage.name, ": size 0"));
    // Sums of sizes are formed everywhere; half the range leaves room for workspace and slots.
    if (storage.bytes > std::numeric_limits<Bytes>::max() / 4 - sum) {
      return Bad(absl::StrCat("storage ", storage.name, ": the sizes add up beyond 2^62 bytes"));
    }
    sum += storage.bytes;
  }
  for (const DataDependentGroup& group : graph.groups) {
    Bytes largest = 0;
    for (const StorageIndex s : group.members) {
      if (s < graph.storages.size()) largest = std::max(largest, graph.storages[s].bytes);
    }
    if (group.k > 0 && largest > std::numeric_limits<Bytes>::max() / 8 / group.k) {
      return Bad(absl::StrCat("group ", group.name, ": k members are beyond 2^61 bytes"));
    }
    if (!SortedBelow(group.members, graph.storages.size()) || group.k > group.members.size()) {
      return Bad(
          absl::StrCat("group ", group.name, ": members unsorted, unknown, or fewer than k"));
    }
    for (const StorageIndex s : group.members) {
      if (!graph.storages[s].persistent) {
        return Bad(
            absl::StrCat("group ", group.name, ": ", graph.storages[s].name, " is not persistent"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOp(const Graph& graph, OpIndex index) {
  const Op& op = graph.ops[index];
  const auto bad = [&](const char* what) { return Bad(absl::StrCat("op ", op.name, what)); };
  if (!SortedBelow(op.reads, graph.storages.size())) return bad(": reads unsorted or unknown");
  if (!SortedBelow(op.writes, graph.storages.size())) return bad(": writes unsorted or unknown");
  for (const OpIndex before : op.after) {
    if (before >= index) return bad(": follows itself or a later op");
  }
  if (op.group.has_value() && *op.group >= graph.groups.size()) return bad(": unknown group");
  if (!std::isfinite(op.microseconds) || op.microseconds < 0 || op.microseconds > 1e15) {
    return bad(": duration is no time");
  }
  if (op.workspace > std::numeric_limits<Bytes>::max() / 8) return bad(": workspace out of range");
  if (op.stream >= kStreamsMax) return bad(": stream out of range");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckGraph(const Graph& graph) {
  if (graph.ops.size() >= kNone / 8 || graph.storages.size() >= kNone / 8) {
    return Bad("the graph is too large");
  }
  HMM_RETURN_IF_ERROR(CheckStorages(graph));
  std::vector<bool> there(graph.storages.size());
  for (std::size_t s = 0; s < there.size(); ++s) {
    there[s] = graph.storages[s].persistent || graph.storages[s].input;
  }
  for (OpIndex index = 0; index < graph.ops.size(); ++index) {
    HMM_RETURN_IF_ERROR(CheckOp(graph, index));
    const Op& op = graph.ops[index];
    for (const StorageIndex s : op.reads) {
      if (!there[s]) {
        return Bad(absl::StrCat("op ", op.name, ": reads ", graph.storages[s].name,
                                " before anything writes it"));
      }
    }
    for (const StorageIndex s : op.writes) there[s] = true;
  }
  return absl::OkStatus();
}

}  // namespace hmm::plan
