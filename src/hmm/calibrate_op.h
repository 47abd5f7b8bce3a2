// SPDX-License-Identifier: Apache-2.0
//
// Calibrate as a call that waits: it can be cancelled and has a deadline. What it began is then
// stopped, and ends by itself. One thread (the executor's).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "copy/calibration.h"
#include "hmm/core.h"

namespace hmm::core {

class CalibrateOp final : public Op {
 public:
  CalibrateOp(Core& core, const CallContext& call, Callback<std::vector<copy::LinkModel>> done);

  bool Step() override;
  void End(const absl::Status& why) override;

 private:
  // The completion may come when the call has ended.
  using Result = std::optional<std::vector<copy::LinkModel>>;
  std::shared_ptr<Result> result_ = std::make_shared<Result>();
  std::shared_ptr<copy::Calibration> calibration_;
  Callback<std::vector<copy::LinkModel>> done_;
};

}  // namespace hmm::core
