// SPDX-License-Identifier: Apache-2.0
#include "hmm/evict_op.h"

#include <algorithm>

namespace hmm::core {
namespace {

// Without anything leaving for so long, what is left does not go.
constexpr Duration kGiveUp = std::chrono::milliseconds(100);
// Victims of one look: dropping is immediate, and others wait for the executor meanwhile.
constexpr std::size_t kVictimsPerLook = 256;

}  // namespace

EvictOp::EvictOp(Core& core, const CallContext& call, TierId tier, Bytes used_max,
                 Callback<EvictResult> done)
    : Op(core, call), tier_(tier), used_max_(used_max), done_(std::move(done)) {
  used_before_ = last_used_ = core_.tiers[tier]->ledger().used();
  homes_before_ = core_.store.homes(tier);
  dropped_before_ = core_.reclaimer.dropped(tier);
  last_progress_ = core_.clock.Now();
}

bool EvictOp::Step() {
  const Bytes used = core_.tiers[tier_]->ledger().used();
  const Bytes leaving = core_.relocator.leaving_bytes(tier_);
  bool stuck = used <= used_max_;
  if (!stuck && used - used_max_ > leaving) {
    const Reclaimer::Progress progress =
        core_.reclaimer.MakeRoom(tier_, used - used_max_ - leaving, copy::Priority::kMakeRoom,
                                 std::nullopt, kVictimsPerLook);
    if (progress.freed > 0) core_.Kick();
    const bool none = progress.freed == 0 && progress.leaving == 0 && !progress.blocked &&
                      core_.relocator.leaving_bytes(tier_) == 0;
    // Each look meets others, for those that stay go to the hot end.
    fruitless_ = none ? fruitless_ + kVictimsPerLook : 0;
    stuck = none && (progress.exhausted || fruitless_ > core_.store.lru(tier_).size());
  }
  if (used != last_used_) {
    last_used_ = used;
    last_progress_ = core_.clock.Now();
  }
  if (used > used_max_ && core_.clock.Now() - last_progress_ <= kGiveUp) stuck = false;
  if (!stuck) return false;
  std::move(done_)(Result());
  return true;
}

EvictResult EvictOp::Result() const {
  EvictResult result;
  const Bytes used = core_.tiers[tier_]->ledger().used();
  result.freed_bytes = used_before_ - std::min(used_before_, used);
  const std::size_t homes = core_.store.homes(tier_);
  result.tensors = homes_before_ - std::min(homes_before_, homes);
  // Not more than left: others may have come meanwhile.
  result.dropped =
      std::min<std::uint64_t>(result.tensors, core_.reclaimer.dropped(tier_) - dropped_before_);
  if (used <= used_max_) return result;  // what is left did not have to go
  const policy::LruList& list = core_.store.lru(tier_);
  for (TensorIndex at = list.Coldest(); at != kNoIndex; at = list.NextHotter(at)) {
    if (core_.sessions.Pinned(core_.store[at])) ++result.pinned_tensors;
  }
  result.kept_tensors = homes - std::min<std::uint64_t>(homes, result.pinned_tensors);
  return result;
}

void EvictOp::End(const absl::Status& why) {
  if (why.ok()) {
    std::move(done_)(Result());
  } else {
    std::move(done_)(why);
  }
}

}  // namespace hmm::core
