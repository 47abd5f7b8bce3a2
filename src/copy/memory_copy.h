// SPDX-License-Identifier: Apache-2.0
//
// Copies between tiers of memory. Large and cold is the normal case here: from ~1 MiB on
// non-temporal stores beat memcpy by 10-40%, below it memcpy wins by up to 3x. rep movsb equals
// them while memory is idle and falls 25% behind when other cores want its bandwidth too, for it
// reads what it overwrites (tests/bench/bench_move). Vectors as wide as the CPU has, found at run
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/units.h"

struct XXH3_state_s;  // libxxhash's

namespace hmm::copy {

enum class CopyKernel : std::uint8_t { kMemcpy, kRepMovsb, kNonTemporal };
std::string_view CopyKernelName(CopyKernel kernel);

// What CopyMemory uses for a copy of `bytes` on this CPU.
CopyKernel KernelFor(Bytes bytes);

// REQUIRES: ranges disjoint. Any thread.
void CopyMemory(std::byte* to, const std::byte* from, Bytes bytes);
// The same by a named kernel, for tests and benchmarks. False when this CPU lacks it.
bool CopyMemoryBy(CopyKernel kernel, std::byte* to, const std::byte* from, Bytes bytes);

// XXH3-64, with the widest vectors this CPU has.
std::uint64_t Checksum(const std::byte* data, Bytes bytes);

// The same over bytes that come in pieces, so that each is hashed while it still lies in the cache.
// One thread at a time.
class PiecewiseChecksum {
 public:
  PiecewiseChecksum();
  void Add(const std::byte* data, Bytes bytes);
  std::uint64_t Digest() const;  // of all pieces so far; more may follow

 private:
  struct Deleter {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Deleter> state_;
};

}  // namespace hmm::copy
