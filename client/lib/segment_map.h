// SPDX-License-Identifier: Apache-2.0
//
// The segments that this process has mapped, by id. Grows until it is cleared at the end, so that
// what Find answers stays good without a lock.
//
// Find and Resolve: any thread, lock-free, under a pin. Add and Clear: one thread at a time; Clear
// when no pin is left and none can come.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/units.h"
#include "share/memory_file.h"

namespace hmm::client_internal {

class SegmentMap {
 public:
  static constexpr std::size_t kCapacity = 256;  // one arena a tier is usual

  struct Segment {
    SegmentId id = 0;
    share::Mapping mapping;
  };

  // nullptr: not mapped yet.
  const Segment* Find(SegmentId id) const {
    const std::size_t count = count_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
      if (segments_[i].id == id) return &segments_[i];
    }
    return nullptr;
  }

  // RESOURCE_EXHAUSTED past kCapacity.
  absl::StatusOr<const Segment*> Add(SegmentId id, share::Mapping mapping);

  void Clear();

  // The address of `bytes` at `offset`; nullptr when they do not lie within the segment.
  static std::byte* Resolve(const Segment& segment, Bytes offset, Bytes bytes) {
    const Bytes size = segment.mapping.size();
    if (bytes == 0 || offset > size || bytes > size - offset) return nullptr;
    return segment.mapping.data() + offset;
  }

 private:
  std::atomic<std::size_t> count_{0};  // entries below it are complete and never change
  std::array<Segment, kCapacity> segments_;
};

}  // namespace hmm::client_internal
