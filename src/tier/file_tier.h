// SPDX-License-Identifier: Apache-2.0
//
// A flash tier: one preallocated file (0600), truncated at start (a restart is a cold cache), read
// and written with O_DIRECT by a copier. At start a real aligned write and read prove that O_DIRECT
// works where the file lies; if not, the tier falls back to buffered I/O, is DEGRADED and says so.
#pragma once

#include <memory>
#include <string>

#include "tier/tier.h"

namespace hmm::tier {

struct FileTierOptions {
  TierOptions tier;
  TierId id = 0;
  std::string path;          // of the file; its directory must exist
  Bytes alignment = 4096;    // of offsets and lengths; at least what the file system asks for
};

// RESOURCE_EXHAUSTED when the file system cannot hold the capacity; else errno's words.
absl::StatusOr<std::unique_ptr<Tier>> CreateFileTier(FileTierOptions options);

}  // namespace hmm::tier
