// SPDX-License-Identifier: Apache-2.0
//
// Evict (an operator's call): makes room in a tier until it holds no more than asked for, or
// nothing more can go.
#pragma once

#include "hmm/core.h"

namespace hmm::core {

class EvictOp final : public Op {
 public:
  EvictOp(Core& core, const CallContext& call, TierId tier, Bytes used_max,
          Callback<EvictResult> done);
  bool Step() override;
  void End(const absl::Status& why) override;
  MoveCause cause() const override { return MoveCause::kAdminEvict; }

 private:
  EvictResult Result() const;

  TierId tier_;
  Bytes used_max_;
  Callback<EvictResult> done_;
  Bytes used_before_ = 0;
  std::size_t homes_before_ = 0;
  std::uint64_t dropped_before_ = 0;
  TimePoint last_progress_{};
  Bytes last_used_ = 0;
  std::size_t fruitless_ = 0;  // victims looked at since something left or went
};

}  // namespace hmm::core
