// SPDX-License-Identifier: Apache-2.0
//
// Why moves happen: whoever decides says so before it acts (`MoveJournal::Because`), and each move
// is remembered with what was known when it was decided, the last ones of all tensors in one ring.
//
// One thread (the executor's).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/units.h"

namespace hmm::core {

// Numbers as in proto/hmm/v1/inspection.proto.
enum class MoveCause : std::uint8_t {
  kNone = 0,
  kDemand = 1,
  kPrefetch = 2,
  kSwap = 3,
  kRoom = 4,
  kWatermark = 5,
  kAdminEvict = 6,
  kAdminSwap = 7,
  kAdminPrefetch = 8,
  kResize = 9,
  kCompact = 10,
  kTierFailed = 11,
  kPlan = 12,
};
constexpr std::string_view MoveCauseName(MoveCause cause) {
  constexpr std::array<std::string_view, 13> kNames = {
      "none",      "demand",      "prefetch",   "swap",           "room",
      "watermark", "admin_evict", "admin_swap", "admin_prefetch", "resize",
      "compact",   "tier_failed", "plan"};
  return kNames[static_cast<std::size_t>(cause)];
}

enum class MoveOutcome : std::uint8_t {
  kNone = 0,
  kMoved = 1,
  kClean = 2,
  kDropped = 3,
  kTakenBack = 4,
  kFailed = 5,
};

// What decided a move, when it was decided.
struct Decision {
  MoveCause cause = MoveCause::kNone;
  SessionId session = 0;  // whose call; 0: nobody's
  TimePoint when{};
  Bytes used = 0;      // of the tier the tensor was in
  Bytes capacity = 0;  // likewise; the one it is to have, while it shrinks
  Duration idle{};     // of the tensor, as far as known then
  std::uint8_t priority = 0;
};

struct MoveRecord {
  TimePoint end{};
  Decision decision;
  Bytes bytes = 0;
  TierId from = 0;
  TierId to = 0;
  MoveOutcome outcome = MoveOutcome::kNone;
  std::optional<Reason> error;
  std::uint64_t previous = 0;  // number of the same tensor's record before; 0: none
};

class MoveJournal {
 public:
  explicit MoveJournal(std::size_t kept) : kept_(kept) { HMM_CHECK(kept > 0); }

  // Says why what is done in this scope is done. The innermost counts.
  class Because {
   public:
    Because(MoveJournal& journal, MoveCause cause, SessionId session = 0)
        : journal_(journal), outer_cause_(journal.cause_), outer_session_(journal.session_) {
      journal.cause_ = cause;
      journal.session_ = session;
    }
    ~Because() {
      journal_.cause_ = outer_cause_;
      journal_.session_ = outer_session_;
    }
    Because(const Because&) = delete;
    Because& operator=(const Because&) = delete;

   private:
    MoveJournal& journal_;
    MoveCause outer_cause_;
    SessionId outer_session_;
  };
  MoveCause cause() const { return cause_; }
  SessionId session() const { return session_; }

  // Returns the record's number, from 1 on.
  std::uint64_t Add(const MoveRecord& record) {
    ++last_;
    if (records_.size() < kept_) records_.resize(std::min<std::size_t>(kept_, last_ + 1));
    records_[last_ % kept_] = record;
    return last_;
  }
  // nullptr: 0, or not kept any more.
  const MoveRecord* Find(std::uint64_t number) const {
    if (number == 0 || number > last_ || last_ - number >= kept_) return nullptr;
    return &records_[number % kept_];
  }

 private:
  const std::size_t kept_;
  std::vector<MoveRecord> records_;  // grows to kept_; number n at n % kept_
  std::uint64_t last_ = 0;
  MoveCause cause_ = MoveCause::kNone;
  SessionId session_ = 0;
};

}  // namespace hmm::core
