// SPDX-License-Identifier: Apache-2.0
//
// A flash tier: one preallocated file (0600), truncated at start (a restart is a cold cache), read
// and written with O_DIRECT by a copier. At start a real aligned write and read prove that O_DIRECT
// works where the file lies; if not, the tier falls back to buffered I/O, is DEGRADED and says so.
// The file stays when the daemon goes; the next start empties it.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "tier/tier.h"

namespace hmm::tier {

struct FileTierOptions {
  TierOptions tier;
  TierId id = 0;
  std::string path;        // of the file; its directory must exist
  Bytes alignment = 4096;  // of offsets and lengths; a power of two, >= 512, and at least what
                           // the file system asks for
  // Proves O_DIRECT on the open file. Unset: ProbeDirectIo. Tests inject a refusal.
  absl::AnyInvocable<absl::Status(int fd, Bytes alignment)> probe;
};

// Writes a pattern of `alignment` bytes at the file's start, reads it into other memory and
// compares.
absl::Status ProbeDirectIo(int fd, Bytes alignment);

// RESOURCE_EXHAUSTED when the file system cannot hold the capacity; else errno's words.
absl::StatusOr<std::unique_ptr<Tier>> CreateFileTier(FileTierOptions options);

}  // namespace hmm::tier
