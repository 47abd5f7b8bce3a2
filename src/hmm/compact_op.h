// SPDX-License-Identifier: Apache-2.0
//
// Compact (an operator's call): empties sparse ranges into fuller ones of the same tier, then gives
// all memory without extents back to the system. One tier after another.
//
// The executor's thread; the core owns it, `done` is called once. It ends by itself when no range
// is worth emptying. A deadline answers with what was done; any other end with its cause, and what
// was moved stays moved.
#pragma once

#include <memory>
#include <vector>

#include "hmm/core.h"
#include "hmm/window_sweep.h"

namespace hmm::core {

class CompactOp final : public Op {
 public:
  CompactOp(Core& core, const CallContext& call, std::vector<TierId> tiers,
            Callback<CompactResult> done);
  bool Step() override;
  void End(const absl::Status& why) override;
  MoveCause cause() const override { return MoveCause::kCompact; }

 private:
  void Collect();  // what the sweep that ended did
  void NextTier();

  std::vector<TierId> tiers_;  // the last is worked on
  Callback<CompactResult> done_;
  std::unique_ptr<WindowSweep> sweep_;
  WindowSweep::Windows done_with_;  // of this tier
  CompactResult result_;
};

}  // namespace hmm::core
