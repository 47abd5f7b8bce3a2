// SPDX-License-Identifier: Apache-2.0
//
// A sweep over budgets as a picture: stall, in percent of the compute time, against HBM. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/sweep.h"

namespace hmm::ctl {

struct SweepReport {
  Bytes floor_bytes = 0;
  Bytes unplanned_peak_bytes = 0;
  double compute_us = 0;
  std::vector<plan::SweepPoint> points;  // ascending budgets
  double stall_share_max = 0;
  std::optional<plan::SweepPoint> smallest = {};  // that keeps to stall_share_max; if asked for
};

// A complete SVG document. Infeasible points are marked on the axis; `title` and `note` are
// escaped.
std::string SweepSvg(const SweepReport& report, const std::string& title, const std::string& note);

}  // namespace hmm::ctl
