// SPDX-License-Identifier: Apache-2.0
#include "client/lib/segment_map.h"

#include <utility>

#include "base/status.h"

namespace hmm::client_internal {

absl::StatusOr<const SegmentMap::Segment*> SegmentMap::Add(SegmentId id, share::Mapping mapping) {
  const std::size_t count = count_.load(std::memory_order_relaxed);
  if (count == kCapacity) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kProtocol,
                 "the daemon names more segments than a client maps");
  }
  segments_[count] = {id, std::move(mapping)};
  count_.store(count + 1, std::memory_order_release);
  return &segments_[count];
}

void SegmentMap::Clear() {
  count_.store(0, std::memory_order_release);
  for (Segment& segment : segments_) segment = {};
}

}  // namespace hmm::client_internal
