// SPDX-License-Identifier: Apache-2.0
//
// The mover: decides when a move may start. One bounded queue per link (from tier, to tier), five
// priorities, first come first served within one. A move under way is never interrupted: its
// extents belong to the copier until `done`.
//
//   Submit --> queued[priority] --> running (at most `running_max` a link) --> done
//                   | Cancel: done(CANCELLED), extents are the caller's again
//
// One thread (the executor's).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "copy/copier.h"

namespace hmm::copy {

// In the order of service.
enum class Priority : std::uint8_t {
  kDemand,      // somebody waits for it
  kPlanned,     // a plan's SwapIn
  kPrefetch,    // a hint
  kMakeRoom,    // SwapOut that an allocation or SwapIn waits for
  kBackground,  // demotion by watermark
};
inline constexpr std::size_t kPriorities = 5;
std::string_view PriorityName(Priority priority);

using MoveId = std::uint64_t;  // never 0, never reused

struct MoverOptions {
  std::size_t queued_max = 4096;  // per link; past it UNAVAILABLE/QUEUE_FULL with a retry delay
  std::size_t running_max = 4;    // per link, handed to the copier at once; > 0
  // Of a link from or to a file, whose copier has a deeper queue: more than running_max while they
  // are small, so that the drive is busy and a move that is waited for still starts soon. 0:
  // running_max.
  std::size_t file_running_max = 0;
  Bytes file_running_bytes = 0;  // no further one starts while so many bytes or more run
  std::chrono::milliseconds retry_delay{10};  // told to whoever is refused
};

struct LinkStats {
  std::uint64_t moves = 0;   // ended well
  std::uint64_t failed = 0;  // ended otherwise; cancelled ones never started and are in neither
  Bytes moved_bytes = 0;     // by those that ended well
  Duration busy{};           // sum of the copies' own times, failed ones included
  std::size_t queued = 0;
  std::size_t running = 0;
};

class Mover {
 public:
  // `copier` and `executor` outlive the mover. Completions of cancelled moves are posted to it.
  Mover(Copier& copier, Executor& executor, MoverOptions options);
  // REQUIRES: idle, or the executor runs nothing more (then queued moves end with `done` destroyed
  // unrun, and the copier's completions must die with the executor).
  ~Mover();
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  // Queues a move; starts it if the link has a place. `done` runs exactly once, on the executor,
  // never from inside Submit, Raise or Cancel. UNAVAILABLE/QUEUE_FULL: not taken, `done` is
  // destroyed unrun.
  absl::StatusOr<MoveId> Submit(const CopyJob& job, Priority priority, CopyDone done);

  // A queued move is served at `priority` from now on if that is sooner, among its new equals by
  // the time of its Submit; no effect otherwise.
  void Raise(MoveId id, Priority priority);

  // True: it was still queued and will not start; its `done` gets CANCELLED. False: it runs (or
  // ended).
  bool Cancel(MoveId id);

  // Whether a move of this link could be queued now.
  bool HasRoom(const tier::Tier& from, const tier::Tier& to) const;
  bool idle() const;

  using LinkKey = std::pair<const tier::Tier*, const tier::Tier*>;  // from, to
  const LinkStats& stats(LinkKey link) const;  // zeros for a link that never moved anything

 private:
  struct Queued {
    CopyJob job;
    CopyDone done;
  };
  // begin() is what is served next: ids grow, so within one priority the order is that of Submit.
  using Place = std::pair<Priority, MoveId>;
  struct Link {
    std::map<Place, Queued> queue;
    LinkStats stats;
    Bytes running_bytes = 0;
    bool file = false;  // one end is a file
  };
  struct Where {
    Link* link;  // std::map keeps its address
    Priority priority;
  };

  bool MayStart(const Link& link) const;
  bool HasRoom(const Link& link) const;
  void StartWhatMay(Link& link);
  void OnCopied(Link& link, Bytes bytes, CopyDone done, CopyResult result);

  Copier& copier_;
  Executor& executor_;
  const MoverOptions options_;
  // Invariant: a link with a queue has no free place (StartWhatMay ran after every change).
  std::map<LinkKey, Link> links_;
  absl::flat_hash_map<MoveId, Where> queued_;  // exactly the moves in some link's queue
  std::size_t running_ = 0;                    // over all links
  MoveId last_id_ = 0;
};

}  // namespace hmm::copy
