// SPDX-License-Identifier: Apache-2.0
//
// What happened, for whoever watches: one ring of bounded length. Every event has a number; a
// reader keeps the number of the last one it took and asks for those after it. A reader that the
// ring has overtaken learns so and is dropped by its owner: nobody is ever waited for, and memory
// does not depend on how many watch.
//
//   oldest()            a reader's place               last()
//      |........................|........................|    next Emit overwrites the oldest
//
// One thread (the executor's).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/ids.h"
#include "base/units.h"
#include "hmm/moves.h"
#include "tier/tier.h"

namespace hmm::core {

inline constexpr TenantId kNoTenant = std::numeric_limits<TenantId>::max();
inline constexpr TierId kNoTier = std::numeric_limits<TierId>::max();

// Numbers as in proto/hmm/v1/inspection.proto.
enum class EventType : std::uint8_t {
  kTensor = 1,
  kMove = 2,
  kWatermark = 3,
  kSession = 4,
  kTierHealth = 5,
  kAdmin = 6,
};
enum class MarkCrossed : std::uint8_t { kNone = 0, kAboveHigh = 1, kBelowLow = 2 };
enum class SessionChange : std::uint8_t {
  kNone = 0,
  kAttached = 1,
  kClosing = 2,
  kReaped = 3,
  kExpelled = 4,
};

// Flat rather than a variant: a slot of the ring is written over in place, its texts keep their
// memory.
struct Event {
  std::uint64_t sequence = 0;
  TimePoint time{};
  EventType type = EventType::kTensor;
  TenantId tenant = kNoTenant;  // whose tensor or session; kNoTenant: nobody's
  TierId tier = kNoTier;        // home of the tensor; source of the move; the tier it is about
  // Tensor and move.
  Handle handle;
  TensorKind kind = TensorKind::kOther;
  TensorState from = TensorState::kGone;
  TensorState to = TensorState::kGone;
  Bytes bytes = 0;
  MoveCause cause = MoveCause::kNone;
  MoveRecord move;
  // Watermark.
  MarkCrossed mark = MarkCrossed::kNone;
  Bytes used = 0;
  Bytes mark_bytes = 0;
  // Session.
  SessionChange change = SessionChange::kNone;
  SessionId session = 0;
  std::uint32_t uid = 0;
  std::uint32_t pid = 0;
  std::uint64_t pins = 0;
  // Tier health: the state before; what follows is asked of the manager.
  tier::TierState before = tier::TierState::kOnline;
  tier::TierState after = tier::TierState::kOnline;

  std::string key;   // of the tensor; action of an admin
  std::string text;  // command of the session; arguments of the action; note of the tier
  std::string why;   // of an expulsion; reason of a refused action
};

class EventBus {
 public:
  // Keeps the last `kept` events (> 0).
  EventBus(std::size_t kept, Executor& executor, const Clock& clock);

  // The slot to fill for the next event: cleared but for number, time and type.
  Event& Emit(EventType type);

  std::uint64_t last() const { return last_; }  // number of the latest; 0: none yet
  // Number of the oldest that is kept; last() + 1 when none is.
  std::uint64_t oldest() const { return last_ > kept_ ? last_ - kept_ + 1 : 1; }
  // REQUIRES: oldest() <= sequence <= last().
  const Event& at(std::uint64_t sequence) const { return ring_[sequence % kept_]; }

  // `on_events` runs on the executor some milliseconds after there were new ones, once for all of
  // them; never from inside Emit.
  using Subscription = std::uint64_t;
  Subscription Subscribe(std::function<void()> on_events);
  void Unsubscribe(Subscription subscription);

 private:
  void Tick();

  const std::size_t kept_;
  Executor& executor_;
  const Clock& clock_;
  std::vector<Event> ring_;  // grows to kept_, then goes round; event n at n % kept_
  std::uint64_t last_ = 0;
  std::map<Subscription, std::function<void()>> subscribers_;
  Subscription next_ = 1;
  bool ticking_ = false;
  // Tasks on the executor hold it weakly: they outlive us at shutdown.
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace hmm::core
