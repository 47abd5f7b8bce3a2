// SPDX-License-Identifier: Apache-2.0
//
// What Attachment hides. One an attachment, which owns it; never destroyed in a fork child.
//
// Filled in while attaching, by one thread. From then on:
//   welcome, dir, tier_names, table, page, fences, rpc, calls   any thread (those with state lock
//                                                               for themselves)
//   socket, segments, events, bell   under pull_mutex; beside it the watcher polls the socket's and
//                                    the bell's descriptors (bell_fd) and writes to events
//   forget, owed_regions             under jobs_mutex
//   closed, releaser                 under releaser_mutex
//   watcher                          joined by who retires us; with pins left it is detached, and
//                                    deletes us when they are gone
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/status.h"
#include "client/lib/attachment.h"
#include "client/lib/fence_book.h"
#include "client/lib/session_socket.h"
#include "share/memory_file.h"
#include "share/session_wire.h"

namespace hmm::client_internal {

// All that a fork child must neither use nor destroy.
struct Attachment::Resources {
  SessionSocket socket;
  share::Welcome welcome;
  std::string dir;
  share::UniqueFd table_fd;  // until mapped
  share::UniqueFd page_fd;   // until mapped
  share::Mapping table;
  share::Mapping page;
  std::array<std::string, share::kMaxTiers> tier_names;
  std::unique_ptr<MemoryRpc> rpc;
  // The limit equals ManagerOptions::calls_remembered_max: past it the daemon would forget calls
  // that we owe.
  CallWindow calls{4096};

  std::mutex pull_mutex;  // one request at a time on the socket
  SegmentMap segments;

  // eventfd that wakes the watcher. Shared, for whoever wakes it to delete us must not use us then.
  std::shared_ptr<share::UniqueFd> wake;
  std::atomic<bool> stop{false};      // the watcher returns, to be joined
  std::atomic<bool> orphaned{false};  // the watcher deletes us when the last pin is gone
  std::thread watcher;

  std::unique_ptr<FenceBook> fences;  // once the page is mapped

  // Regions and jobs.
  std::atomic<std::uint64_t> last_id{0};
  std::mutex jobs_mutex;
  std::vector<std::uint64_t> forget;        // ids of jobs that nobody asks about any more
  std::vector<std::uint64_t> owed_regions;  // to be released
  share::UniqueFd events;                   // eventfd for the user; written by the watcher
  share::UniqueFd bell;                     // rung by the daemon
  std::atomic<int> bell_fd{-1};             // of `bell`, for the watcher

  std::mutex releaser_mutex;
  bool closed = false;
  std::thread releaser;  // from the first owed release on
};

inline void Wake(const share::UniqueFd& eventfd) {
  const std::uint64_t one = 1;
  // EAGAIN: so many wake-ups are pending already that one more says nothing new.
  HMM_CHECK(::write(eventfd.get(), &one, sizeof(one)) > 0 || errno == EAGAIN);
}

// The daemon went away with all that it held.
inline absl::Status GoneError() {
  return Error(absl::StatusCode::kAborted, Reason::kLost, "the daemon that held the bytes is gone");
}

}  // namespace hmm::client_internal
