// SPDX-License-Identifier: Apache-2.0
//
// The copier of the daemon: a fixed pool of threads that copy memory (copy/memory_copy.h) and read
// and write the flash file with pread/pwrite. Between memory and a file opened with O_DIRECT it
// goes straight when the address is aligned and the memory's extent covers the padding to a whole
// unit, and by an aligned bounce buffer of its own otherwise; the unit is 4096, or what the file's
// extent is a multiple of if that is less. Between two files it goes by the bounce buffer. Short
// reads and writes are normal and continued; a file that ends before the bytes do is DATA_LOSS/IO.
//
// Submit is called on the executor's thread.
#pragma once

#include <memory>

#include "base/executor.h"
#include "copy/copier.h"
#include "copy/under_way.h"

namespace hmm::copy {

struct WorkerCopierOptions {
  unsigned threads = 2;      // copies under way at once; at least 1
  Bytes io_unit = 1 * kMiB;  // largest single pread/pwrite, and the bounce buffer's size (one a
                             // thread, kept); rounded up to 4096
  UnderWay* under_way = nullptr;  // told of each copy; outlives the copier
};

// `executor` outlives the copier; the destructor waits for copies under way, whose completions are
// still posted.
std::unique_ptr<Copier> CreateWorkerCopier(Executor& executor, WorkerCopierOptions options);

}  // namespace hmm::copy
