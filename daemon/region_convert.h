// SPDX-License-Identifier: Apache-2.0
//
// Messages of regions.proto <-> the core's values. Pure; refuses what the core's types cannot say.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "hmm/region_types.h"
#include "hmm/v1/regions.pb.h"

namespace hmm::daemon {

core::LeaseArgs Decode(const v1::LeaseRegionRequest& request);
// INVALID_ARGUMENT/BAD_ENUM for a kind unknown here.
absl::StatusOr<core::JobArgs> Decode(const v1::StoreRequest& request, TimePoint now);
core::JobArgs Decode(const v1::LoadRequest& request, TimePoint now);

void Encode(const core::JobStatus& status, v1::JobState& out);

}  // namespace hmm::daemon
