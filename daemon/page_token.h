// SPDX-License-Identifier: Apache-2.0
//
// Page tokens: where the next page begins, bound to the query that it continues and to this start
// of the daemon. Opaque to clients; not a secret: who forges one sees what he may see anyway.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hmm::daemon {

// `query`: everything that chooses what is listed, as bytes.
std::string MakePageToken(std::string_view query, std::uint64_t epoch, std::uint64_t cursor);

// The cursor. INVALID_ARGUMENT/PAGE_TOKEN for one of another query or epoch, or none of ours.
absl::StatusOr<std::uint64_t> ReadPageToken(std::string_view token, std::string_view query,
                                            std::uint64_t epoch);

}  // namespace hmm::daemon
