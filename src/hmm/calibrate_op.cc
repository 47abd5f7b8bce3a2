// SPDX-License-Identifier: Apache-2.0
#include "hmm/calibrate_op.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace hmm::core {

CalibrateOp::CalibrateOp(Core& core, const CallContext& call,
                         Callback<std::vector<copy::LinkModel>> done)
    : Op(core, call), done_(std::move(done)) {
  std::vector<copy::LinkEnds> links;
  for (std::size_t i = 0; i < core.tiers.size(); ++i) {
    const auto tier = static_cast<TierId>(i);
    const auto below = core.reclaimer.Below(tier);
    const bool online = core.reclaimer.state(tier) != tier::TierState::kOffline;
    if (below.has_value() && online) links.push_back({tier, *below});
  }
  calibration_ = copy::StartCalibration(
      core.tiers, std::move(links), core.copier, core.executor, core.clock,
      core.options.calibration, core.alive(),
      [core = &core, alive = core.alive(), result = result_](std::vector<copy::LinkModel> models) {
        if (alive.expired()) return;
        *result = std::move(models);
        core->Kick();
      });
  core.calibrating = calibration_;
}

bool CalibrateOp::Step() {
  if (!result_->has_value()) return false;
  // Those that could not be measured this time keep what was known of them.
  std::vector<copy::LinkModel> links = std::move(**result_);
  for (copy::LinkModel& link : links) {
    for (const copy::LinkModel& known : core_.link_times.measured().links) {
      if (link.measured() || !known.measured() || known.from != link.from || known.to != link.to)
        continue;
      const std::string note = link.note;
      link = known;
      link.note = absl::StrCat("of an earlier time; now ", note);
    }
  }
  core_.link_times.Set({.links = links});
  if (core_.calibrated) core_.calibrated(links);
  std::move(done_)(std::move(links));
  return true;
}

void CalibrateOp::End(const absl::Status& why) {
  calibration_->Stop();
  std::move(done_)(why.ok() ? Error(absl::StatusCode::kDeadlineExceeded, Reason::kDeadline,
                                    "the deadline passed while the links were measured; those "
                                    "measured before stay")
                            : why);
}

}  // namespace hmm::core
