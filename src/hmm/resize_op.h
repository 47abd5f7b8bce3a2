// SPDX-License-Identifier: Apache-2.0
//
// ResizeTier (an operator's call). Growing is done at once. Shrinking: count what pins hold, then
// let no more than the new size be used, demote what is beyond it, empty the ranges that are in the
// way, give the memory back, and only then change the capacity. Whatever ends it before, the old
// size holds again.
//
// The executor's thread; the core owns it until it has called `done`, which it does once. Errors:
// FAILED_PRECONDITION/PINNED or /FULL for what is in the way of the size asked for,
// DEADLINE_EXCEEDED/DEADLINE, what Tier::Resize says, or why the call was ended.
#pragma once

#include <memory>
#include <vector>

#include "hmm/core.h"
#include "hmm/window_sweep.h"

namespace hmm::core {

class ResizeOp final : public Op {
 public:
  // REQUIRES: nobody else resizes the tier; `bytes` is a size that SizeFor named.
  ResizeOp(Core& core, const CallContext& call, TierId tier, Bytes bytes,
           Callback<ResizeResult> done);
  bool Step() override;
  void End(const absl::Status& why) override;
  MoveCause cause() const override { return MoveCause::kResize; }

 private:
  bool CountPinned();  // true: all is counted
  bool Shrink();
  bool ClearObstacles();  // true: nothing is in the way
  bool Stuck();
  Bytes HomeBytes() const;
  Bytes Used() const;  // once what moves within the tier has arrived
  bool Finish(const absl::Status& status);
  absl::Status PinnedError(Bytes smallest) const;
  absl::Status StuckError() const;
  tier::Tier& medium() const { return *core_.tiers[tier_]; }

  const TierId tier_;
  const Bytes bytes_;
  const Bytes old_;
  Callback<ResizeResult> done_;
  std::size_t counted_ = 0;  // copies
  Bytes pinned_ = 0;
  Bytes used_before_ = 0;
  Bytes home_bytes_before_ = 0;
  std::size_t homes_before_ = 0;
  std::uint64_t dropped_before_ = 0;
  std::unique_ptr<WindowSweep> sweep_;
  TimePoint next_sweep_{};  // not before: the last one changed nothing
  WindowSweep::Windows given_up_;
  bool saw_pinned_ = false;
  TimePoint last_progress_{};
  Bytes last_seen_ = 0;
  Bytes moved_ = 0;  // within the tier, by sweeps that ended
};

}  // namespace hmm::core
