// SPDX-License-Identifier: Apache-2.0
//
// What this machine can bear. Sizes come from MemAvailable and the cgroup limits, never from hwloc
// or libnuma, which under-report on lazily initialised guests.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.h"

namespace hmm::tier {

struct Machine {
  Bytes memory_total = 0;
  Bytes memory_available = 0;  // min(MemAvailable, room left in the cgroups above us)
  Bytes cgroup_limit = 0;      // 0: none
  Bytes page_size = 4096;
  Bytes huge_page_size = 0;   // 0: none reserved
  Bytes huge_pages_free = 0;  // bytes
  bool shmem_thp = false;     // shmem_enabled is always, within_size, advise or force
  int numa_nodes = 1;
  unsigned cpus = 1;
};

// `root` is "/" except in tests, which give a directory that looks like it (proc/, sys/).
absl::StatusOr<Machine> DetectMachine(const std::string& root = "/");

// Free bytes of the file system that holds `directory`.
absl::StatusOr<Bytes> DiskFree(const std::string& directory);

// RESOURCE_EXHAUSTED/NO_MEMORY when committing `bytes` more would leave less than `headroom` of
// MemAvailable or of the room in the cgroup: past a cgroup limit the kernel kills instead of
// failing.
absl::Status MayCommit(Bytes bytes, Bytes headroom, const std::string& root = "/");

}  // namespace hmm::tier
