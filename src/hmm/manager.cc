// SPDX-License-Identifier: Apache-2.0
//
// The verbs: check, look up, act or launch a call that waits. Inspection is in inspect.cc.
#include "hmm/manager.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "hmm/allocate_op.h"
#include "hmm/bring_op.h"
#include "hmm/core.h"
#include "hmm/evict_op.h"
#include "hmm/refuse.h"
#include "policy/watermark.h"

namespace hmm::core {
namespace {

// Doomed tensors that a dead session's pins may have held, looked at in one go.
constexpr std::size_t kSweepAtReap = 1u << 16;

absl::Status Unknown() {
  return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
               "no such tensor: never allocated here, freed, or evicted");
}

absl::Status Draining() {
  return WithRetry(
      Error(absl::StatusCode::kUnavailable, Reason::kDraining, "the daemon is draining"),
      std::chrono::milliseconds(1000));
}

// Registers the call, so that Release can undo it, and ties the op to it.
absl::Status BeginCall(Core& core, Session& session, const CallContext& call) {
  return core.sessions.BeginCall(session, call).status();
}

void NoteWaiting(Core& core, const CallContext& call, OpId op) {
  if (op == 0) return;
  core.sessions.Find(call.session)->calls.at(call.call_id).op = op;
}

absl::Status CheckAhead(const Core& core, const AllocateArgs& args) {
  if (args.ahead == 0) return absl::OkStatus();
  const TensorSpec* like = nullptr;
  if (args.ahead_like.has_value()) {
    like = &*args.ahead_like;
  } else if (!args.tensors.empty()) {
    like = &args.tensors[0];
  }
  if (like == nullptr || !like->key.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 "`ahead` asks for more like `ahead_like`, or else like tensors[0]: one must be "
                 "there, without key");
  }
  // A bad tensors[0] gets an error of its own, and brings nothing ahead.
  return args.ahead_like.has_value() ? AllocateOp::CheckSpec(*like, core.options)
                                     : absl::OkStatus();
}

}  // namespace

Manager::Manager(ManagerOptions options, std::vector<std::unique_ptr<tier::Tier>> tiers,
                 copy::Copier& copier, Executor& executor, const Clock& clock,
                 copy::FragmentCopier* fragments)
    : core_(std::make_unique<Core>(std::move(options), std::move(tiers), copier, executor, clock,
                                   fragments)) {
  core_->StartTimers();
}

Manager::~Manager() = default;

std::uint64_t Manager::boot_epoch() const { return core_->options.boot_epoch; }

// --- sessions -----------------------------------------------------------------------------------

absl::StatusOr<SessionGrant> Manager::OpenSession(const SessionInfo& info) {
  if (core_->draining) return Draining();
  TierId device = 0;
  if (!info.device.empty()) {
    HMM_ASSIGN_OR_RETURN(device, core_->TierByName(info.device));
    if (!core_->Mappable(device)) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                   absl::StrCat("device ", info.device, " is not a tier that clients map"));
    }
  }
  HMM_ASSIGN_OR_RETURN(Session * session, core_->sessions.Open(info, device));
  SessionGrant grant;
  grant.session = session->id;
  grant.token = session->token;
  grant.max_tensors = core_->options.max_tensors;
  for (const auto& tier : core_->tiers) grant.tier_names.push_back(tier->name());
  auto table = share::ReopenReadOnly(core_->store.table_fd(session->tenant));
  auto page = share::Duplicate(session->page_file.get());
  if (!table.ok() || !page.ok()) {
    core_->sessions.Remove(grant.session);
    return table.ok() ? page.status() : table.status();
  }
  grant.table = *std::move(table);
  grant.page = *std::move(page);
  core_->EmitSession(*session, SessionChange::kAttached);
  return grant;
}

void Manager::CloseSession(SessionId id) {
  Session* session = core_->sessions.Find(id);
  if (session == nullptr || session->closing) return;
  session->closing = true;
  core_->EmitSession(*session, SessionChange::kClosing);
  const auto closed =
      Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the session's socket was closed");
  core_->jobs.CancelSession(id, closed);
  core_->CancelSession(id, closed);
}

void Manager::ReapSession(SessionId id) {
  CloseSession(id);
  Session* session = core_->sessions.Find(id);
  if (session == nullptr) return;
  ++core_->counters.reaped_sessions;
  core_->EmitSession(*session, SessionChange::kReaped);
  // The page goes first: its pins would keep what the session owned.
  std::vector<Handle> handles;
  handles.reserve(session->owned.size());
  for (const TensorIndex index : session->owned) {
    handles.push_back(core_->store[index].handle());
  }
  core_->Bury(id, std::move(handles));
  // What its copies under way still touch outlives it.
  core_->jobs.ForgetSession(id);
  core_->regions.ReleaseAll(id);
  core_->sessions.Remove(id);
  core_->BurySome();
  core_->relocator.SweepDoomed(kSweepAtReap);
  core_->Kick();
}

std::optional<SessionId> Manager::FindSession(const share::Token& token) const {
  return core_->sessions.FindToken(token);
}

absl::StatusOr<tier::SegmentInfo> Manager::GetSegment(SessionId id, SegmentId segment) const {
  HMM_ASSIGN_OR_RETURN(const Session* session, core_->Active(id));
  const auto none = Error(absl::StatusCode::kNotFound, Reason::kNotFound,
                          absl::StrCat("no segment ", segment, " of this tenant"));
  const TierId tier = TierOfSegment(segment);
  if (segment >> 16 >= core_->tiers.size()) return none;
  auto info = core_->tiers[tier]->Segment(segment);
  if (!info.ok() || info->tenant != session->tenant) return none;
  return info;
}

void Manager::OnTierOffline(absl::AnyInvocable<void(TierId, std::string_view)> offline) {
  core_->tier_offline = std::move(offline);
}

void Manager::OnExpel(absl::AnyInvocable<void(SessionId, std::string_view)> expel) {
  core_->expel = std::move(expel);
}

// --- verbs --------------------------------------------------------------------------------------

Manager::OpId Manager::Allocate(const CallContext& call, AllocateArgs args,
                                Callback<AllocateResult> done) {
  auto session = core_->Active(call.session);
  if (!session.ok()) return Refuse(done, session.status());
  if (auto fits = core_->CheckBatch(args.tensors.size()); !fits.ok()) return Refuse(done, fits);
  if (auto fits = core_->CheckBatch(args.taken.size()); !fits.ok()) return Refuse(done, fits);
  // Whatever becomes of the rest of the call: the client need not say it again.
  core_->MarkTaken(**session, args.taken);
  if (core_->draining && !args.tensors.empty()) return Refuse(done, Draining());
  if (auto like = CheckAhead(*core_, args); !like.ok()) return Refuse(done, like);
  TierId tier = (*session)->device;
  if (!args.tier.empty()) {
    auto named = core_->TierByName(args.tier);
    if (!named.ok()) return Refuse(done, named.status());
    if (!core_->Mappable(*named)) {
      return Refuse(
          done, Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                      absl::StrCat("tier ", args.tier,
                                   " is not mapped by clients; allocate in memory, then Swap")));
    }
    tier = *named;
  }
  if (auto begun = BeginCall(*core_, **session, call); !begun.ok()) return Refuse(done, begun);
  const OpId op = core_->Launch(
      std::make_unique<AllocateOp>(*core_, call, std::move(args), tier, std::move(done)));
  NoteWaiting(*core_, call, op);
  return op;
}

Manager::OpId Manager::Acquire(const CallContext& call, AcquireArgs args,
                               Callback<AcquireResult> done) {
  auto session = core_->Active(call.session);
  if (!session.ok()) return Refuse(done, session.status());
  if (auto fits = core_->CheckBatch(args.handles.size()); !fits.ok()) return Refuse(done, fits);
  BringArgs bring;
  if (auto target = core_->MappableByName(args.tier, bring.target); !target.ok()) {
    return Refuse(done, target);
  }
  if (auto begun = BeginCall(*core_, **session, call); !begun.ok()) return Refuse(done, begun);
  bring.handles = std::move(args.handles);
  bring.all = args.all;
  bring.allow_lower = args.allow_lower;
  const OpId op = core_->Launch(std::make_unique<BringOp>(
      *core_, call, std::move(bring),
      [done = std::move(done)](absl::StatusOr<BringResult> brought) mutable {
        if (!brought.ok()) return std::move(done)(brought.status());
        AcquireResult result;
        for (const BringItem& item : brought->items) {
          if (item.done) {
            result.tensors.push_back(Acquired{item.location, item.found});
          } else {
            result.tensors.push_back(item.error);
          }
        }
        std::move(done)(std::move(result));
      }));
  NoteWaiting(*core_, call, op);
  return op;
}

Manager::OpId Manager::Lookup(const CallContext& call, LookupArgs args,
                              Callback<LookupResult> done) {
  auto active = core_->Active(call.session);
  if (!active.ok()) return Refuse(done, active.status());
  if (auto fits = core_->CheckBatch(args.keys.size()); !fits.ok()) return Refuse(done, fits);
  BringArgs bring;
  if (auto target = core_->MappableByName(args.tier, bring.target); !target.ok()) {
    return Refuse(done, target);
  }
  Session& session = **active;
  if (!args.no_pin) {
    if (auto begun = BeginCall(*core_, session, call); !begun.ok()) return Refuse(done, begun);
  }
  LookupResult result = core_->FindRun(session, args.keys, bring.target);
  core_->counters.lookups += args.keys.size();
  if (args.no_pin || result.run.empty()) {
    core_->counters.lookup_hits += result.run.size();
    core_->counters.misses += args.keys.size() - result.run.size();
    if (!args.no_pin) session.calls.at(call.call_id).state = CallRecord::State::kDone;
    std::move(done)(std::move(result));
    return 0;
  }
  for (const Found& found : result.run) bring.handles.push_back(found.handle);
  bring.allow_lower = args.allow_lower;
  bring.run = true;
  const std::size_t asked = args.keys.size();
  const OpId op = core_->Launch(std::make_unique<BringOp>(
      *core_, call, std::move(bring),
      [core = core_.get(), asked, result = std::move(result),
       done = std::move(done)](absl::StatusOr<BringResult> brought) mutable {
        if (!brought.ok()) return std::move(done)(brought.status());
        std::size_t n = 0;
        while (n < brought->items.size() && brought->items[n].done) ++n;
        if (n < result.run.size()) {
          result.miss_reason =
              ReasonName(ReasonOf(brought->items[n].error).value_or(Reason::kInternal));
        }
        result.run.resize(n);
        for (std::size_t i = 0; i < n; ++i) result.run[i].location = brought->items[i].location;
        core->counters.lookup_hits += n;
        core->counters.misses += asked - n;
        std::move(done)(std::move(result));
      }));
  NoteWaiting(*core_, call, op);
  return op;
}

Manager::OpId Manager::Swap(const CallContext& call, SwapArgs args, Callback<SwapResult> done) {
  auto session = core_->Active(call.session);
  if (!session.ok()) return Refuse(done, session.status());
  if (auto fits = core_->CheckBatch(args.handles.size()); !fits.ok()) return Refuse(done, fits);
  auto target = core_->TierByName(args.tier);
  if (!target.ok()) return Refuse(done, target.status());
  BringArgs bring;
  bring.handles = std::move(args.handles);
  bring.target = *target;
  bring.pin = false;
  bring.cause = MoveCause::kSwap;
  return core_->Launch(std::make_unique<BringOp>(
      *core_, call, std::move(bring),
      [target = *target, done = std::move(done)](absl::StatusOr<BringResult> brought) mutable {
        if (!brought.ok()) return std::move(done)(brought.status());
        SwapResult result;
        for (const BringItem& item : brought->items) {
          if (item.done) {
            result.tensors.push_back(target);
          } else {
            result.tensors.push_back(item.error);
          }
        }
        std::move(done)(std::move(result));
      }));
}

void Manager::Cancel(OpId op) {
  core_->Cancel(op, Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the caller gave up"));
}

absl::StatusOr<std::vector<absl::Status>> Manager::Seal(SessionId id,
                                                        absl::Span<const SealItem> items) {
  HMM_ASSIGN_OR_RETURN(Session * session, core_->Active(id));
  HMM_RETURN_IF_ERROR(core_->CheckBatch(items.size()));
  std::vector<absl::Status> results;
  results.reserve(items.size());
  for (const SealItem& item : items) results.push_back(core_->SealOne(*session, item));
  core_->Kick();
  return results;
}

absl::StatusOr<std::uint32_t> Manager::Release(SessionId id, std::uint64_t call_id,
                                               std::uint64_t oldest_live_call_id) {
  HMM_ASSIGN_OR_RETURN(Session * session, core_->Active(id));
  if (call_id == 0) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument, "call_id is 0");
  }
  std::uint32_t undone = 0;
  if (call_id >= session->oldest_live_call) {
    if (session->calls.size() >= core_->options.calls_remembered_max &&
        !session->calls.contains(call_id)) {
      return WithRetry(Error(absl::StatusCode::kUnavailable, Reason::kQueueFull,
                             "too many calls remembered; advance oldest_live_call_id"),
                       std::chrono::milliseconds(10));
    }
    // A Release may overtake its call: the record made here makes the call pin nothing.
    if (const auto it = session->calls.find(call_id);
        it != session->calls.end() && it->second.state == CallRecord::State::kWaiting) {
      Cancel(it->second.op);
    }
    CallRecord& record = session->calls[call_id];
    const std::vector<MadePin> made = record.allocated ? record.pins : std::vector<MadePin>();
    undone = core_->sessions.Undo(*session, record);
    record.state = CallRecord::State::kReleased;
    for (const MadePin& ahead : record.ahead) {
      const TensorIndex index = core_->store.Find(session->tenant, {ahead.slot, ahead.generation});
      if (index != kNoIndex && core_->store[index].ahead) core_->relocator.Doom(index);
    }
    record.ahead.clear();
    for (const MadePin& pin : made) {
      // Nobody ever learned of its handle; its bytes and its key must not stay taken.
      const TensorIndex index = core_->store.Find(session->tenant, {pin.slot, pin.generation});
      if (index != kNoIndex && !core_->store[index].sealed) core_->relocator.Doom(index);
    }
  }
  core_->sessions.Forget(*session, oldest_live_call_id);
  core_->Kick();
  return undone;
}

absl::StatusOr<std::vector<absl::Status>> Manager::Prefetch(SessionId id,
                                                            const PrefetchArgs& args) {
  HMM_ASSIGN_OR_RETURN(Session * session, core_->Active(id));
  HMM_RETURN_IF_ERROR(core_->CheckBatch(args.handles.size() + args.keys.size()));
  std::optional<TierId> named;
  HMM_RETURN_IF_ERROR(core_->MappableByName(args.tier, named));
  const TierId target = named.value_or(session->device);
  // Found anew for each step: bringing one up may drop another.
  const std::size_t count = args.handles.size() + args.keys.size();
  auto find = [&](std::size_t i) {
    return i < args.handles.size()
               ? core_->store.Find(session->tenant, args.handles[i])
               : core_->store.FindKey(session->tenant, args.keys[i - args.handles.size()]);
  };
  const MoveJournal::Because why(core_->journal, MoveCause::kPrefetch, id);
  // First of a batch last: a prefix is used from its start, so its end should go first.
  for (std::size_t i = count; i-- > 0;) {
    const TensorIndex index = find(i);
    if (index == kNoIndex) continue;
    core_->TakeAhead(index);
    core_->store.Touch(index);
  }
  std::vector<absl::Status> results;
  results.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const TensorIndex index = find(i);
    results.push_back(args.in_place && index != kNoIndex
                          ? absl::OkStatus()
                          : core_->PrefetchOne(index, target, args.deadline));
  }
  core_->Kick();
  return results;
}

absl::StatusOr<std::vector<absl::StatusOr<FreeResult>>> Manager::Free(
    SessionId id, absl::Span<const Handle> handles) {
  HMM_ASSIGN_OR_RETURN(Session * session, core_->Active(id));
  HMM_RETURN_IF_ERROR(core_->CheckBatch(handles.size()));
  std::vector<absl::StatusOr<FreeResult>> results;
  results.reserve(handles.size());
  for (const Handle handle : handles) {
    const TensorIndex index = core_->store.Find(session->tenant, handle);
    if (index == kNoIndex) {
      results.push_back(Unknown());
    } else {
      results.push_back(FreeResult{core_->relocator.Doom(index)});
    }
  }
  core_->Kick();
  return results;
}

// --- administration -----------------------------------------------------------------------------

absl::Status Manager::SetWatermarks(std::string_view name, double high, double low,
                                    std::optional<Bytes> reserve) {
  const absl::Status status = DoSetWatermarks(name, high, low, reserve);
  core_->EmitAdmin("SetWatermarks", absl::StrCat(std::string(name), ", ", high, ", ", low), status);
  return status;
}

absl::Status Manager::DoSetWatermarks(std::string_view name, double high, double low,
                                      std::optional<Bytes> reserve) {
  HMM_ASSIGN_OR_RETURN(const TierId id, core_->TierByName(name));
  tier::Tier& tier = *core_->tiers[id];
  const Bytes kept = reserve.value_or(tier.options().reserve);
  HMM_RETURN_IF_ERROR(policy::ValidateWatermarks(name, {tier.limit(), high, low, kept}));
  tier.mutable_options().high = high;
  tier.mutable_options().low = low;
  tier.mutable_options().reserve = kept;
  core_->Kick();
  return absl::OkStatus();
}

Manager::OpId Manager::Evict(std::string_view name, Bytes used_bytes_max, TimePoint deadline,
                             Callback<EvictResult> done) {
  const std::string arguments = absl::StrCat(std::string(name), ", to ", used_bytes_max, " bytes");
  auto tier = core_->TierByName(name);
  if (!tier.ok()) {
    core_->EmitAdmin("Evict", arguments, tier.status());
    std::move(done)(tier.status());
    return 0;
  }
  CallContext call;
  call.deadline = deadline;
  return core_->Launch(std::make_unique<EvictOp>(
      *core_, call, *tier, used_bytes_max,
      [core = core_.get(), arguments,
       done = std::move(done)](absl::StatusOr<EvictResult> result) mutable {
        core->EmitAdmin("Evict", arguments, result.status());
        std::move(done)(std::move(result));
      }));
}

std::size_t Manager::Drain(bool on) {
  core_->draining = on;
  core_->EmitAdmin("Drain", on ? "on" : "off", absl::OkStatus());
  if (on) {
    core_->jobs.CancelSession(0, Draining());
    core_->CancelSession(0, Draining());
  }
  return core_->sessions.all().size();
}

bool Manager::draining() const { return core_->draining; }

absl::Status Manager::Validate() const { return core_->Validate(); }

const TransitionCounts& Manager::transitions() const { return core_->store.transitions(); }

const tier::Tier& Manager::tier(TierId id) const { return *core_->tiers[id]; }

std::size_t Manager::tier_count() const { return core_->tiers.size(); }

}  // namespace hmm::core
