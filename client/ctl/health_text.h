// SPDX-License-Identifier: Apache-2.0
//
// What `hmmctl health` writes. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "client/ctl/table.h"
#include "hmm/v1/inspection.pb.h"

namespace hmm::ctl {

std::string HealthTable(const v1::GetHealthResponse& health, const TableStyle& style);
std::string HealthJson(const v1::GetHealthResponse& health);
nlohmann::ordered_json TierHealthToJson(const v1::TierHealth& tier);
// It serves, and every tier is online.
bool IsWell(const v1::GetHealthResponse& health);

}  // namespace hmm::ctl
