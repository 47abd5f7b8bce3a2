// SPDX-License-Identifier: Apache-2.0
#include "hmm/bring_op.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace hmm::core {
namespace {

constexpr unsigned kAttemptsMax = 3;

bool MayPass(const absl::Status& status) {
  const auto reason = ReasonOf(status);
  return reason == Reason::kFull || reason == Reason::kPinned || reason == Reason::kNoMemory ||
         reason == Reason::kQueueFull ||
         (reason == Reason::kQuota && RetryAfter(status).has_value());
}

// Rare, and a sort of a batch costs a third of its hash table.
bool AnyTwice(const std::vector<Handle>& handles) {
  std::vector<std::uint64_t> sorted(handles.size());
  std::transform(handles.begin(), handles.end(), sorted.begin(),
                 [](Handle handle) { return handle.Pack(); });
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
}

absl::Status Unknown() {
  return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
               "no such tensor: never allocated here, freed, or evicted");
}

}  // namespace

BringOp::BringOp(Core& core, const CallContext& call, BringArgs args, Callback<BringResult> done)
    : Op(core, call), args_(std::move(args)), done_(std::move(done)) {
  if (args_.tenant.has_value()) {
    HMM_CHECK(!args_.pin);
    tenant_ = *args_.tenant;
  } else {
    const Session& session = *core_.sessions.Find(call_.session);
    tenant_ = session.tenant;
    device_ = session.device;
  }
  items_.resize(args_.handles.size());
  const bool twins = AnyTwice(args_.handles);
  absl::flat_hash_map<std::uint64_t, std::size_t> first;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    items_[i].handle = args_.handles[i];
    items_[i].twin = twins ? first.emplace(items_[i].handle.Pack(), i).first->second : i;
    items_[i].anywhere = !args_.target.has_value();
    const TensorIndex index = Find(items_[i]);
    if (index != kNoIndex) items_[i].found = core_.store.home_tier(index);
  }
}

TensorIndex BringOp::Find(const BringItem& item) const {
  return core_.store.Find(tenant_, item.handle);
}

bool BringOp::Acceptable(const BringItem& item, TierId tier) const {
  if (!args_.pin && args_.target.has_value()) return tier == *args_.target;
  return core_.Mappable(tier) && (item.anywhere || tier == *args_.target);
}

TierId BringOp::TargetOf(const BringItem& item) const {
  return item.anywhere ? core_.LowestMappable(device_) : *args_.target;
}

// --- 1: look ------------------------------------------------------------------------------------

BringOp::Place BringOp::Look(BringItem& item) {
  const TensorIndex index = Find(item);
  if (index == kNoIndex) {
    item.error = Unknown();
    return Place::kFailed;
  }
  core_.TakeAhead(index);
  const Tensor& tensor = core_.store[index];
  if (tensor.lost) {
    item.error = Error(absl::StatusCode::kDataLoss, Reason::kChecksum,
                       "the bytes on flash are not what was written, or cannot be read; recompute");
    return Place::kFailed;
  }
  if (tensor.state == TensorState::kCreating) {
    if (tensor.owner != call_.session) {
      item.error = Error(absl::StatusCode::kFailedPrecondition, Reason::kNotSealed,
                         "the tensor is still being written by another session");
      return Place::kFailed;
    }
    core_.store.Transition(index, TensorState::kResident);
  }
  if (tensor.state == TensorState::kMoving) return LookMoving(item, index);
  if (Acceptable(item, core_.store.home_tier(index))) return Place::kThere;
  if (tensor.state == TensorState::kResident && core_.sessions.Pinned(tensor)) {
    if (args_.pin && args_.allow_lower) {
      item.anywhere = true;
      return Place::kThere;
    }
    if (!args_.pin || last_chance_) {
      item.error = Error(absl::StatusCode::kFailedPrecondition, Reason::kPinned,
                         "pins hold the tensor in another tier");
      return Place::kFailed;
    }
    return Place::kPinnedElsewhere;
  }
  return Place::kMustMove;
}

BringOp::Place BringOp::LookMoving(BringItem& item, TensorIndex index) {
  if (!args_.pin && args_.target.has_value() &&
      core_.relocator.Destination(index) == *args_.target) {
    return Place::kOnItsWay;
  }
  if (!core_.relocator.Cancellable(index)) {
    core_.relocator.Raise(index, copy::Priority::kDemand);
    return Place::kOnItsWay;
  }
  // Needed where it still is, or further up: the demotion is cancelled, but only when the tensor
  // can be used at once (TakeBack). Earlier, reclaim would begin it anew while this call waits.
  return Acceptable(item, core_.store.home_tier(index)) ? Place::kThere : Place::kMustMove;
}

void BringOp::TakeBack(TensorIndex index) {
  if (core_.store[index].state == TensorState::kMoving) core_.relocator.CancelDemotion(index);
}

// --- 2: rooms -----------------------------------------------------------------------------------

void BringOp::Settle(BringItem& item) {
  for (const Room& room : item.rooms) core_.store.ReturnRoom(room);
  item.rooms.clear();
  if (item.held) {
    const TensorIndex index = Find(item);
    if (index != kNoIndex) --core_.store[index].holds;
    item.held = false;
  }
}

void BringOp::PlanPath(BringItem& item, TensorIndex index) {
  const TierId target = TargetOf(item);
  auto path = core_.reclaimer.Path(core_.store.home_tier(index), target);
  std::erase_if(path, [&](TierId hop) {
    return hop != target && std::count(item.past.begin(), item.past.end(), hop) > 0;
  });
  // Straight to where an identical copy lies already: no bytes move on that stretch.
  const auto clean = std::find_if(path.begin(), path.end(), [&](TierId hop) {
    return core_.store.FindCopy(index, hop, Copy::Role::kClean) != kNoIndex;
  });
  if (clean != path.end()) path.erase(path.begin(), clean);
  if (path == item.path) return;
  Settle(item);
  item.path = std::move(path);
}

bool BringOp::FallBack(BringItem& item, TensorIndex index) {
  if (!args_.allow_lower || !args_.pin || item.anywhere) return false;
  item.anywhere = true;
  if (core_.store[index].state != TensorState::kResident) PlanPath(item, index);
  return true;
}

absl::Status BringOp::TakeOn(TierId tier, BringItem& item, TensorIndex index) {
  auto room = core_.reclaimer.Take(tenant_, tier, core_.store[index].bytes, Purpose::kExchange);
  if (!room.ok()) return room.status();
  item.rooms.push_back(*room);
  core_.Progressed(tier, *this);
  return absl::OkStatus();
}

bool BringOp::CollectOn(TierId tier) {
  const bool mine = core_.MayTake(tier, *this);  // for all of the call, or it would never pass
  bool complete = true;
  for (BringItem& item : items_) {
    if (!item.open() || LeftToTwin(item) || Look(item) != Place::kMustMove) continue;
    const TensorIndex index = Find(item);
    PlanPath(item, index);
    const bool wants = std::count(item.path.begin(), item.path.end(), tier) > 0 &&
                       std::none_of(item.rooms.begin(), item.rooms.end(),
                                    [&](const Room& room) { return room.tier == tier; });
    if (!wants) continue;
    if (core_.store.FindCopy(index, tier, Copy::Role::kClean) != kNoIndex) continue;
    const absl::Status refused =
        mine ? TakeOn(tier, item, index)
             : WithRetry(Error(absl::StatusCode::kResourceExhausted, Reason::kFull,
                               "earlier calls wait for room"),
                         std::chrono::milliseconds(10));
    if (refused.ok()) continue;
    if (FallBack(item, index)) continue;  // a slower tier's turn comes later in this pass
    if (ReasonOf(refused) == Reason::kPinned && tier != TargetOf(item)) {
      // Pins may stay for long, and only a copy's detour is at stake.
      item.past.push_back(tier);
      std::erase(item.path, tier);
      continue;
    }
    if (!MayPass(refused) || last_chance_) {
      item.error = refused;
      Settle(item);
      continue;
    }
    // No room helps against a quota: it must not hold up those whom it would.
    if (ReasonOf(refused) != Reason::kQuota) core_.Queue(tier, *this);
    complete = false;
    break;
  }
  if (complete) {
    core_.Unqueue(*this, tier);
  } else if (!core_.First(tier, *this)) {
    for (BringItem& item : items_) {
      std::erase_if(item.rooms, [&](const Room& room) {
        if (room.tier == tier) core_.store.ReturnRoom(room);
        return room.tier == tier;
      });
    }
  }
  return complete;
}

BringOp::Rooms BringOp::CollectRooms() {
  // Held meanwhile: making room for one must not send another (or itself) further down.
  std::vector<TensorIndex> held;
  for (BringItem& item : items_) {
    if (!item.open()) continue;
    const Place place = Look(item);
    if (place == Place::kMustMove) held.push_back(Find(item));
    if (place != Place::kPinnedElsewhere || !args_.all) continue;
    // Hold nothing while somebody else's pin is in the way.
    for (BringItem& other : items_) Settle(other);
    return Rooms::kMissing;
  }
  if (held.empty()) return Rooms::kNotNeeded;
  for (const TensorIndex index : held) ++core_.store[index].holds;
  bool complete = true;
  for (std::size_t tier = 0; complete && tier < core_.tiers.size(); ++tier) {
    complete = CollectOn(static_cast<TierId>(tier));
  }
  for (const TensorIndex index : held) --core_.store[index].holds;
  return complete ? Rooms::kCollected : Rooms::kMissing;
}

// --- 3: moves -----------------------------------------------------------------------------------

void BringOp::StartMoves() {
  for (BringItem& item : items_) {
    if (!item.open() || LeftToTwin(item) || Look(item) != Place::kMustMove) continue;
    const TensorIndex index = Find(item);
    PlanPath(item, index);
    absl::Status started;
    if (core_.store.FindCopy(index, item.path.front(), Copy::Role::kClean) != kNoIndex) {
      TakeBack(index);
      started = core_.relocator.SwitchToClean(index, item.path.front());
    } else {
      std::vector<Room> rooms;
      for (const TierId hop : item.path) {
        const auto at = std::find_if(item.rooms.begin(), item.rooms.end(),
                                     [&](const Room& room) { return room.tier == hop; });
        if (at == item.rooms.end()) break;
        rooms.push_back(*at);
      }
      if (rooms.empty() || rooms.size() != item.path.size()) continue;  // the next look collects
      item.rooms.clear();
      if (item.attempts >= kAttemptsMax) {
        for (const Room& room : rooms) core_.store.ReturnRoom(room);
        item.error = Error(absl::StatusCode::kUnavailable, Reason::kIo,
                           absl::StrCat("moves of the tensor failed ", kAttemptsMax, " times"));
        continue;
      }
      TakeBack(index);
      started = core_.relocator.Start(index, std::move(rooms), copy::Priority::kDemand);
      if (started.ok()) ++item.attempts;
    }
    if (started.ok()) {
      if (!item.held && core_.store[index].state != TensorState::kGone) {
        ++core_.store[index].holds;
        item.held = true;
      }
    } else if (!args_.pin || last_chance_) {
      item.error = started;
    }
  }
}

// --- 4: pins and the answer ----------------------------------------------------------------------

void BringOp::PinArrived() {
  if (std::none_of(items_.begin(), items_.end(), [](const BringItem& i) { return i.open(); })) {
    return;
  }
  // Looked up once: a batch is as fast as what it does for each element.
  Session* session = args_.pin ? core_.sessions.Find(call_.session) : nullptr;
  CallRecord* record = args_.pin ? &session->calls.at(call_.call_id) : nullptr;
  const TimePoint now = core_.clock.Now();
  for (BringItem& item : items_) {
    if (!item.open()) continue;
    const Place place = Look(item);
    if (place == Place::kThere) {
      const TensorIndex index = Find(item);
      const TierId tier = core_.store.home_tier(index);
      TakeBack(index);
      if (args_.pin) {
        item.error = core_.sessions.PinFor(*session, core_.store[index], tier,
                                           core_.tiers[tier]->capacity(), *record, now);
      }
      Settle(item);
      item.location = core_.LocationOf(index);
      item.done = item.error.ok();
    } else if (last_chance_ && item.error.ok()) {
      item.error = Error(absl::StatusCode::kDeadlineExceeded, Reason::kDeadline,
                         "the deadline passed while the tensor was on its way");
    }
    if (!item.error.ok()) Settle(item);
  }
}

void BringOp::Unpin(BringItem& item) {
  Session& session = *core_.sessions.Find(call_.session);
  CallRecord& record = session.calls.at(call_.call_id);
  const auto made = std::find_if(record.pins.begin(), record.pins.end(), [&](const MadePin& pin) {
    return pin.slot == item.handle.slot && pin.generation == item.handle.generation;
  });
  HMM_CHECK(made != record.pins.end());
  core_.sessions.UndoOne(session, *made);
  record.pins.erase(made);
  item.done = false;
}

void BringOp::DropDead() {
  // Freed by another while this call waited for the rest: its handle is dead, so is our pin.
  for (BringItem& item : items_) {
    if (!item.done || !args_.pin || Find(item) != kNoIndex) continue;
    Unpin(item);
    item.error = Unknown();
  }
}

void BringOp::CutRun() {
  // Beyond the first that is not to be had nothing is of use.
  const auto first = std::find_if(items_.begin(), items_.end(),
                                  [](const BringItem& item) { return !item.error.ok(); });
  if (first == items_.end()) return;
  for (auto it = std::next(first); it != items_.end(); ++it) {
    if (it->done) Unpin(*it);
    Settle(*it);
  }
  items_.erase(std::next(first), items_.end());
}

bool BringOp::Step() {
  DropDead();
  if (args_.run) CutRun();
  // Pins are taken only once no room is waited for: a call that holds pins while it waits could
  // lock out the very reclaim it waits for.
  if (const Rooms rooms = CollectRooms(); rooms != Rooms::kMissing) {
    if (rooms == Rooms::kCollected) StartMoves();
    PinArrived();
    if (args_.run) CutRun();
  }
  return FinishIfDone();
}

bool BringOp::FinishIfDone() {
  for (std::size_t i = 0; args_.all && i < items_.size(); ++i) {
    if (items_[i].error.ok()) continue;
    const absl::Status why = items_[i].error;
    Undo();
    std::move(done_)(items_.size() > 1 ? Annotate(why, absl::StrCat("element ", i)) : why);
    return true;
  }
  if (std::any_of(items_.begin(), items_.end(),
                  [](const BringItem& item) { return item.open(); })) {
    return false;
  }
  for (BringItem& item : items_) Settle(item);
  if (args_.pin) {
    core_.sessions.Find(call_.session)->calls.at(call_.call_id).state = CallRecord::State::kDone;
    // First of a batch last: a prefix is used from its start, so its end should go first.
    const TimePoint now = core_.clock.Now();
    for (auto it = items_.rbegin(); it != items_.rend(); ++it) {
      if (!it->done) continue;
      core_.store.Touch(Find(*it), now);
      ++core_.hits[it->found];
    }
  }
  std::move(done_)(BringResult{std::move(items_)});
  return true;
}

void BringOp::Undo() {
  for (BringItem& item : items_) Settle(item);
  core_.Kick();
  Session* session = core_.sessions.Find(call_.session);
  if (!args_.pin || session == nullptr) return;
  CallRecord& record = session->calls.at(call_.call_id);
  core_.sessions.Undo(*session, record);
  if (record.state == CallRecord::State::kWaiting) record.state = CallRecord::State::kDone;
}

void BringOp::End(const absl::Status& why) {
  if (why.ok()) {
    last_chance_ = true;
    if (!Step()) {
      // Some wait for pins of others or for copies: say so and stop.
      PinArrived();
      HMM_CHECK(FinishIfDone());
    }
    return;
  }
  Undo();
  std::move(done_)(why);
}

}  // namespace hmm::core
