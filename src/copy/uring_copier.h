// SPDX-License-Identifier: Apache-2.0
//
// The copier of flash links: io_uring, driven by one thread of its own. A job is cut into pieces of
// at most io_unit; up to `depth` pieces of all jobs are under way at once, and what came in since
// the last wake goes to the kernel in one call. Jobs to and from the file take turns, so that
// somebody who waits for a read does not wait for a queue of writes.
//
// Padding, bounce buffers, short and failed I/O, checksums: exactly as in copy/worker_copier.h. The
// checksum of what is written is computed while it is written, of what was read as soon as the
// bytes before it are there, both on the ring's thread. Arena memory is not registered with the
// ring.
//
// Submit is called on the executor's thread. REQUIRES of a job: at least one end is a file (a tier
// that is not mappable).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "copy/copier.h"
#include "copy/under_way.h"

namespace hmm::copy {

// A read or write that has ended.
struct UringIo {
  bool write = false;
  const std::byte* buffer = nullptr;
  Bytes bytes = 0;   // asked for
  Bytes offset = 0;  // in the file
};

struct UringCopierOptions {
  unsigned depth = 32;       // reads and writes under way at once; 1 to 4096
  Bytes io_unit = 1 * kMiB;  // largest single read or write, and the bounce buffers' size (at most
                             // `depth` of them, kept); rounded up to 4096, at most 1 GiB
  UnderWay* under_way = nullptr;  // told of each copy; outlives the copier
  // For tests: what it returns is taken for the kernel's result (bytes, or -errno). The ring's
  // thread.
  absl::AnyInvocable<std::int32_t(const UringIo& io, std::int32_t result)> on_result;
};

// FAILED_PRECONDITION/REFUSED when the system does not let us have a ring (copy/uring.h).
// `executor` outlives the copier; the destructor waits for all that was submitted, whose
// completions are still posted.
absl::StatusOr<std::unique_ptr<Copier>> CreateUringCopier(Executor& executor,
                                                          UringCopierOptions options);

}  // namespace hmm::copy
