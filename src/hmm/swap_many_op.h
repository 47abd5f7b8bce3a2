// SPDX-License-Identifier: Apache-2.0
//
// Swap as an operator asks for it: a tenant's tensors, by handle, by key or all of them, batch
// after batch. Each batch is a call of its own (BringOp); this one waits for it and counts.
//
// The executor's thread. What one tensor meets (pinned, no room, freed meanwhile) is counted in the
// result and ends nothing. A tier that cannot hold all of them gives up earlier ones for later
// ones, also those that were there before the call: all are looked at once more before the answer.
#pragma once

#include <memory>
#include <vector>

#include "hmm/core.h"

namespace hmm::core {

// Goes through a selector's tensors, a bounded number of slots a call. Refers to nothing between
// calls: tensors may come and go meanwhile, and those that come into slots behind it are not seen.
class Selection {
 public:
  // What is named twice is one tensor.
  Selection(TenantId tenant, TensorSelector selector);

  // The next handles, at most `max`; looks at no more than `looks` slots. Done: none will follow.
  std::vector<Handle> Next(const Core& core, std::size_t max, std::size_t looks);
  bool done() const { return done_; }
  // Keys that named nothing, so far.
  std::size_t unknown() const { return unknown_; }
  TenantId tenant() const { return tenant_; }

 private:
  const TenantId tenant_;
  TensorSelector selector_;
  std::size_t at_ = 0;  // into handles or keys, or a slot
  std::size_t unknown_ = 0;
  bool done_ = false;
};

// The core owns it until it has answered. `done` is called once: with the counts, at the deadline
// too (the batch under way is cancelled then, and counted as failed), or with why the call was
// ended.
class SwapManyOp final : public Op {
 public:
  SwapManyOp(Core& core, const CallContext& call, Selection selection, TierId target,
             Callback<SwapManyResult> done);
  ~SwapManyOp() override;
  bool Step() override;
  void End(const absl::Status& why) override;
  MoveCause cause() const override { return MoveCause::kAdminSwap; }

 private:
  // One that arrived, or was in the tier when its turn came.
  struct Met {
    Handle handle;
    bool came = false;
  };
  // What the batch under way writes into; outlives this op for a batch that it leaves behind.
  struct Shared {
    SwapManyResult result;
    std::vector<Met> met;
    bool running = false;
    OpId batch = 0;
  };
  void Launch(std::vector<Handle> handles);
  bool IsThere(TensorIndex index) const;  // and is not on its way out
  // Counts at most `looks` of those met by where they are now.
  void Recount(std::size_t looks);
  void Fail(const absl::Status& why, std::uint64_t count);

  Selection selection_;
  const TierId target_;
  Callback<SwapManyResult> done_;
  std::shared_ptr<Shared> shared_;
  std::size_t unknown_counted_ = 0;
  std::size_t recounted_ = 0;  // of those met
};

}  // namespace hmm::core
