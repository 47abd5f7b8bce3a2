// SPDX-License-Identifier: Apache-2.0
//
// The ids of one session's pinning calls: rising, and outstanding until the call ended OK or its
// Release was answered. Ids below oldest() are ones we never again ask about.
//
//   Begin ---- call ---- End(ok)                       gone
//                   \--- End(not ok) -> owed release -> Released     gone
//
// Any thread. Bounded: outstanding calls, owed releases included, never exceed the limit, so that
// an owed release always has room.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <set>

#include "absl/status/statusor.h"
#include "base/units.h"

namespace hmm::client_internal {

class CallWindow {
 public:
  struct Ids {
    std::uint64_t call_id = 0;
    std::uint64_t oldest_live_call_id = 0;
  };

  explicit CallWindow(std::size_t limit) : limit_(limit) {}

  // UNAVAILABLE/QUEUE_FULL when `limit` calls are outstanding.
  absl::StatusOr<Ids> Begin();
  // The call was answered OK: it needs nothing more. Otherwise its Release is owed.
  void End(std::uint64_t call_id, bool ok);

  // The releaser's side. Waits for an owed release and returns it (it stays owed until Released);
  // nullopt once Close was called.
  std::optional<Ids> WaitForOwed();
  void Released(std::uint64_t call_id);
  // Waits out a pause between two tries; false at once when closed.
  bool Pause(Duration pause);

  // True when nothing is owed (any more) by the deadline.
  bool WaitUntilNoneOwed(TimePoint deadline);
  bool owes() const;
  void Close();

 private:
  std::uint64_t OldestLocked() const {
    return outstanding_.empty() ? next_ : *outstanding_.begin();
  }

  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  std::uint64_t next_ = 1;
  std::set<std::uint64_t> outstanding_;  // every id of owed_ too
  std::deque<std::uint64_t> owed_;
};

}  // namespace hmm::client_internal
