// SPDX-License-Identifier: Apache-2.0
//
// The manager's verbs about tiers and links as such: where tensors go, and what was measured.
#include <utility>

#include "base/status.h"
#include "hmm/calibrate_op.h"
#include "hmm/core.h"
#include "hmm/manager.h"

namespace hmm::core {

Manager::OpId Manager::Calibrate(TimePoint deadline, Callback<std::vector<copy::LinkModel>> done) {
  absl::Status refused;
  if (!core_->calibrating.expired()) {
    refused = Error(absl::StatusCode::kUnavailable, Reason::kQueueFull,
                    "the links are being measured already");
  } else if (core_->draining) {
    refused = Error(absl::StatusCode::kUnavailable, Reason::kDraining, "the daemon is draining");
  }
  if (!refused.ok()) {
    std::move(done)(WithRetry(std::move(refused), std::chrono::milliseconds(1000)));
    return 0;
  }
  CallContext call;
  call.deadline = deadline;
  return core_->Launch(std::make_unique<CalibrateOp>(*core_, call, std::move(done)));
}

void Manager::OnCalibrated(
    absl::AnyInvocable<void(const std::vector<copy::LinkModel>&)> calibrated) {
  core_->calibrated = std::move(calibrated);
}

void Manager::SetMeasurement(LinkMeasurement measured) {
  core_->link_times.Set(std::move(measured));
}

void Manager::SetTopology(TopologyFacts facts) { core_->topology = std::move(facts); }

TopologyInfo Manager::GetTopology() const {
  TopologyInfo info;
  info.facts = core_->topology;
  for (std::size_t i = 0; i < core_->tiers.size(); ++i) {
    info.demote_to.push_back(core_->reclaimer.Below(static_cast<TierId>(i)));
  }
  info.measured = core_->link_times.measured();
  return info;
}

}  // namespace hmm::core
