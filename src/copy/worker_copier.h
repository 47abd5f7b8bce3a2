// SPDX-License-Identifier: Apache-2.0
//
// The copier of the daemon: a fixed pool of threads that copy memory (copy/memory_copy.h) and read
// and write the flash file with pread/pwrite. Between memory and a file opened with O_DIRECT it goes
// straight when address and length are aligned and by an aligned bounce buffer of its own otherwise.
// Short reads and writes are normal and continued.
#pragma once

#include <memory>

#include "base/executor.h"
#include "copy/copier.h"

namespace hmm::copy {

struct WorkerCopierOptions {
  unsigned threads = 2;
  Bytes io_unit = 1 * kMiB;  // largest single pread/pwrite, and the bounce buffer's size
};

// `executor` outlives the copier; the destructor waits for copies under way, whose completions are
// still posted.
std::unique_ptr<Copier> CreateWorkerCopier(Executor& executor, WorkerCopierOptions options);

}  // namespace hmm::copy
