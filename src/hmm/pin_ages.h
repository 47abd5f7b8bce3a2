// SPDX-License-Identifier: Apache-2.0
//
// How long pins have been held, as far as the daemon can know: clients pin without telling. Every
// pin that a client takes also counts an access in the same word, so a word that an audit finds
// unchanged and pinned has been pinned by the same pin since the audit before. What is told is
// therefore a lower bound.
//
// One thread (the executor's). Bounded: at most kTracked words a session; while there are more,
// those that came first are followed, and the oldest is among them.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "base/units.h"

namespace hmm::core {

class PinAges {
 public:
  static constexpr std::size_t kTracked = 4096;

  // The audit looked at a slot's word. Forgets the slot when it is not pinned.
  void Saw(std::uint32_t slot, std::uint32_t generation, std::uint32_t word, TimePoint now);

  // The daemon pinned for the client, which counts no access: an older pin may go unseen from here
  // on.
  void PinnedAgain(std::uint32_t slot, TimePoint now) {
    if (seen_.empty()) return;
    if (const auto it = seen_.find(slot); it != seen_.end()) it->second.since = now;
  }

  struct Oldest {
    Duration held{};
    Handle tensor;
  };
  // nullopt: no pin that two audits saw.
  std::optional<Oldest> Find(TimePoint now) const;

 private:
  struct Seen {
    std::uint32_t generation = 0;
    std::uint32_t accesses = 0;
    TimePoint since{};
  };
  absl::flat_hash_map<std::uint32_t, Seen> seen_;  // by slot
};

}  // namespace hmm::core
