// SPDX-License-Identifier: Apache-2.0
//
// The data of a report's page as JSON; plan_report.h says what is in it. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/ctl/plan_printer.h"
#include "plan/plan.h"

namespace hmm::ctl {

// Safe inside a script element. REQUIRES: plans is not empty.
absl::StatusOr<std::string> ReportData(const PlanContext& context,
                                       const std::vector<plan::Plan>& plans);

}  // namespace hmm::ctl
