// SPDX-License-Identifier: Apache-2.0
#include "hmm/resize_op.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace hmm::core {
namespace {

// Without anything leaving for so long, what is left does not go.
constexpr Duration kGiveUp = std::chrono::milliseconds(200);
// What moves within the tier counts as progress until it has moved this often, on average.
constexpr Bytes kMovesEach = 8;
constexpr std::size_t kCopiesPerLook = 8192;
constexpr std::size_t kVictimsPerLook = 256;
constexpr std::size_t kWindowsAtOnce = 64;
constexpr Bytes kGiveBackPerLook = 32 * kMiB;  // the kernel zeroes nothing, but unmaps page by page

// For a person, and exact.
std::string Sized(Bytes bytes) { return absl::StrCat(FormatBytes(bytes), " (", bytes, " bytes)"); }

}  // namespace

ResizeOp::ResizeOp(Core& core, const CallContext& call, TierId tier, Bytes bytes,
                   Callback<ResizeResult> done)
    : Op(core, call),
      tier_(tier),
      bytes_(bytes),
      old_(core.tiers[tier]->capacity()),
      done_(std::move(done)) {
  used_before_ = medium().ledger().used();
  home_bytes_before_ = HomeBytes();
  homes_before_ = core_.store.homes(tier_);
  dropped_before_ = core_.reclaimer.dropped(tier_);
  last_progress_ = core_.clock.Now();
  last_seen_ = used_before_;
  // From now on nobody may take what is to be given up.
  if (bytes_ < old_) medium().SetLimit(bytes_);
}

bool ResizeOp::CountPinned() {
  const std::size_t end = std::min(core_.store.copy_count(), counted_ + kCopiesPerLook);
  for (; counted_ < end; ++counted_) {
    const Copy& copy = core_.store.copy(static_cast<CopyIndex>(counted_));
    if (copy.role != Copy::Role::kHome || copy.tier != tier_) continue;
    if (core_.sessions.Pinned(core_.store[copy.tensor])) pinned_ += copy.extent.length;
  }
  if (counted_ < core_.store.copy_count()) return false;
  for (const tier::Tier::Window& leased : core_.reclaimer.fixed(tier_)) pinned_ += leased.length;
  return true;
}

absl::Status ResizeOp::PinnedError(Bytes smallest) const {
  absl::Status status =
      Error(absl::StatusCode::kFailedPrecondition, Reason::kPinned,
            absl::StrCat("tier ", medium().name(), " cannot shrink to ", Sized(bytes_),
                         ": pins and leased regions hold ", Sized(pinned_),
                         " of it; now it could have ", Sized(smallest)));
  status = WithDetail(status, "pinned_bytes", absl::StrCat(pinned_));
  return WithDetail(status, "smallest_bytes", absl::StrCat(smallest));
}

bool ResizeOp::Step() {
  if (bytes_ >= old_) return Finish(medium().Resize(bytes_));
  if (counted_ == 0 || counted_ < core_.store.copy_count()) {
    if (!CountPinned()) {
      core_.Kick();
      return false;
    }
    last_progress_ = core_.clock.Now();
  }
  if (pinned_ > bytes_) {
    const auto smallest = medium().SizeFor(pinned_);
    return Finish(PinnedError(smallest.ok() ? *smallest : pinned_));
  }
  return Shrink();
}

// Clean copies go first and are no tensors that leave.
Bytes ResizeOp::HomeBytes() const {
  return medium().ledger().used() - core_.store.clean_bytes(tier_);
}

Bytes ResizeOp::Used() const {
  return medium().ledger().used() - core_.relocator.within_bytes(tier_);
}

bool ResizeOp::Shrink() {
  const Bytes used = Used();
  if (used > bytes_) {
    const Bytes leaving = core_.relocator.leaving_bytes(tier_);
    if (used - bytes_ > leaving) {
      const Reclaimer::Progress progress = core_.reclaimer.MakeRoom(
          tier_, used - bytes_ - leaving, copy::Priority::kMakeRoom, std::nullopt, kVictimsPerLook);
      saw_pinned_ = saw_pinned_ || progress.saw_pinned;
      if (progress.freed > 0) core_.Kick();
    }
    return Stuck() && Finish(StuckError());
  }
  if (!ClearObstacles()) return Stuck() && Finish(StuckError());
  const absl::Status resized = medium().Resize(bytes_);
  if (ReasonOf(resized) != Reason::kFull) return Finish(resized);
  // Empty, but committed: goes back some at a time.
  const Bytes free = medium().ledger()[tier::ByteState::kCommittedFree];
  if (medium().Trim(free - std::min(free, kGiveBackPerLook)) > 0)
    last_progress_ = core_.clock.Now();
  core_.Kick();
  return Stuck() && Finish(StuckError());
}

bool ResizeOp::ClearObstacles() {
  if (sweep_ == nullptr) {
    if (core_.clock.Now() < next_sweep_) return false;
    WindowSweep::Windows skip = core_.reclaimer.fixed(tier_);
    skip.insert(skip.end(), given_up_.begin(), given_up_.end());
    auto windows = medium().Obstacles(kWindowsAtOnce, skip);
    if (windows.empty()) {
      // Pins go without telling: look at those given up once more, until it takes too long.
      given_up_.clear();
      return medium().Obstacles(1, {}).empty();
    }
    sweep_ = std::make_unique<WindowSweep>(core_, tier_, std::move(windows), /*may_demote=*/true);
  }
  if (sweep_->Step()) {
    saw_pinned_ = saw_pinned_ || sweep_->saw_pinned();
    given_up_.insert(given_up_.end(), sweep_->given_up().begin(), sweep_->given_up().end());
    moved_ += sweep_->moved_bytes();
    // What came in meanwhile, or others; at once only where that can have changed something.
    if (given_up_.empty() && sweep_->found_any()) {
      core_.Kick();
    } else {
      // A sweep wakes the others that wait: two that find nothing to do must not keep each other
      // busy.
      next_sweep_ = core_.clock.Now() + core_.options.rescan;
    }
    sweep_.reset();
  }
  return false;
}

bool ResizeOp::Stuck() {
  const TimePoint now = core_.clock.Now();
  // Bytes that moved within the tier are progress too, unless they go back and forth.
  const bool sweeping = sweep_ != nullptr;
  const Bytes moved = moved_ + (sweeping ? sweep_->moved_bytes() : 0);
  const Bytes moved_max = kMovesEach * used_before_;
  const bool moving = core_.relocator.within_bytes(tier_) > 0 ||
                      (sweeping && sweep_->listing() && given_up_.empty());
  const Bytes seen = Used() + std::min(moved, moved_max);
  if (seen != last_seen_ || core_.relocator.leaving_bytes(tier_) > 0 ||
      (moving && moved < moved_max)) {
    last_seen_ = seen;
    last_progress_ = now;
  }
  return now - last_progress_ > kGiveUp;
}

absl::Status ResizeOp::StuckError() const {
  if (saw_pinned_) return PinnedError(std::max(medium().ledger().used(), bytes_));
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kFull,
               absl::StrCat("tier ", medium().name(), " cannot shrink to ", Sized(bytes_),
                            ": it holds ", Sized(medium().ledger().used()),
                            ", and what should leave has no room below and may not be dropped"));
}

bool ResizeOp::Finish(const absl::Status& status) {
  medium().SetLimit(std::nullopt);
  core_.Kick();
  if (!status.ok()) {
    std::move(done_)(status);
    return true;
  }
  ResizeResult result;
  result.old_bytes = old_;
  result.new_bytes = medium().capacity();
  const std::size_t homes = core_.store.homes(tier_);
  result.freed_bytes = home_bytes_before_ - std::min(home_bytes_before_, HomeBytes());
  result.tensors = homes_before_ - std::min(homes_before_, homes);
  // Not more than left: others may have come meanwhile.
  result.dropped =
      std::min<std::uint64_t>(result.tensors, core_.reclaimer.dropped(tier_) - dropped_before_);
  std::move(done_)(result);
  return true;
}

void ResizeOp::End(const absl::Status& why) {
  (void)Finish(why.ok() ? Error(absl::StatusCode::kDeadlineExceeded, Reason::kDeadline,
                                absl::StrCat("the deadline passed; tier ", medium().name(),
                                             " keeps its ", Sized(old_), ", of which ",
                                             Sized(medium().ledger().used()), " are in use"))
                        : why);
}

}  // namespace hmm::core
