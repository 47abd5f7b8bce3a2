// SPDX-License-Identifier: Apache-2.0
//
// Values of regions and jobs that go in and out of the manager; meaning as in
// proto/hmm/v1/regions.proto. Plain values: no ownership, any thread. What the manager checks of
// them stands at its verbs (manager.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/units.h"
#include "hmm/types.h"

namespace hmm::core {

// Chosen by the client, so that what a lost reply left behind can be named; > 0, unique in the
// session among those that live.
using RegionId = std::uint64_t;
using JobId = std::uint64_t;

struct LeaseArgs {
  RegionId region = 0;
  Bytes bytes = 0;
  std::string tier;  // empty: the session's device
  bool wait = false;
};

// A piece of a region.
struct FragmentSpec {
  RegionId region = 0;
  Bytes offset = 0;
  Bytes bytes = 0;
};

struct JobKeySpec {
  TensorSpec tensor;  // Load: the key alone. Store: its bytes are the sum of the fragments
  std::vector<FragmentSpec> fragments;
};

enum class JobKind { kLoad, kStore };

struct JobArgs {
  JobKind kind = JobKind::kLoad;
  JobId job = 0;
  TimePoint deadline = TimePoint::max();
  std::string tier;          // Store: empty: the session's device
  bool allow_lower = false;  // Store
  std::vector<JobKeySpec> keys;
};

struct JobStatus {
  JobId job = 0;
  bool ended = false;              // none of its fragments is touched any more
  std::size_t keys = 0;            // of the job
  std::size_t keys_ended = 0;      // of them
  std::vector<absl::Status> done;  // by key, in the order given; empty until the job ended
};

struct DrainArgs {
  RegionId region = 0;
  bool cancel = false;  // what has not begun is given up
};

}  // namespace hmm::core
