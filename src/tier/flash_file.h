// SPDX-License-Identifier: Apache-2.0
//
// The file under a flash tier: private (0600), locked against a second daemon, preallocated, and
// followed by a trailer that says that it is a cache of ours, which the next start may empty. No
// other file is ever emptied. Offsets and sizes are bytes; `capacity` is without the trailer.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.h"
#include "share/memory_file.h"

namespace hmm::tier {

inline constexpr Bytes kFilePage = 4096;  // the block of about every file system
inline constexpr Bytes kAlignmentMin = 512;
inline constexpr Bytes kAlignmentMax = 1 * kMiB;

// Opens an empty private file, for nobody else's use. FAILED_PRECONDITION (BAD_CONFIG): in use by
// another daemon, or not ours to empty. INVALID_ARGUMENT (BAD_CONFIG): no regular file.
absl::StatusOr<share::UniqueFd> OpenEmptyFile(const std::string& path);

// Gives the empty file its blocks and its trailer, or removes it. RESOURCE_EXHAUSTED: the file
// system has no room; it is asked before it is filled.
absl::Status PreallocateFile(int fd, const std::string& path, Bytes capacity);

// To `capacity` > `now`, or as it was. At every moment the file ends with a trailer.
absl::Status ExtendFile(int fd, const std::string& path, Bytes now, Bytes capacity);

// To a smaller `capacity`; what lay beyond is gone. At every moment the file ends with a trailer.
absl::Status ShortenFile(int fd, const std::string& path, Bytes capacity);

// What the file system says that O_DIRECT needs here, of memory and of offsets. kFilePage if it
// does not say (before Linux 6.1, and some file systems still).
Bytes ReportedAlignment(int fd);

// Writes a pattern of `alignment` bytes near the file's start, from memory that is aligned to no
// more than that, reads it into other memory and compares.
absl::Status ProbeDirectIo(int fd, Bytes alignment);

}  // namespace hmm::tier
