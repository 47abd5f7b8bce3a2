// SPDX-License-Identifier: Apache-2.0
//
// Pins that end at a fence. A client that gave work to a stream hands the pin to a fence entry of
// its session page instead of holding it; the pin ends when a timeline has reached a value.
// Timelines are counters in the page that the client's threads (or callbacks, or devices) raise.
//
//   FREE --claimed, filled--> ARMED --timeline >= value, one CAS--> TAKEN --> FREE (sequence + 1)
//   tests/model/fence.pml proves it: change the two together.
//
// Whoever sees first that the value is reached takes the entry: the client at its next use, the
// daemon when a pin is in its way. The CAS lets one of them win, and that one gives the pin back,
// exactly once. The sequence number in the state word makes it fail for an entry that was freed and
// armed anew in between. What the client's work did to the bytes happens before the raise of the
// timeline (release), that before its reading (acquire), that before the pin's end.
//
// The page is the client's to scribble in: the daemon checks every index, and what it finds hurts
// the session's own tenant alone.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/units.h"

namespace hmm::share {

inline constexpr std::uint32_t kTimelines = 64;
inline constexpr std::uint32_t kFences = 1024;

struct alignas(64) TimelineWord {
  std::atomic<std::uint64_t> value;
};

struct FenceEntry {
  std::atomic<std::uint64_t> state;  // sequence number in bits 2-63, FenceState in bits 0-1
  std::atomic<std::uint64_t> value;
  std::atomic<std::uint32_t> slot;
  std::atomic<std::uint32_t> timeline;
  std::uint64_t reserved;
};
static_assert(sizeof(FenceEntry) == 32);

enum class FenceState : std::uint64_t { kFree = 0, kClaimed = 1, kArmed = 2, kTaken = 3 };

// Zeroed at first: all free, all timelines at 0.
struct FenceArea {
  std::array<TimelineWord, kTimelines> timelines;
  std::array<FenceEntry, kFences> entries;
  alignas(64) std::atomic<std::uint32_t> used;  // entries below it may be armed; never lowered
};
inline constexpr Bytes kFenceBytes = (sizeof(FenceArea) + 4095) / 4096 * 4096;

constexpr FenceState StateOf(std::uint64_t word) { return static_cast<FenceState>(word & 3); }
constexpr std::uint64_t SequenceOf(std::uint64_t word) { return word >> 2; }
constexpr std::uint64_t WithState(std::uint64_t word, FenceState state) {
  return (word & ~std::uint64_t{3}) | static_cast<std::uint64_t>(state);
}

struct FenceTicket {
  std::uint32_t entry = 0;
  std::uint64_t sequence = 0;
};

// Client: the pin on `slot` belongs to the entry from here on. nullopt: all are armed, nothing
// changed. Any thread. REQUIRES: a pin of that slot, timeline < kTimelines.
inline std::optional<FenceTicket> ArmFence(FenceArea& area, std::uint32_t slot,
                                           std::uint32_t timeline, std::uint64_t value) {
  for (std::uint32_t i = 0; i < kFences; ++i) {
    FenceEntry& entry = area.entries[i];
    std::uint64_t word = entry.state.load(std::memory_order_relaxed);
    if (StateOf(word) != FenceState::kFree) continue;
    if (!entry.state.compare_exchange_strong(word, WithState(word, FenceState::kClaimed),
                                             std::memory_order_acquire,
                                             std::memory_order_relaxed)) {
      continue;
    }
    entry.value.store(value, std::memory_order_relaxed);
    entry.slot.store(slot, std::memory_order_relaxed);
    entry.timeline.store(timeline, std::memory_order_relaxed);
    std::uint32_t used = area.used.load(std::memory_order_relaxed);
    while (used <= i && !area.used.compare_exchange_weak(used, i + 1, std::memory_order_seq_cst,
                                                         std::memory_order_relaxed)) {
    }
    entry.state.store(WithState(word, FenceState::kArmed), std::memory_order_release);
    return FenceTicket{i, SequenceOf(word)};
  }
  return std::nullopt;
}

// Either side: the slot whose pin the caller must give back now, before FreeFence; nullopt: not
// armed, not reached, or another was faster. The slot is unchecked.
inline std::optional<std::uint32_t> TakeFence(FenceArea& area, FenceEntry& entry) {
  std::uint64_t word = entry.state.load(std::memory_order_acquire);
  if (StateOf(word) != FenceState::kArmed) return std::nullopt;
  const std::uint32_t slot = entry.slot.load(std::memory_order_relaxed);
  const std::uint32_t timeline = entry.timeline.load(std::memory_order_relaxed);
  const std::uint64_t value = entry.value.load(std::memory_order_relaxed);
  if (timeline >= kTimelines) return std::nullopt;
  if (area.timelines[timeline].value.load(std::memory_order_acquire) < value) return std::nullopt;
  // Fields of another sequence than `word`'s do not matter: then this fails.
  if (!entry.state.compare_exchange_strong(word, WithState(word, FenceState::kTaken),
                                           std::memory_order_acq_rel, std::memory_order_relaxed)) {
    return std::nullopt;
  }
  return slot;
}

// REQUIRES: TakeFence of this entry by the caller, and the pin given back.
inline void FreeFence(FenceEntry& entry) {
  const std::uint64_t word = entry.state.load(std::memory_order_relaxed);
  entry.state.store((SequenceOf(word) + 1) << 2, std::memory_order_release);
}

// Raises a timeline, never lowers it. Any thread.
inline void Signal(TimelineWord& timeline, std::uint64_t value) {
  std::uint64_t now = timeline.value.load(std::memory_order_relaxed);
  while (now < value && !timeline.value.compare_exchange_weak(now, value, std::memory_order_release,
                                                              std::memory_order_relaxed)) {
  }
}

}  // namespace hmm::share
