// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <algorithm>

namespace hmm::plan {

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFits:
      return "fits";
    case Verdict::kPlanned:
      return "planned";
    case Verdict::kInfeasible:
      return "infeasible";
  }
  return "unknown";
}

std::string_view MoveKindName(MoveKind kind) {
  switch (kind) {
    case MoveKind::kSwapOut:
      return "SwapOut";
    case MoveKind::kSwapIn:
      return "SwapIn";
    case MoveKind::kDrop:
      return "Drop";
    case MoveKind::kRecompute:
      return "Recompute";
  }
  return "unknown";
}

std::uint32_t LinkChannel(TierKind from, TierKind to) {
  if (from == TierKind::kHbm && to == TierKind::kDdr) return 0;
  if (from == TierKind::kDdr && to == TierKind::kHbm) return 1;
  if (from == TierKind::kDdr && to == TierKind::kFlash) return 2;
  if (from == TierKind::kFlash && to == TierKind::kDdr) return 3;
  return kNone;
}

std::uint32_t ChannelOf(const Graph& graph, const Plan& plan, const Task& task) {
  if (!task.is_move) return kLinkChannels + graph.ops[task.index].stream;
  const Move& move = plan.moves[task.index];
  switch (move.kind) {
    case MoveKind::kDrop:
      return kNone;
    case MoveKind::kRecompute:
      return kLinkChannels + graph.ops[move.producer].stream;
    case MoveKind::kSwapOut:
    case MoveKind::kSwapIn:
      return LinkChannel(move.from, move.to);
  }
  return kNone;
}

std::uint32_t ChannelCount(const Graph& graph) {
  std::uint32_t streams = 1;
  for (const Op& op : graph.ops) streams = std::max(streams, op.stream + 1);
  return kLinkChannels + streams;
}

}  // namespace hmm::plan
