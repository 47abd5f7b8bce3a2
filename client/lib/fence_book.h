// SPDX-License-Identifier: Apache-2.0
//
// The fences that this process armed in its session page (share/fence.h), so that it learns of
// those that the daemon ended: their pins count as pins of the attachment until then.
//
// Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "share/fence.h"

namespace hmm::client_internal {

class FenceBook {
 public:
  // Views of the session page, which outlives it.
  FenceBook(share::FenceArea& area, std::atomic<std::uint32_t>* words)
      : area_(area), words_(words) {}

  // A timeline of its own, at 0. RESOURCE_EXHAUSTED/QUOTA past kTimelines.
  absl::StatusOr<std::uint32_t> NewTimeline();
  share::TimelineWord& timeline(std::uint32_t index) { return area_.timelines[index]; }

  // The pin is the fence's from here on. RESOURCE_EXHAUSTED/QUEUE_FULL with a delay: it is not.
  absl::Status Arm(std::uint32_t slot, std::uint32_t timeline, std::uint64_t value);

  // Ends what has been reached. Returns how many pins have gone since the last sweep, whoever ended
  // them. `daemon_gone`: what it had begun to end it never will.
  std::size_t Sweep(bool daemon_gone);

 private:
  share::FenceArea& area_;
  std::atomic<std::uint32_t>* words_;
  std::mutex mutex_;
  std::uint32_t timelines_ = 0;
  std::vector<share::FenceTicket> armed_;
};

}  // namespace hmm::client_internal
