// SPDX-License-Identifier: Apache-2.0
#include "hmm/allocate_op.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace hmm::core {
namespace {

// Waiting can help against these; anything else is an answer at once.
bool MayPass(const absl::Status& status) {
  const auto reason = ReasonOf(status);
  return reason == Reason::kFull || reason == Reason::kPinned || reason == Reason::kNoMemory ||
         (reason == Reason::kQuota && RetryAfter(status).has_value());
}

absl::Status InOrder(std::string_view tier) {
  return WithRetry(Error(absl::StatusCode::kResourceExhausted, Reason::kFull,
                         absl::StrCat("tier ", std::string(tier),
                                      " has no room beyond what earlier calls wait for")),
                   std::chrono::milliseconds(10));
}

}  // namespace

AllocateOp::AllocateOp(Core& core, const CallContext& call, AllocateArgs args, TierId tier,
                       Callback<AllocateResult> done)
    : Op(core, call), args_(std::move(args)), tier_(tier), done_(std::move(done)) {
  items_.resize(args_.tensors.size());
  collected_.resize(core.tiers.size(), 0);
  CheckSpecs();
}

absl::Status AllocateOp::CheckSpec(const TensorSpec& spec, const ManagerOptions& options) {
  const auto bad = [](Reason reason, std::string message) {
    return Error(absl::StatusCode::kInvalidArgument, reason, std::move(message));
  };
  if (spec.bytes == 0) return bad(Reason::kBadSize, "bytes is 0; a tensor has at least 1 byte");
  if (spec.key.size() > options.key_bytes_max) {
    return bad(Reason::kBadArgument, absl::StrCat("the key has ", spec.key.size(),
                                                  " bytes, at most ", options.key_bytes_max));
  }
  if (spec.priority > 7) {
    return bad(Reason::kBadArgument,
               absl::StrCat("priority is ", spec.priority, "; 0 to 7 are known"));
  }
  return absl::OkStatus();
}

void AllocateOp::CheckSpecs() {
  const TenantId tenant = core_.sessions.Find(call_.session)->tenant;
  absl::flat_hash_set<std::string> keys;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const TensorSpec& spec = args_.tensors[i];
    items_[i].error = CheckSpec(spec, core_.options);
    if (items_[i].error.ok() && !spec.key.empty() &&
        (core_.store.FindKey(tenant, spec.key) != kNoIndex || !keys.insert(spec.key).second)) {
      items_[i].error = Error(absl::StatusCode::kAlreadyExists, Reason::kExists,
                              "the key is taken by another tensor of this tenant");
    }
  }
}

absl::Status AllocateOp::TakeFor(std::size_t i, TierId tier) {
  Session& session = *core_.sessions.Find(call_.session);
  const Bytes bytes = args_.tensors[i].bytes;
  if (bytes <= core_.tiers[tier]->capacity()) {
    HMM_RETURN_IF_ERROR(core_.sessions.CheckQuota(session, tier, core_.tiers[tier]->capacity(),
                                                  collected_[tier] + bytes));
  }
  auto room = core_.reclaimer.Take(session.tenant, tier, bytes, Purpose::kAllocate);
  if (!room.ok()) return room.status();
  items_[i].room = *room;
  collected_[tier] += room->extent.length;
  core_.Progressed(tier, *this);
  return absl::OkStatus();
}

bool AllocateOp::Collect() {
  const bool mine = core_.MayTake(tier_, *this);
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (!items_[i].open()) continue;
    absl::Status refused = mine ? TakeFor(i, tier_) : InOrder(core_.tiers[tier_]->name());
    if (args_.allow_lower && !refused.ok()) {
      for (auto at = core_.reclaimer.Below(tier_);
           at.has_value() && core_.Mappable(*at) && !refused.ok();
           at = core_.reclaimer.Below(*at)) {
        if (core_.MayTake(*at, *this)) refused = TakeFor(i, *at);
      }
    }
    if (refused.ok()) continue;
    if (!MayPass(refused) || !args_.wait || last_chance_) {
      items_[i].error = refused;
      continue;
    }
    if (ReasonOf(refused) == Reason::kQuota) {
      // No room helps: it must not hold up those whom it would.
      core_.Unqueue(*this, tier_);
    } else {
      // The first that has to wait holds the place for the others of its call.
      core_.Queue(tier_, *this);
    }
    ReturnRoomsToWait();
    return false;
  }
  return true;
}

bool AllocateOp::Step() {
  if (FailIfAll()) return true;
  if (!Collect()) return false;
  return FailIfAll() || Finish();
}

bool AllocateOp::FailIfAll() {
  if (!args_.all) return false;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (!items_[i].error.ok()) return FailAll(i, items_[i].error);
  }
  return false;
}

absl::StatusOr<Allocated> AllocateOp::CreateOne(Session& session, CallRecord& record, std::size_t i,
                                                TimePoint now) {
  Item& item = items_[i];
  if (!item.error.ok()) return item.error;
  auto index = core_.store.Create(session.tenant, session.id, args_.tensors[i], *item.room);
  if (!index.ok()) return index.status();
  item.room.reset();
  session.owned.insert(*index);
  // Accesses of the slot's earlier tensors are none of its own.
  core_.store[*index].accesses_seen = core_.sessions.AccessSum(core_.store[*index]);
  const TierId tier = core_.store.home_tier(*index);
  const absl::Status pinned = core_.sessions.PinFor(session, core_.store[*index], tier,
                                                    core_.tiers[tier]->capacity(), record, now);
  if (!pinned.ok()) {
    core_.relocator.Doom(*index);
    return pinned;
  }
  return Allocated{core_.store[*index].handle(), core_.LocationOf(*index)};
}

bool AllocateOp::Finish() {
  Session& session = *core_.sessions.Find(call_.session);
  CallRecord& record = session.calls.at(call_.call_id);
  const TimePoint now = core_.clock.Now();  // once for all: it costs more than the rest of a pin
  AllocateResult result;
  result.tensors.reserve(items_.size());
  for (std::size_t i = 0; i < items_.size(); ++i) {
    result.tensors.push_back(CreateOne(session, record, i, now));
    if (args_.all && !result.tensors.back().ok()) {
      const absl::Status why = result.tensors.back().status();
      for (const auto& made : result.tensors) {
        if (!made.ok()) continue;
        const TensorIndex index = core_.store.Find(session.tenant, made->handle);
        core_.sessions.UndoOne(session, {made->handle.slot, made->handle.generation});
        core_.relocator.Doom(index);
      }
      record.pins.clear();
      return FailAll(i, why);
    }
  }
  ReturnRooms();  // of those that could not be created after all
  for (std::size_t i = result.tensors.size(); i-- > 0;) {
    ++(result.tensors[i].ok() ? core_.counters.allocations : core_.counters.allocation_failures);
    // First of a batch last: a prefix is used from its start, so its end should go first.
    if (result.tensors[i].ok()) {
      core_.store.Touch(core_.store.Find(session.tenant, result.tensors[i]->handle), now);
    }
  }
  FillAhead(session, record, result);
  record.state = CallRecord::State::kDone;
  record.allocated = true;
  // Room was taken, nothing came free: a look is for nobody, as long as the tiers are below their
  // marks, and a kick is an alarm of the queue.
  if (core_.waiting() > 0 || core_.reclaimer.WantsBackground()) core_.Kick();
  std::move(done_)(std::move(result));
  return true;
}

void AllocateOp::FillAhead(Session& session, CallRecord& record, AllocateResult& result) {
  // Not while others wait for room, nor when a tensor of this call had to go elsewhere.
  if (args_.ahead == 0 || core_.draining || !core_.NobodyElse(tier_, *this)) return;
  for (const auto& made : result.tensors) {
    if (!made.ok() || made->location.tier != tier_) return;
  }
  const TensorSpec& spec = args_.ahead_like.has_value() ? *args_.ahead_like : args_.tensors[0];
  const ManagerOptions& options = core_.options;
  const std::size_t wanted = std::min(args_.ahead, options.batch_max);
  const Bytes capacity = core_.tiers[tier_]->capacity();
  const Bytes length = core_.tiers[tier_]->LengthFor(spec.bytes);
  while (result.ahead.size() < wanted) {
    const TensorStore::AheadUse use = core_.store.ahead_of(session.id);
    if (use.tensors >= options.ahead_max || use.bytes + length > options.ahead_bytes_max) break;
    // Each may be pinned without our hearing of it: all together must fit the session's share.
    if (!core_.sessions.WouldFit(session, tier_, capacity, use.bytes + length)) break;
    const auto room = core_.reclaimer.TakeSpare(session.tenant, tier_, spec.bytes);
    if (!room.has_value()) break;
    const auto index = core_.store.CreateAhead(session.tenant, session.id, spec, *room);
    if (!index.ok()) {  // no slots
      core_.store.ReturnRoom(*room);
      break;
    }
    session.owned.insert(*index);
    Tensor& tensor = core_.store[*index];
    tensor.accesses_seen = core_.sessions.AccessSum(tensor);
    record.ahead.push_back({tensor.slot, tensor.generation});
    result.ahead.push_back({tensor.handle(), core_.LocationOf(*index)});
  }
}

bool AllocateOp::FailAll(std::size_t i, const absl::Status& why) {
  ReturnRooms();
  core_.Kick();
  ++core_.counters.allocation_failures;
  if (Session* session = core_.sessions.Find(call_.session)) {
    session->calls.at(call_.call_id).state = CallRecord::State::kDone;
  }
  std::move(done_)(items_.size() > 1 ? Annotate(why, absl::StrCat("element ", i)) : why);
  return true;
}

void AllocateOp::End(const absl::Status& why) {
  if (why.ok()) {
    // The deadline: what is there is given, the rest says why not.
    last_chance_ = true;
    HMM_CHECK(Step());
    return;
  }
  ReturnRooms();
  if (Session* session = core_.sessions.Find(call_.session)) {
    CallRecord& record = session->calls.at(call_.call_id);
    if (record.state == CallRecord::State::kWaiting) record.state = CallRecord::State::kDone;
  }
  std::move(done_)(why);
}

void AllocateOp::ReturnRooms() {
  for (Item& item : items_) {
    if (item.room.has_value()) core_.store.ReturnRoom(*item.room);
    item.room.reset();
  }
}

void AllocateOp::ReturnRoomsToWait() {
  const bool first = core_.First(tier_, *this);
  for (Item& item : items_) {
    if (!item.room.has_value() || (first && item.room->tier == tier_)) continue;
    collected_[item.room->tier] -= item.room->extent.length;
    core_.store.ReturnRoom(*item.room);
    item.room.reset();
  }
}

}  // namespace hmm::core
