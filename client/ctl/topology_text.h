// SPDX-License-Identifier: Apache-2.0
//
// What `hmmctl topology` prints. Pure. JSON keys are a contract: they are only ever added to.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "hmm/v1/topology.pb.h"
#include "plan/machine.h"

namespace hmm::ctl {

std::string TopologyTable(const v1::GetTopologyResponse& topology);
std::string TopologyJson(const v1::GetTopologyResponse& topology);

// The machine that the planner sees in one device's HBM and its way down: `base` gives what no link
// says (compute, HBM bandwidth, launch). Of each kind the first tier on the way counts, which
// `assumptions` says. `device` empty: the first tier. NOT_FOUND for a tier that is not there,
// FAILED_PRECONDITION for one that is no HBM, that demotes past DDR, or whose links were never
// measured.
absl::StatusOr<plan::Machine> MachineOf(const v1::GetTopologyResponse& topology,
                                        const std::string& device, plan::Machine base);

}  // namespace hmm::ctl
