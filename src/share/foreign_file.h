// SPDX-License-Identifier: Apache-2.0
//
// A memory file that another process made and that we map. Its owner is not trusted: whatever it
// does to the file later must not be SIGBUS here. Any thread; keeps no state.
#pragma once

#include "absl/status/statusor.h"
#include "base/units.h"
#include "share/memory_file.h"

namespace hmm::share {

// Maps `bytes` of `fd` for reading and writing. The mapping is the caller's, the descriptor stays
// his and may be closed afterwards. Never waits for whoever serves the file. Errors:
//   INVALID_ARGUMENT/BAD_SIZE            0 bytes, or the file is shorter
//   INVALID_ARGUMENT/BAD_ARGUMENT        not a memfd; not open for reading and writing; not sealed
//                                        against shrinking and growing; sealed against writing;
//                                        huge pages (a page that the pool lacks is SIGBUS whatever
//                                        the seals)
//   FAILED_PRECONDITION/NO_MEMORY        vm.overcommit_memory is 2: there a page may be refused
//                                        when it is touched
//   PosixError's codes                   the kernel refused to look or to map
// Memory that nobody touched costs nothing; what is touched through this mapping is the file's.
absl::StatusOr<Mapping> MapForeign(int fd, Bytes bytes);

}  // namespace hmm::share
