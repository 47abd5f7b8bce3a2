// SPDX-License-Identifier: Apache-2.0
#include "hmm/compact_op.h"

#include <algorithm>
#include <utility>

namespace hmm::core {
namespace {

constexpr std::size_t kWindowsAtOnce = 64;
constexpr Bytes kGiveBackPerLook = 32 * kMiB;

}  // namespace

CompactOp::CompactOp(Core& core, const CallContext& call, std::vector<TierId> tiers,
                     Callback<CompactResult> done)
    : Op(core, call), tiers_(std::move(tiers)), done_(std::move(done)) {}

void CompactOp::Collect() {
  result_.moved_bytes += sweep_->moved_bytes();
  result_.tensors += sweep_->moved_tensors();
  // A range is emptied once: what others put there since is theirs to keep.
  done_with_.insert(done_with_.end(), sweep_->windows().begin(), sweep_->windows().end());
  if (sweep_->saw_pinned()) result_.pinned_windows += sweep_->given_up().size();
  sweep_.reset();
}

void CompactOp::NextTier() {
  tiers_.pop_back();
  done_with_.clear();
}

bool CompactOp::Step() {
  while (!tiers_.empty()) {
    tier::Tier& medium = *core_.tiers[tiers_.back()];
    if (sweep_ == nullptr) {
      WindowSweep::Windows skip = core_.reclaimer.fixed(tiers_.back());
      skip.insert(skip.end(), done_with_.begin(), done_with_.end());
      auto windows = medium.SparseRanges(kWindowsAtOnce, skip);
      if (windows.empty()) {
        const Bytes free = medium.ledger()[tier::ByteState::kCommittedFree];
        const Bytes given = medium.Trim(free - std::min(free, kGiveBackPerLook));
        result_.returned_bytes += given;
        if (given == 0) {
          NextTier();
          continue;
        }
        core_.Kick();
        return false;
      }
      sweep_ = std::make_unique<WindowSweep>(core_, tiers_.back(), std::move(windows),
                                             /*may_demote=*/false);
    }
    if (!sweep_->Step()) return false;
    Collect();
    core_.Kick();
    return false;
  }
  std::move(done_)(result_);
  return true;
}

void CompactOp::End(const absl::Status& why) {
  if (!why.ok()) return std::move(done_)(why);
  // The deadline: what was done stays done.
  if (sweep_ != nullptr) Collect();
  std::move(done_)(result_);
}

}  // namespace hmm::core
