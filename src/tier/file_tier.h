// SPDX-License-Identifier: Apache-2.0
//
// A flash tier: one preallocated file (0600), truncated at start (a restart is a cold cache), read
// and written with O_DIRECT by a copier. At start a real aligned write and read prove that O_DIRECT
// works where the file lies; if not, the tier falls back to buffered I/O, is DEGRADED and says so.
// The file stays when the daemon goes; the next start empties it.
//
// Extents of 4 KiB and more are whole pages at whole pages, so that large I/O never breaks a block
// of the file system. Smaller ones are packed to the alignment of the device: eight of 512 bytes
// share a page.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "tier/tier.h"

namespace hmm::tier {

struct FileTierOptions {
  TierOptions tier;
  TierId id = 0;
  std::string path;     // of the file; its directory must exist
  Bytes alignment = 0;  // of offsets and lengths; a power of two, >= 512. 0: what the file system
                        // says O_DIRECT needs (statx), 4096 if it does not say or says less than
                        // it then takes
  // How the file will be read and written, for note() ("io_uring"); and whether that is less than
  // was configured, which makes the tier DEGRADED.
  std::string engine;
  bool engine_degraded = false;
  // Proves O_DIRECT on the open file. Unset: ProbeDirectIo (tier/flash_file.h). Tests inject a
  // refusal.
  absl::AnyInvocable<absl::Status(int fd, Bytes alignment)> probe;
};

// RESOURCE_EXHAUSTED when the file system cannot hold the capacity; else errno's words.
absl::StatusOr<std::unique_ptr<Tier>> CreateFileTier(FileTierOptions options);

}  // namespace hmm::tier
