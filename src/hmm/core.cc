// SPDX-License-Identifier: Apache-2.0
#include "hmm/core.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace hmm::core {
namespace {

constexpr std::size_t kSweepWords = 1u << 13;  // pin words read a look for doomed tensors
constexpr std::size_t kBuryMax = 1u << 13;
constexpr std::size_t kAuditWords = 1u << 18;
constexpr unsigned kErrorsOffline = 3;
constexpr Bytes kExcessMax = 16 * kMiB;  // pages behind our back that a tenant may cause, at most
// Before a link has moved anything: what a small machine does. Estimates only.
constexpr double kMemoryBytesPerSecond = 8e9;
constexpr double kFlashBytesPerSecond = 1e9;

}  // namespace

Core::Core(ManagerOptions o, Tiers t, copy::Copier& copier, Executor& e, const Clock& c)
    : options(std::move(o)),
      tiers(std::move(t)),
      executor(e),
      clock(c),
      started_at(c.Now()),
      hits(tiers.size(), 0),
      store(options, tiers, clock),
      sessions(options, store, tiers.size(), clock),
      relocator(options, tiers, store, sessions, copier, executor, clock, counters,
                [this] { Kick(); }),
      reclaimer(options, tiers, store, sessions, relocator, counters),
      rooms_(tiers.size()) {
  HMM_CHECK(!tiers.empty() && tiers.size() <= share::kMaxTiers && tiers[0]->mappable());
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    if (!tiers[i]->degraded()) continue;
    reclaimer.SetState(static_cast<TierId>(i), tier::TierState::kDegraded, tiers[i]->note());
  }
}

// --- calls that wait ----------------------------------------------------------------------------

OpId Core::Launch(std::unique_ptr<Op> op) {
  op->id_ = next_op_++;
  if (op->Step()) {
    Unqueue(*op);
    return 0;
  }
  if (ops_.size() >= options.waiting_max) {
    op->End(WithRetry(Error(absl::StatusCode::kUnavailable, Reason::kQueueFull,
                            absl::StrCat("already ", ops_.size(), " calls wait")),
                      std::chrono::milliseconds(10)));
    Unqueue(*op);
    return 0;
  }
  const OpId id = op->id_;
  ops_.emplace(id, std::move(op));
  Arm();
  return id;
}

void Core::Cancel(OpId id, const absl::Status& why) {
  auto node = ops_.extract(id);
  if (node.empty()) return;
  Unqueue(*node.mapped());
  node.mapped()->End(why);
  Kick();
}

void Core::CancelSession(SessionId session, const absl::Status& why) {
  std::vector<OpId> ids;
  for (const auto& [id, op] : ops_) {
    if (session == 0 || op->call().session == session) ids.push_back(id);
  }
  for (const OpId id : ids) Cancel(id, why);
}

void Core::Kick() {
  if (kicked_) return;
  kicked_ = true;
  executor.Post([this, alive = std::weak_ptr<int>(alive_)] {
    if (alive.expired()) return;
    kicked_ = false;
    Look();
  });
}

void Core::Arm() {
  if (armed_) return;
  if (ops_.empty() && !relocator.doomed_waiting() && !relocator.hints_waiting()) return;
  armed_ = true;
  executor.PostAfter(options.rescan, [this, alive = std::weak_ptr<int>(alive_)] {
    if (alive.expired()) return;
    armed_ = false;
    Look();
  });
}

void Core::Look() {
  // Callbacks of ops may call back into verbs, which kick; a look inside a look would step an op
  // that is being stepped.
  if (looking_) return;
  looking_ = true;
  WatchTiers();
  relocator.DropStaleHints();
  BurySome();
  relocator.SweepDoomed(std::max<std::size_t>(1, kSweepWords / (sessions.all().size() + 1)));
  for (std::size_t i = 0; i < rooms_.size(); ++i) {
    // Room is being made: that is progress of whoever is first there.
    if (relocator.leaving_bytes(static_cast<TierId>(i)) > 0) rooms_[i].progressed = clock.Now();
  }
  std::vector<OpId> ids;
  ids.reserve(ops_.size());
  for (const auto& [id, op] : ops_) ids.push_back(id);
  const TimePoint now = clock.Now();
  for (const OpId id : ids) {
    // Out of the table while it is stepped: its callback may end any call that waits.
    auto node = ops_.extract(id);
    if (node.empty()) continue;  // ended by another's callback
    Op& op = *node.mapped();
    const bool done = op.Step();
    if (!done && now < op.call().deadline) {
      ops_.insert(std::move(node));
      continue;
    }
    Unqueue(op);
    if (!done) op.End(absl::OkStatus());
  }
  relocator.DoomLost();
  looking_ = false;
  if (reclaimer.Background()) Kick();
  Arm();
}

// --- room in order ------------------------------------------------------------------------------

bool Core::MayTake(TierId tier, const Op& op) const {
  const RoomQueue& queue = rooms_[tier];
  if (queue.ops.empty() || queue.ops.front() == &op) return true;
  return clock.Now() - queue.progressed > kPatience;
}

void Core::Queue(TierId tier, const Op& op) {
  RoomQueue& queue = rooms_[tier];
  if (std::find(queue.ops.begin(), queue.ops.end(), &op) != queue.ops.end()) return;
  if (queue.ops.empty()) queue.progressed = clock.Now();
  queue.ops.push_back(&op);
}

void Core::Progressed(TierId tier, const Op& op) {
  if (First(tier, op)) rooms_[tier].progressed = clock.Now();
}

void Core::Unqueue(const Op& op, TierId tier) {
  RoomQueue& queue = rooms_[tier];
  if (queue.ops.empty()) return;
  const bool first = queue.ops.front() == &op;
  if (std::erase(queue.ops, &op) > 0 && first) {
    queue.progressed = clock.Now();
    Kick();
  }
}

void Core::Unqueue(const Op& op) {
  for (std::size_t i = 0; i < rooms_.size(); ++i) Unqueue(op, static_cast<TierId>(i));
}

// --- upkeep -------------------------------------------------------------------------------------

void Core::StartTimers() {
  executor.PostAfter(options.audit, [this, alive = std::weak_ptr<int>(alive_)] {
    if (alive.expired()) return;
    Audit();
    StartTimers();
  });
}

void Core::Audit() {
  sessions.AuditSome(kAuditWords);
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    const Bytes allowed = std::min(kExcessMax, tiers[i]->capacity() / 16);
    for (const tier::Tier::Excess& excess : tiers[i]->Audit()) {
      if (excess.bytes <= allowed || !expel) continue;
      std::vector<SessionId> guilty;
      for (const Session* session : sessions.of_tenant(excess.tenant)) {
        if (!session->closing) guilty.push_back(session->id);
      }
      for (const SessionId id : guilty) {
        const Session* session = sessions.Find(id);
        if (session == nullptr) continue;
        ++counters.expelled_sessions;
        expel(id, absl::StrCat("tenant ", session->info.tenant, " committed ", excess.bytes,
                               " bytes of tier ", tiers[i]->name(),
                               " by reading what was not allocated"));
      }
    }
  }
  Kick();
}

void Core::Bury(SessionId session, std::vector<Handle> handles) {
  dying_.push_back({sessions.Find(session)->tenant, session, std::move(handles)});
}

void Core::BurySome() {
  for (std::size_t n = 0; !dying_.empty() && n < kBuryMax;) {
    Grave& grave = dying_.back();
    for (; !grave.handles.empty() && n < kBuryMax; ++n) {
      const TensorIndex index = store.Find(grave.tenant, grave.handles.back());
      grave.handles.pop_back();
      // Freed, or sealed for the tenant by another session, in the meantime.
      if (index != kNoIndex && store[index].owner == grave.owner) relocator.Doom(index);
    }
    if (grave.handles.empty()) dying_.pop_back();
  }
  if (!dying_.empty()) Kick();
}

void Core::WatchTiers() {
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    const auto tier = static_cast<TierId>(i);
    if (relocator.errors(tier) < kErrorsOffline) continue;
    if (reclaimer.state(tier) == tier::TierState::kOffline) continue;
    reclaimer.SetState(tier, tier::TierState::kOffline,
                       absl::StrCat(relocator.errors(tier), " moves in a row failed"));
    if (tier_offline) tier_offline(tier, reclaimer.note(tier));
  }
}

// --- small helpers ------------------------------------------------------------------------------

absl::StatusOr<TierId> Core::TierByName(std::string_view name) const {
  std::string known;
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    if (tiers[i]->name() == name) return static_cast<TierId>(i);
    absl::StrAppend(&known, known.empty() ? "" : ", ", tiers[i]->name());
  }
  return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
               absl::StrCat("no tier '", std::string(name), "'; there are: ", known));
}

absl::StatusOr<Session*> Core::Active(SessionId id) {
  Session* session = sessions.Find(id);
  if (session != nullptr && !session->closing) return session;
  return Error(absl::StatusCode::kUnauthenticated, Reason::kUnknownSession,
               "the session has ended; attach again");
}

absl::Status Core::CheckBatch(std::size_t elements) const {
  if (elements <= options.batch_max) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBatchTooLarge,
               absl::StrCat(elements, " elements in one call, at most ", options.batch_max,
                            "; split the batch"));
}

TierId Core::LowestMappable(TierId device) const {
  TierId lowest = device;
  for (auto at = reclaimer.Below(device); at.has_value() && Mappable(*at);
       at = reclaimer.Below(*at)) {
    lowest = *at;
  }
  return lowest;
}

Location Core::LocationOf(TensorIndex index) {
  const Copy& home = store.home(index);
  return {home.tier, home.extent.segment, home.extent.offset, store[index].bytes};
}

Duration Core::EstimateTime(TierId from, TierId to, Bytes bytes) const {
  double seconds = 0;
  TierId at = from;
  for (const TierId next : reclaimer.Path(from, to)) {
    const copy::LinkStats& stats = relocator.mover().stats({tiers[at].get(), tiers[next].get()});
    const double busy = std::chrono::duration<double>(stats.busy).count();
    double rate = Mappable(at) && Mappable(next) ? kMemoryBytesPerSecond : kFlashBytesPerSecond;
    if (stats.moved_bytes > 0 && busy > 0) rate = static_cast<double>(stats.moved_bytes) / busy;
    seconds += static_cast<double>(bytes) / rate;
    at = next;
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

absl::Status Core::Validate() const {
  HMM_RETURN_IF_ERROR(store.Validate());
  HMM_RETURN_IF_ERROR(relocator.Validate());
  auto broken = [](auto... parts) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal, absl::StrCat(parts...));
  };
  for (const RoomQueue& queue : rooms_) {
    for (const Op* op : queue.ops) {
      if (!ops_.contains(op->id_)) return broken("a queue names a call that does not wait");
    }
  }
  for (const auto& [id, session] : sessions.all()) {
    for (const TensorIndex index : session->owned) {
      if (store[index].owner != id) return broken("session ", id, " owns another's tensor");
    }
    for (const auto& [call, record] : session->calls) {
      if (record.state == CallRecord::State::kWaiting && !ops_.contains(record.op)) {
        return broken("session ", id, ", call ", call, " waits for nothing");
      }
    }
  }
  for (TensorIndex i = 0; ops_.empty() && i < store.record_count(); ++i) {
    // A call that finds its tensor doomed leaves it alone.
    if (store[i].holds != 0 && store[i].state != TensorState::kDoomed)
      return broken("tensor ", i, ": held by a call that has ended");
  }
  if (ops_.empty() && relocator.moves() == 0) {
    for (std::size_t i = 0; i < tiers.size(); ++i) {
      if (tiers[i]->ledger()[tier::ByteState::kReserved] != 0) {
        return broken(tiers[i]->name(), ": rooms reserved by nobody");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace hmm::core
