// SPDX-License-Identifier: Apache-2.0
#include "hmm/core.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace hmm::core {
namespace {

constexpr std::size_t kSweepWords = 1u << 13;  // pin words read a look for doomed tensors
constexpr std::size_t kBuryMax = 1u
                                 << 10;  // each is two events: watchers get their turn in between
constexpr std::size_t kAuditWords = 1u << 18;
constexpr std::size_t kAnswersMax = 1u << 14;  // elements of waiting calls answered in one look
constexpr std::size_t kArgumentsMax = 256;
constexpr unsigned kErrorsOffline = 3;
constexpr Bytes kExcessMax = 16 * kMiB;  // pages behind our back that a tenant may cause, at most
// Of a link that was not measured and has not moved anything: what a small machine does. Estimates
// only.
constexpr double kMemoryBytesPerSecond = 8e9;
constexpr double kFlashBytesPerSecond = 1e9;

}  // namespace

Core::Core(ManagerOptions o, Tiers t, copy::Copier& by, Executor& e, const Clock& c,
           copy::FragmentCopier* fragments)
    : options(std::move(o)),
      tiers(std::move(t)),
      copier(by),
      executor(e),
      clock(c),
      started_at(c.Now()),
      hits(tiers.size(), 0),
      events(options.events_kept, executor, clock),
      journal(options.moves_kept),
      store(options, tiers, clock, events, journal),
      sessions(options, store, tiers.size(), clock),
      relocator(options, tiers, store, sessions, copier, executor, clock, counters, journal, events,
                [this] { Kick(); }),
      reclaimer(options, tiers, store, sessions, relocator, link_times, counters, journal, events,
                clock),
      regions(options, tiers, store, sessions, reclaimer),
      jobs(*this, regions, fragments),
      rooms_(tiers.size()) {
  HMM_CHECK(!tiers.empty() && tiers.size() <= share::kMaxTiers && tiers[0]->mappable());
  HMM_CHECK(options.demote_to.empty() || options.demote_to.size() == tiers.size());
  for (std::size_t i = 0; i < options.demote_to.size(); ++i) {
    const std::optional<TierId> to = options.demote_to[i];
    HMM_CHECK(!to.has_value() || (*to > i && *to < tiers.size()));
  }
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    if (!tiers[i]->degraded()) continue;
    reclaimer.SetState(static_cast<TierId>(i), tier::TierState::kDegraded, tiers[i]->note(),
                       Reason::kDegraded);
  }
  jobs.OnEnded([this](SessionId id) {
    if (const Session* session = sessions.Find(id)) share::Ring(session->bell);
  });
}

// --- calls that wait ----------------------------------------------------------------------------

OpId Core::Launch(std::unique_ptr<Op> op) {
  op->id_ = next_op_++;
  if (Step(*op)) {
    Unqueue(*op);
    return 0;
  }
  if (const absl::Status full = CheckWaiting(op->call().session, op->elements()); !full.ok()) {
    End(*op, full);
    Unqueue(*op);
    return 0;
  }
  const OpId id = op->id_;
  ops_.emplace(id, std::move(op));
  Arm();
  return id;
}

absl::Status Core::CheckWaiting(SessionId session, std::size_t elements) const {
  struct Waiting {
    std::size_t calls = 0;
    std::size_t elements = 0;
  };
  Waiting all;
  Waiting own;
  const Session* mine = sessions.Find(session);
  for (const auto& [id, op] : ops_) {
    const Session* other = mine == nullptr ? nullptr : sessions.Find(op->call().session);
    ++all.calls;
    all.elements += op->elements();
    if (other == nullptr || other->tenant != mine->tenant) continue;
    ++own.calls;
    own.elements += op->elements();
  }
  const auto check = [elements](const Waiting& waiting, std::size_t calls_max,
                                std::size_t elements_max, std::string_view whose) {
    // A batch that waits alone may be of any size.
    const bool too_many = waiting.calls >= calls_max ||
                          (waiting.calls > 0 && waiting.elements + elements > elements_max);
    if (!too_many) return absl::OkStatus();
    return WithRetry(Error(absl::StatusCode::kUnavailable, Reason::kQueueFull,
                           absl::StrCat("already ", waiting.calls, " calls", std::string(whose),
                                        " wait, with ", waiting.elements, " elements")),
                     std::chrono::milliseconds(10));
  };
  HMM_RETURN_IF_ERROR(check(all, options.waiting_max, options.waiting_elements_max, ""));
  if (mine == nullptr) return absl::OkStatus();
  return check(own, TenantShare(options.waiting_max), TenantShare(options.waiting_elements_max),
               " of this tenant");
}

void Core::Cancel(OpId id, const absl::Status& why) {
  auto node = ops_.extract(id);
  if (node.empty()) return;
  Unqueue(*node.mapped());
  End(*node.mapped(), why);
  Kick();
}

void Core::CancelSession(SessionId session, const absl::Status& why) {
  std::vector<OpId> ids;
  for (const auto& [id, op] : ops_) {
    if (session == 0 || op->call().session == session) ids.push_back(id);
  }
  for (const OpId id : ids) Cancel(id, why);
}

bool Core::Step(Op& op) {
  const MoveJournal::Because why(journal, op.cause(), op.call().session);
  return op.Step();
}

void Core::End(Op& op, const absl::Status& why) {
  const MoveJournal::Because because(journal, op.cause(), op.call().session);
  op.End(why);
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
  if (ops_.empty() && !relocator.doomed_waiting() && !relocator.hints_waiting() &&
      !jobs.waiting()) {
    return;
  }
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
  std::size_t answered = 0;
  for (const OpId id : ids) {
    if (answered >= kAnswersMax) {  // the others in the next look, after whoever came meanwhile
      Kick();
      break;
    }
    // Out of the table while it is stepped: its callback may end any call that waits.
    auto node = ops_.extract(id);
    if (node.empty()) continue;  // ended by another's callback
    Op& op = *node.mapped();
    const bool done = Step(op);
    if (!done && now < op.call().deadline) {
      ops_.insert(std::move(node));
      continue;
    }
    answered += op.elements();
    Unqueue(op);
    if (!done) End(op, absl::OkStatus());
  }
  jobs.Look();
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

bool Core::NobodyElse(TierId tier, const Op& op) const {
  const RoomQueue& queue = rooms_[tier];
  return queue.ops.empty() || (queue.ops.size() == 1 && queue.ops.front() == &op);
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
        const std::string why =
            absl::StrCat("tenant ", session->info.tenant, " committed ", excess.bytes,
                         " bytes of tier ", tiers[i]->name(), " by reading what was not allocated");
        EmitSession(*session, SessionChange::kExpelled, why);
        expel(id, why);
      }
    }
  }
  Kick();
}

void Core::EmitSession(const Session& session, SessionChange change, std::string_view why) {
  Event& event = events.Emit(EventType::kSession);
  event.tenant = session.tenant;
  event.change = change;
  event.session = session.id;
  event.uid = session.info.uid;
  event.pid = session.info.pid;
  event.pins = change == SessionChange::kAttached ? 0 : sessions.Pins(session);
  event.text = session.info.command;
  event.why = why;
}

void Core::EmitAdmin(std::string_view action, std::string_view arguments,
                     const absl::Status& outcome) {
  Event& event = events.Emit(EventType::kAdmin);
  event.key = action;
  event.text = arguments.substr(0, kArgumentsMax);
  if (!outcome.ok()) event.why = ReasonName(ReasonOf(outcome).value_or(Reason::kInternal));
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
                       absl::StrCat(relocator.errors(tier), " moves in a row failed"), Reason::kIo);
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

absl::StatusOr<TenantId> Core::TenantFor(std::optional<SessionId> viewer,
                                         std::string_view name) const {
  if (viewer.has_value()) {
    const Session* session = sessions.Find(*viewer);
    if (session == nullptr) {
      return Error(absl::StatusCode::kUnauthenticated, Reason::kUnknownSession,
                   "the session has ended; attach again");
    }
    // Another tenant is not there for it, whether it exists or not.
    if (name.empty() || name == session->info.tenant) return session->tenant;
  } else if (const auto tenant = store.FindTenant(name); tenant.has_value()) {
    return *tenant;
  }
  return Error(
      absl::StatusCode::kNotFound, Reason::kNotFound,
      absl::StrCat("no tenant '", std::string(name),
                   "'; tenants are named as `hmmctl session list` shows them, such as uid:1000"));
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

Duration Core::EstimateTime(TierId from, TierId to, Bytes bytes, bool* measured) const {
  Duration known{};
  double seconds = 0;
  if (measured != nullptr) *measured = true;
  TierId at = from;
  for (const TierId next : reclaimer.Path(from, to)) {
    if (const auto time = link_times.Time(at, next, bytes); time.has_value()) {
      known += *time;
      at = next;
      continue;
    }
    const copy::LinkStats& stats = relocator.mover().stats({tiers[at].get(), tiers[next].get()});
    const double busy = std::chrono::duration<double>(stats.busy).count();
    double rate = Mappable(at) && Mappable(next) ? kMemoryBytesPerSecond : kFlashBytesPerSecond;
    if (stats.moved_bytes > 0 && busy > 0) {
      rate = static_cast<double>(stats.moved_bytes) / busy;
    } else if (measured != nullptr) {
      *measured = false;
    }
    seconds += static_cast<double>(bytes) / rate;
    at = next;
  }
  return known + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

absl::Status Core::Validate() const {
  HMM_RETURN_IF_ERROR(store.Validate());
  HMM_RETURN_IF_ERROR(relocator.Validate());
  HMM_RETURN_IF_ERROR(regions.Validate());
  HMM_RETURN_IF_ERROR(jobs.Validate());
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
  const bool idle = ops_.empty() && !jobs.waiting();
  for (TensorIndex i = 0; idle && i < store.record_count(); ++i) {
    // A call that finds its tensor doomed leaves it alone.
    if (store[i].holds != 0 && store[i].state != TensorState::kDoomed)
      return broken("tensor ", i, ": held by a call that has ended");
  }
  if (ops_.empty() && relocator.moves() == 0 && calibrating.expired()) {
    for (std::size_t i = 0; i < tiers.size(); ++i) {
      if (tiers[i]->ledger()[tier::ByteState::kReserved] !=
          store.ahead_bytes(static_cast<TierId>(i)) + regions.reserved(static_cast<TierId>(i))) {
        return broken(tiers[i]->name(), ": rooms reserved by nobody");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace hmm::core
