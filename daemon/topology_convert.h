// SPDX-License-Identifier: Apache-2.0
//
// Messages of topology.proto <-> the core's values. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "copy/link_model.h"
#include "hmm/manager.h"
#include "hmm/v1/topology.pb.h"

namespace hmm::daemon {

// `names`: of the tiers, by id.
void Encode(const copy::LinkModel& link, const std::vector<std::string>& names, v1::LinkModel& out);
// nullopt: it names a tier that is not there, or cannot have been measured.
std::optional<copy::LinkModel> Decode(const v1::LinkModel& link,
                                      const std::vector<std::string>& names);

std::vector<std::string> TierNames(const core::Manager& manager);
void Encode(const core::TopologyInfo& info, const core::Manager& manager,
            v1::GetTopologyResponse& out);

}  // namespace hmm::daemon
