// SPDX-License-Identifier: Apache-2.0
//
// A medium that fails on demand: the library libfaulty_file.so, preloaded into hmmd, stands between
// it and the reads and writes of one file; a test steers it through a small mapped file.
//
// Calls of the worker engine (pread, pwrite) it answers itself. Those of the ring go to the kernel
// past the C library; but they are submitted by liburing's functions, which the library stands
// before: it redirects what is prepared to files that fail as is wanted, so that the ring's
// results are the kernel's own.
#pragma once

#include <atomic>
#include <cstdint>

namespace hmm::testing {

enum class Fault : std::uint32_t {
  kNone = 0,
  kFail,     // EIO
  kNoSpace,  // ENOSPC, of writes
  kShort,    // less than asked for, at least one unit of 4 KiB
  kDelay,    // a pause of up to 20 ms before each
  kHang,     // until the fault is another; in the ring, also whatever is submitted with it
  kCorrupt,  // one byte of what is read differs; in the ring, all of it
  kLie,      // writes claim success and do nothing
  kTorn,     // writes claim success and write half; in the ring none is struck
  kCount,
};

// Environment: FAULTY_FILE is the end of the path that is meant, FAULTY_CONTROL the mapped file.
struct FaultControl {
  std::atomic<std::uint32_t> fault{0};
  std::atomic<std::uint32_t> per_mille{0};  // how many of the calls it strikes
  std::atomic<std::uint64_t> seed{1};
  std::atomic<std::uint64_t> calls{0};       // that passed
  std::atomic<std::uint64_t> ring_calls{0};  // of them, the ring's
  std::atomic<std::uint64_t> struck{0};
  std::atomic<std::uint64_t> hanging{0};  // calls that hang now
};

}  // namespace hmm::testing
