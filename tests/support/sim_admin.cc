// SPDX-License-Identifier: Apache-2.0
//
// What operators do in a step, and what they demand of the answers.
#include "absl/strings/str_cat.h"
#include "support/sim_world.h"

namespace hmm::testing {

void SimWorld::Admin() {
  switch (Pick(8)) {
    case 0: {
      const double high = 0.5 + 0.5 * static_cast<double>(Pick(100)) / 100;
      action_ = "watermarks";
      (void)manager_->SetWatermarks(manager_->tier(RandomTier()).name(), high, high * 0.8,
                                    Pick(2048));
      break;
    }
    case 1: {
      const TierId tier = RandomTier();
      action_ = absl::StrCat("evict ", manager_->tier(tier).name());
      const Bytes to = Pick(manager_->tier(tier).capacity());
      const TimePoint deadline = clock_.Now() + std::chrono::milliseconds(Pick(50));
      const std::uint64_t begun = Begin(deadline);
      (void)manager_->Evict(
          manager_->tier(tier).name(), to, deadline,
          [this, begun](const absl::StatusOr<core::EvictResult>&) { Answered(begun); });
      break;
    }
    case 2:
      action_ = "drain";
      (void)manager_->Drain(Chance(0.1));
      for (const auto& client : clients_) {
        Require(!manager_->draining() || client->waiting.empty(), "calls wait while draining");
      }
      break;
    case 3:
    case 4:
      ResizeSome();
      break;
    case 5:
      CompactSome();
      break;
    case 6:
      SwapAll();
      break;
    default:
      action_ = "drain off";
      (void)manager_->Drain(false);
  }
}

void SimWorld::ResizeSome() {
  const TierId tier = RandomTier();
  const std::string name = manager_->tier(tier).name();
  const Bytes first = first_sizes_[tier];
  const Bytes bytes = first / 2 + Pick(first);
  action_ = absl::StrCat("resize ", name, " to ", bytes);
  const TimePoint deadline = clock_.Now() + std::chrono::milliseconds(Pick(400));
  const std::uint64_t begun = Begin(deadline);
  (void)manager_->ResizeTier(
      name, bytes, deadline, [this, tier, bytes, begun](absl::StatusOr<core::ResizeResult> result) {
        Answered(begun);
        RequireStatus(result.status(),
                      {Reason::kPinned, Reason::kFull, Reason::kDeadline, Reason::kQueueFull,
                       Reason::kDraining, Reason::kBadSize},
                      "ResizeTier");
        if (!result.ok()) return;
        ++resized_;
        const Bytes now = manager_->tier(tier).capacity();
        Require(now == result->new_bytes && now >= bytes && now < bytes + 64,
                "a resized tier has another size than it was given");
        Require(manager_->tier(tier).ledger().used() <= now, "more is used than the tier has");
      });
}

void SimWorld::CompactSome() {
  action_ = "compact";
  const std::string name = Chance(0.3) ? "" : manager_->tier(RandomTier()).name();
  const TimePoint deadline = clock_.Now() + std::chrono::milliseconds(Pick(200));
  const std::uint64_t begun = Begin(deadline);
  (void)manager_->Compact(
      name, deadline, [this, begun](absl::StatusOr<core::CompactResult> result) {
        Answered(begun);
        RequireStatus(result.status(), {Reason::kQueueFull, Reason::kDraining}, "Compact");
        if (result.ok()) compacted_ += result->tensors;
      });
}

void SimWorld::SwapAll() {
  core::TensorSelector selector;
  selector.tenant = absl::StrCat("tenant", Pick(options_.tenants));
  if (Chance(0.5)) selector.key_prefix = "k";
  const std::string to = manager_->tier(RandomTier()).name();
  action_ = absl::StrCat("swap all of ", selector.tenant, " to ", to);
  if (Chance(0.3) && to != "flash0") {
    const auto hinted = manager_->PrefetchMany(std::move(selector), to);
    return RequireStatus(hinted.status(), {Reason::kNotFound}, "PrefetchMany");
  }
  const TimePoint deadline = clock_.Now() + std::chrono::milliseconds(Pick(100));
  const std::uint64_t begun = Begin(deadline);
  (void)manager_->SwapMany(
      std::move(selector), to, deadline,
      [this, begun](absl::StatusOr<core::SwapManyResult> result) {
        Answered(begun);
        RequireStatus(result.status(), {Reason::kNotFound, Reason::kQueueFull, Reason::kDraining},
                      "SwapMany");
        if (!result.ok() || result->first_error.ok()) return;
        Require(result->first_error.code() != absl::StatusCode::kInternal,
                result->first_error.ToString());
      });
}

}  // namespace hmm::testing
