// SPDX-License-Identifier: Apache-2.0
//
// The names of things, shared by every layer: kinds, states and numeric identities. Their wire form
// is in proto/hmm/v1/common.proto, whose numbers these equal (checked in daemon/convert.cc).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hmm {

using TenantId = std::uint32_t;   // dense, assigned by the daemon; never reused in one epoch
using SessionId = std::uint32_t;  // never reused in one epoch; 0 is "none"
using TierId = std::uint8_t;      // index of the tier in the daemon's list, fastest first
using SegmentId =
    std::uint32_t;  // (TierId << 16) | ordinal within the tier, ordinal from 1; 0 "none"

constexpr TierId TierOfSegment(SegmentId segment) { return static_cast<TierId>(segment >> 16); }

enum class TierKind : std::uint8_t { kHbm = 1, kDdr = 2, kFlash = 3 };
constexpr std::string_view TierKindName(TierKind kind) {
  switch (kind) {
    case TierKind::kHbm:
      return "hbm";
    case TierKind::kDdr:
      return "ddr";
    case TierKind::kFlash:
      return "flash";
  }
  return "unknown";
}

enum class TensorKind : std::uint8_t {
  kWeight = 1,
  kKvCache = 2,
  kActivation = 3,
  kOptimizerState = 4,
  kOther = 5,
};
constexpr std::string_view TensorKindName(TensorKind kind) {
  switch (kind) {
    case TensorKind::kWeight:
      return "weight";
    case TensorKind::kKvCache:
      return "kv_cache";
    case TensorKind::kActivation:
      return "activation";
    case TensorKind::kOptimizerState:
      return "optimizer_state";
    case TensorKind::kOther:
      return "other";
  }
  return "unknown";
}

// The states of design section 4; the values appear in the residency table (share/layout.h).
enum class TensorState : std::uint8_t {
  kGone = 0,
  kCreating = 1,
  kResident = 2,
  kMoving = 3,
  kAbsent = 4,
  kDoomed = 5,
};
inline constexpr std::size_t kTensorStates = 6;
constexpr std::string_view TensorStateName(TensorState state) {
  constexpr std::array<std::string_view, kTensorStates> kNames = {"gone",   "creating", "resident",
                                                                  "moving", "absent",   "doomed"};
  return kNames[static_cast<std::size_t>(state)];
}

// A tensor's handle: slot in its tenant's residency table and the slot's generation at allocation.
// 0 is never a valid handle (generations start at 1).
struct Handle {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  friend constexpr bool operator==(const Handle&, const Handle&) = default;
  constexpr std::uint64_t Pack() const {
    return (static_cast<std::uint64_t>(generation) << 32) | slot;
  }
  static constexpr Handle Unpack(std::uint64_t packed) {
    return {static_cast<std::uint32_t>(packed), static_cast<std::uint32_t>(packed >> 32)};
  }
};

}  // namespace hmm
