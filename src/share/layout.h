// SPDX-License-Identifier: Apache-2.0
//
// The layout of everything another process maps. A change here changes kAbiVersion.
//
//   residency table (memfd, one per tenant; written by the daemon, mapped read-only by clients)
//     [TableHeader, 4 KiB][TableSlot 64 B] x max_tensors          sparse
//   session page (memfd, one per session; written by that session's process and by the daemon)
//     [PageHeader, 4 KiB][FenceArea][u32 pin word] x max_tensors  sparse
//
// Fields are little-endian, atomics are lock-free and address-free. All accesses that take part in
// the pin protocol (share/pin.h) are seq_cst atomics on the words themselves, no stand-alone
// fences.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "base/units.h"
#include "share/fence.h"

namespace hmm::share {

inline constexpr std::uint32_t kAbiVersion = 2;
inline constexpr std::uint64_t kTableMagic = 0x31304c4254444d48;  // "HMDTBL01"
inline constexpr std::uint64_t kPageMagic = 0x3130474150444d48;   // "HMDPAG01"
inline constexpr std::size_t kHeaderBytes = 4096;

// State word: generation in bits 32-63, tier in bits 8-15, state in bits 0-7; the rest is zero.
struct StateWord {
  TensorState state = TensorState::kGone;
  TierId tier = 0;
  std::uint32_t generation = 0;

  constexpr std::uint64_t Pack() const {
    return (static_cast<std::uint64_t>(generation) << 32) |
           (static_cast<std::uint64_t>(tier) << 8) | static_cast<std::uint64_t>(state);
  }
  static constexpr StateWord Unpack(std::uint64_t word) {
    return {static_cast<TensorState>(word & 0xff), static_cast<TierId>((word >> 8) & 0xff),
            static_cast<std::uint32_t>(word >> 32)};
  }
};

// One cache line. The daemon writes the location (relaxed) before a state word that publishes it
// (seq_cst store); a client that pinned and then read RESIDENT may read the location (relaxed): it
// does not change while the pin is held.
struct alignas(64) TableSlot {
  std::atomic<std::uint64_t> state;
  std::atomic<std::uint64_t> offset;  // within the segment
  std::atomic<std::uint64_t> bytes;   // as allocated by the client, not rounded
  std::atomic<std::uint32_t> segment;
  std::atomic<std::uint32_t> flags;  // kFlagSealed
  std::uint64_t reserved[4];
};
static_assert(sizeof(TableSlot) == 64);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

inline constexpr std::uint32_t kFlagSealed = 1;

struct TableHeader {
  std::uint64_t magic;
  std::uint32_t abi_version;
  std::uint32_t max_tensors;
  std::uint64_t boot_epoch;
};
static_assert(sizeof(TableHeader) <= kHeaderBytes);

struct PageHeader {
  std::uint64_t magic;
  std::uint32_t abi_version;
  std::uint32_t max_tensors;
  std::uint64_t boot_epoch;
  std::uint32_t session;
};
static_assert(sizeof(PageHeader) <= kHeaderBytes);

constexpr Bytes TableBytes(std::uint32_t max_tensors) {
  return kHeaderBytes + Bytes{max_tensors} * sizeof(TableSlot);
}
constexpr Bytes PageBytes(std::uint32_t max_tensors) {
  return RoundUp(kHeaderBytes + kFenceBytes + Bytes{max_tensors} * sizeof(std::uint32_t), 4096);
}

// Views over a mapping of TableBytes / PageBytes. They own nothing.
inline TableSlot* TableSlots(void* table) {
  return reinterpret_cast<TableSlot*>(static_cast<std::byte*>(table) + kHeaderBytes);
}
inline const TableSlot* TableSlots(const void* table) {
  return reinterpret_cast<const TableSlot*>(static_cast<const std::byte*>(table) + kHeaderBytes);
}
inline std::atomic<std::uint32_t>* PinWords(void* page) {
  return reinterpret_cast<std::atomic<std::uint32_t>*>(static_cast<std::byte*>(page) +
                                                       kHeaderBytes + kFenceBytes);
}
inline FenceArea& Fences(void* page) {
  return *reinterpret_cast<FenceArea*>(static_cast<std::byte*>(page) + kHeaderBytes);
}
static_assert(sizeof(std::atomic<std::uint32_t>) == 4);

}  // namespace hmm::share
