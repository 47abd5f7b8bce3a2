// SPDX-License-Identifier: Apache-2.0
//
// The client's end of the session socket (share/session_wire.h): handshake, segments on request,
// and the hang-up that says the daemon is gone.
//
// One thread at a time, except HungUp and fd: any thread, for they only poll and never read, so
// that a watcher cannot take a reply that a request waits for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/units.h"
#include "share/memory_file.h"
#include "share/session_wire.h"

namespace hmm::client_internal {

class SessionSocket {
 public:
  struct Greeting {
    share::Welcome welcome;
    share::UniqueFd table;
    share::UniqueFd page;
  };
  struct Grant {
    share::UniqueFd fd;
    Bytes bytes = 0;
  };

  SessionSocket() = default;

  // UNAVAILABLE/NO_DAEMON when nobody listens there, PERMISSION_DENIED when we may not connect,
  // INVALID_ARGUMENT for a path that no socket can have.
  static absl::StatusOr<SessionSocket> Connect(const std::string& path);

  // Hello and its answer. A Refusal is answered as the status it carries; a peer that speaks
  // otherwise is FAILED_PRECONDITION/PROTOCOL; none by the deadline, or EOF: UNAVAILABLE/NO_DAEMON.
  absl::StatusOr<Greeting> Greet(std::string_view device, TimePoint deadline);

  // Pulls a segment. What the daemon refuses is answered as it says; DEADLINE_EXCEEDED.
  absl::StatusOr<Grant> PullSegment(SegmentId segment, TimePoint deadline);

  // Makes a region of a memory file (share/foreign_file.h says which). What the daemon refuses is
  // answered as it says; DEADLINE_EXCEEDED: it may have been attached all the same.
  absl::Status AttachRegion(std::uint64_t region, int fd, Bytes bytes, TimePoint deadline);

  // The descriptor of share/bell.h that says: a job ended.
  absl::StatusOr<share::UniqueFd> OpenEvents(TimePoint deadline);

  // True when the peer hung up, now or within `wait`.
  bool HungUp(Duration wait) const;

  // Says Goodbye and hangs up: the daemon reaps the session. REQUIRES: nothing of it is used any
  // more. Never waits; unheard, the session stays CLOSING until the process ends.
  void Leave();

  int fd() const { return fd_.get(); }

 private:
  struct Message {
    std::vector<std::byte> bytes;
    std::vector<share::UniqueFd> fds;
  };

  SessionSocket(share::UniqueFd fd, std::string path)
      : fd_(std::move(fd)), path_(std::move(path)) {}
  // `fd` goes along unless it is -1.
  absl::Status Send(const void* data, std::size_t size, TimePoint deadline, int fd = -1);
  absl::StatusOr<Message> Receive(TimePoint deadline);
  // Waits for `events`; DEADLINE_EXCEEDED.
  absl::Status Wait(short events, TimePoint deadline) const;
  absl::Status Gone(std::string_view what) const;

  share::UniqueFd fd_;
  std::string path_;
};

}  // namespace hmm::client_internal
