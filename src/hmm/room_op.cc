// SPDX-License-Identifier: Apache-2.0
#include "hmm/room_op.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace hmm::core {
namespace {

bool MayPass(const absl::Status& status) {
  const auto reason = ReasonOf(status);
  return reason == Reason::kFull || reason == Reason::kPinned || reason == Reason::kNoMemory ||
         (reason == Reason::kQuota && RetryAfter(status).has_value());
}

}  // namespace

absl::StatusOr<Room> RoomOp::TakeIn(TierId tier) {
  const tier::Tier& medium = *core_.tiers[tier];
  if (!core_.MayTake(tier, *this)) {
    return WithRetry(Error(absl::StatusCode::kResourceExhausted, Reason::kFull,
                           absl::StrCat("tier ", medium.name(),
                                        " has no room beyond what earlier calls wait for")),
                     std::chrono::milliseconds(10));
  }
  Session* session = core_.sessions.Find(call_.session);
  if (args_.fixed && session != nullptr && args_.bytes <= medium.capacity()) {
    HMM_RETURN_IF_ERROR(core_.sessions.CheckQuota(*session, tier, medium.capacity(), args_.bytes));
  }
  auto room = core_.reclaimer.Take(args_.tenant, tier, args_.bytes, Purpose::kAllocate);
  if (room.ok()) core_.Progressed(tier, *this);
  return room;
}

bool RoomOp::Step() {
  auto room = TakeIn(args_.tier);
  TierId waits_in = args_.tier;  // the fastest that can ever hold it
  for (auto at = core_.reclaimer.Below(args_.tier);
       args_.allow_lower && !room.ok() && at.has_value() && core_.Mappable(*at);
       at = core_.reclaimer.Below(*at)) {
    auto lower = TakeIn(*at);
    if (!lower.ok() && (MayPass(room.status()) || !MayPass(lower.status()))) continue;
    room = std::move(lower);
    waits_in = *at;
  }
  if (!room.ok() && args_.wait && !last_chance_ && MayPass(room.status())) {
    if (ReasonOf(room.status()) == Reason::kQuota) {
      // No room helps: it must not hold up those whom it would.
      core_.Unqueue(*this, waits_in);
    } else {
      core_.Queue(waits_in, *this);
    }
    return false;
  }
  std::move(done_)(std::move(room));
  return true;
}

void RoomOp::End(const absl::Status& why) {
  if (!why.ok()) return std::move(done_)(why);
  last_chance_ = true;
  HMM_CHECK(Step());
}

}  // namespace hmm::core
