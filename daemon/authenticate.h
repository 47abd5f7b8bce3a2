// SPDX-License-Identifier: Apache-2.0
//
// Whose call this is. On the core's thread.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "hmm/manager.h"

namespace hmm::daemon {

inline constexpr std::string_view kTokenKey = "hmm-token-bin";

// UNAUTHENTICATED/MISSING_TOKEN without a token of the right length,
// UNAUTHENTICATED/UNKNOWN_SESSION when it names no live session.
absl::StatusOr<SessionId> Authenticate(const core::Manager& manager,
                                       std::optional<std::string_view> token);

// INVALID_ARGUMENT/BATCH_TOO_LARGE past `max` elements of `field`.
absl::Status CheckBatch(std::string_view field, int elements, std::size_t max);

}  // namespace hmm::daemon
