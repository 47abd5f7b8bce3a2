// SPDX-License-Identifier: Apache-2.0
//
// Pinning a resident tensor without an RPC. Used by the client library, by the daemon and, line for
// line, by the Spin model in tests/model/pin.pml: change them together.
//
//   client                                   daemon
//   1 word += pin + access      (seq_cst)    1 state := MOVING                 (seq_cst)
//   2 read state                (seq_cst)    2 read word of every session      (seq_cst)
//   RESIDENT, own generation: good           no pins: copy, publish, RESIDENT
//   else: word -= pin + access, ask by RPC   pins: state := RESIDENT, another victim
//
// Dekker's argument: both sides write, then read, all seq_cst, so not both can miss the other. The
// generation closes ABA: a slot freed and given to another tensor has another generation.
//
// Pin word of (session, slot): bits 0-15 pins, bits 16-31 accesses (wrap out at the top). The
// daemon trusts nothing in it beyond "pinned or not".
#pragma once

#include <atomic>
#include <cstdint>

#include "share/layout.h"

// Broken variants, for the stress test that must catch them. Never set in a shipped build.
//   HMM_BREAK_CLIENT_ORDER  the client's two accesses lose their order
//   HMM_BREAK_DAEMON_ORDER  the daemon's two accesses lose their order
//   HMM_BREAK_GENERATION    the client does not compare the generation
namespace hmm::share {

inline constexpr std::uint32_t kPinOne = 0x1;
inline constexpr std::uint32_t kAccessOne = 0x1'0000;
inline constexpr std::uint32_t kPinMask = 0xffff;
inline constexpr std::uint32_t kPinMax = 0x7fff;  // past it TryPin refuses

constexpr std::uint32_t PinsOf(std::uint32_t word) { return word & kPinMask; }
constexpr std::uint32_t AccessesOf(std::uint32_t word) { return word >> 16; }

#ifdef HMM_BREAK_CLIENT_ORDER
inline constexpr std::memory_order kClientOrder = std::memory_order_relaxed;
#else
inline constexpr std::memory_order kClientOrder = std::memory_order_seq_cst;
#endif
#ifdef HMM_BREAK_DAEMON_ORDER
inline constexpr std::memory_order kDaemonOrder = std::memory_order_relaxed;
#else
inline constexpr std::memory_order kDaemonOrder = std::memory_order_seq_cst;
#endif

// Client: true when the tensor of `generation` in this slot is resident and now pinned; the
// location in `slot` then stays put until Unpin. On false nothing is held. Any thread.
inline bool TryPin(std::atomic<std::uint32_t>& word, const TableSlot& slot,
                   [[maybe_unused]] std::uint32_t generation) {
#ifdef HMM_BREAK_CLIENT_ORDER
  // On x86 an atomic read-modify-write orders by itself; the broken variant must not use one.
  const std::uint32_t before = word.load(std::memory_order_relaxed);
  word.store(before + kPinOne + kAccessOne, std::memory_order_relaxed);
#else
  const std::uint32_t before = word.fetch_add(kPinOne + kAccessOne, kClientOrder);
#endif
  const StateWord now = StateWord::Unpack(slot.state.load(kClientOrder));
  bool good = now.state == TensorState::kResident;
#ifndef HMM_BREAK_GENERATION
  good = good && now.generation == generation;
#endif
  if (good && PinsOf(before) < kPinMax) return true;
  word.fetch_sub(kPinOne + kAccessOne, std::memory_order_release);
  return false;
}

// Client: gives one pin back, after the last access to the bytes. REQUIRES: a pin of this word.
inline void Unpin(std::atomic<std::uint32_t>& word) {
  word.fetch_sub(kPinOne, std::memory_order_release);
}

// Daemon: true when this session holds pins on the slot. Called after MOVING or DOOMED was stored.
inline bool IsPinned(const std::atomic<std::uint32_t>& word) {
  return PinsOf(word.load(kDaemonOrder)) != 0;
}

// Daemon: publishes a state. The location must have been written before.
inline void PublishState(TableSlot& slot, StateWord word) {
  slot.state.store(word.Pack(), kDaemonOrder);
}

// Daemon: pins for the client (Allocate, Acquire, Lookup), only in an ACTIVE session and only while
// the tensor cannot move. False when the count is at its maximum.
inline bool PinFor(std::atomic<std::uint32_t>& word) {
  std::uint32_t now = word.load(std::memory_order_relaxed);
  do {
    if (PinsOf(now) >= kPinMax) return false;
  } while (!word.compare_exchange_weak(now, now + kPinOne, std::memory_order_seq_cst,
                                       std::memory_order_relaxed));
  return true;
}

// Daemon: takes back a pin that PinFor gave and the client never learned of. A word without pins
// (a client that scribbles) is left alone.
inline void UnpinFor(std::atomic<std::uint32_t>& word) {
  std::uint32_t now = word.load(std::memory_order_relaxed);
  do {
    if (PinsOf(now) == 0) return;
  } while (!word.compare_exchange_weak(now, now - kPinOne, std::memory_order_seq_cst,
                                       std::memory_order_relaxed));
}

}  // namespace hmm::share
