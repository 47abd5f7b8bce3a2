// SPDX-License-Identifier: Apache-2.0
//
// The mover: decides when a move may start. One bounded queue per link (from tier, to tier), five
// priorities, first come first served within one. A move under way is never interrupted: its extents
// belong to the copier until `done`.
//
//   Submit --> queued[priority] --> running (at most `running_max` a link) --> done
//                   | Cancel: done(CANCELLED), extents are the caller's again
//
// One thread (the executor's).
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "absl/status/status.h"
#include "base/executor.h"
#include "copy/copier.h"

namespace hmm::copy {

// In the order of service.
enum class Priority : std::uint8_t {
  kDemand,           // somebody waits for it
  kPlanned,          // a plan's SwapIn
  kPrefetch,         // a hint
  kMakeRoom,         // SwapOut that an allocation or SwapIn waits for
  kBackground,       // demotion by watermark
};
inline constexpr std::size_t kPriorities = 5;
std::string_view PriorityName(Priority priority);

using MoveId = std::uint64_t;  // never 0, never reused

struct MoverOptions {
  std::size_t queued_max = 4096;  // per link; past it UNAVAILABLE/QUEUE_FULL with a retry delay
  std::size_t running_max = 4;    // per link, handed to the copier at once
};

struct LinkStats {
  std::uint64_t moves = 0;
  std::uint64_t failed = 0;
  Bytes moved_bytes = 0;  // by finished, successful moves
  Duration busy{};        // sum of the copies' own times
  std::size_t queued = 0;
  std::size_t running = 0;
};

class Mover {
 public:
  // `copier` and `executor` outlive the mover. Completions of cancelled moves are posted to it.
  Mover(Copier& copier, Executor& executor, MoverOptions options);
  ~Mover();  // REQUIRES: idle, or the executor runs nothing more

  // Queues a move; starts it if the link has a place. `done` runs exactly once, on the executor, never
  // from inside Submit, Raise or Cancel. UNAVAILABLE/QUEUE_FULL: not taken, `done` is destroyed unrun.
  absl::StatusOr<MoveId> Submit(const CopyJob& job, Priority priority, CopyDone done);

  // A queued move is served at `priority` from now on if that is sooner; no effect otherwise.
  void Raise(MoveId id, Priority priority);

  // True: it was still queued and will not start; its `done` gets CANCELLED. False: it runs (or ended).
  bool Cancel(MoveId id);

  // Whether a move of this link could be queued now.
  bool HasRoom(const tier::Tier& from, const tier::Tier& to) const;
  bool idle() const;

  using LinkKey = std::pair<const tier::Tier*, const tier::Tier*>;
  const LinkStats& stats(LinkKey link) const;  // zeros for a link that never moved anything

 private:
  // The builder of this class decides what stands here.
};

}  // namespace hmm::copy
