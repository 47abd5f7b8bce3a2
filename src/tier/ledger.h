// SPDX-License-Identifier: Apache-2.0
//
// Bytes of a tier by state. They always sum to the capacity; in debug builds that is checked after
// every operation.
#pragma once

#include <array>
#include <cstddef>
#include <numeric>
#include <string_view>

#include "base/check.h"
#include "base/units.h"

namespace hmm::tier {

enum class ByteState : std::uint8_t {
  kFree,           // not committed: no memory behind it
  kCommittedFree,  // memory behind it, no extent in it
  kCreating,       // extents of tensors being written for the first time
  kResident,       // extents of tensors at rest, their clean copies, and doomed ones still pinned
  kMoving,         // extents that a copier reads or fills
  kReserved,       // promised to a call or a batch that has not begun to use them
};
inline constexpr std::size_t kByteStates = 6;
constexpr std::string_view ByteStateName(ByteState state) {
  constexpr std::array<std::string_view, kByteStates> kNames = {
      "free", "committed_free", "creating", "resident", "moving", "reserved"};
  return kNames[static_cast<std::size_t>(state)];
}

class Ledger {
 public:
  explicit Ledger(Bytes capacity) : capacity_(capacity) { at(ByteState::kFree) = capacity; }

  Bytes capacity() const { return capacity_; }
  Bytes operator[](ByteState state) const { return bytes_[static_cast<std::size_t>(state)]; }
  // Everything an extent was handed out for.
  Bytes used() const {
    return capacity_ - (*this)[ByteState::kFree] - (*this)[ByteState::kCommittedFree];
  }

  // REQUIRES: `from` holds at least `bytes`.
  void Transfer(ByteState from, ByteState to, Bytes bytes) {
    HMM_CHECK((*this)[from] >= bytes);
    at(from) -= bytes;
    at(to) += bytes;
    HMM_DCHECK(Sums());
  }

  // Grows by free bytes, or gives free bytes up. REQUIRES: there are enough.
  void Resize(Bytes capacity) {
    HMM_CHECK(capacity >= capacity_ || capacity_ - capacity <= (*this)[ByteState::kFree]);
    at(ByteState::kFree) += capacity;
    at(ByteState::kFree) -= capacity_;
    capacity_ = capacity;
    HMM_DCHECK(Sums());
  }

  bool Sums() const { return std::accumulate(bytes_.begin(), bytes_.end(), Bytes{0}) == capacity_; }

 private:
  Bytes& at(ByteState state) { return bytes_[static_cast<std::size_t>(state)]; }

  Bytes capacity_;
  std::array<Bytes, kByteStates> bytes_{};
};

}  // namespace hmm::tier
