// SPDX-License-Identifier: Apache-2.0
//
// A tier of host memory: DDR, HBM that is a NUMA node, and emulated HBM.
//
// Each tenant has one sparse memfd *arena* (sealed against shrink and grow) that its processes map
// once. Memory is committed in chunks, really backed, before an extent in them is handed out, so
// that nobody ever gets SIGBUS; the arena is larger than the tier (address space is free), so that
// a long extent only needs free chunks anywhere, not adjacent ones.
//
//   arena    [chunk 0 ][chunk 1 ][  hole   ][chunk 3 ]....      chunk = commit_chunk
//             A A . B   C C C C             . . . .             '.' committed-free
//
// A chunk without extents may be punched out (the kernel zeroes it) and committed for another
// tenant. Arena memory is never registered with io_uring or a device: a registration pins the old
// pages, and I/O after a punch silently goes to bytes nobody maps.
#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"
#include "tier/tier.h"

namespace hmm::tier {

enum class PageMode : std::uint8_t { kAuto, kHugetlb, kTransparent, kSmall };

struct HostTierOptions {
  TierOptions tier;
  TierId id = 0;
  Bytes commit_chunk = 2 * kMiB;  // power of two, >= 64 KiB
  PageMode pages = PageMode::kAuto;
  // Hugetlb pages that must be free for kAuto to take them; 0: the capacity. Who creates several
  // host tiers gives each the sum of all, or the last would starve: pages are taken as they are
  // committed.
  Bytes hugetlb_needed = 0;
  int numa_node = -1;  // -1: wherever; else bound by mbind (a refusal is a warning in note())
  double address_factor = 4.0;  // arena address space / tier capacity
  // Asked before each commit of so many bytes; an error refuses the allocation (NO_MEMORY). Unset:
  // always allowed. See tier/machine.h for the real one. Not asked for hugetlb pages, which the
  // administrator has taken out of the system's memory already.
  absl::AnyInvocable<absl::Status(Bytes)> may_commit;
};

// INVALID_ARGUMENT when the options contradict themselves. The capacity is rounded down to chunks.
absl::StatusOr<std::unique_ptr<Tier>> CreateHostTier(HostTierOptions options);

}  // namespace hmm::tier
