// SPDX-License-Identifier: Apache-2.0
#include "hmm/pin_ages.h"

#include "share/pin.h"

namespace hmm::core {

void PinAges::Saw(std::uint32_t slot, std::uint32_t generation, std::uint32_t word, TimePoint now) {
  if (share::PinsOf(word) == 0) {
    if (!seen_.empty()) seen_.erase(slot);
    return;
  }
  const auto it = seen_.find(slot);
  const Seen seen{generation, share::AccessesOf(word), now};
  if (it == seen_.end()) {
    if (seen_.size() < kTracked) seen_.emplace(slot, seen);
  } else if (it->second.generation != generation || it->second.accesses != seen.accesses) {
    // Pinned again since; the older pin may be gone.
    it->second = seen;
  }
}

std::optional<PinAges::Oldest> PinAges::Find(TimePoint now) const {
  std::optional<Oldest> oldest;
  for (const auto& [slot, seen] : seen_) {
    const Duration held = now - seen.since;
    if (!oldest.has_value() || held > oldest->held) {
      oldest = Oldest{held, {slot, seen.generation}};
    }
  }
  return oldest;
}

}  // namespace hmm::core
