// SPDX-License-Identifier: Apache-2.0
//
// Who owns an extent during a move: the copier, from Submit to its completion. A cancelled or
// doomed tensor leaves its extents with the copier as orphans; they are freed in that completion,
// never earlier. `moves_` holds one entry a copy under way, also for detached ones.
#include "hmm/relocator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace hmm::core {

using tier::ByteState;

Relocator::Relocator(const ManagerOptions& options, Tiers& tiers, TensorStore& store,
                     SessionTable& sessions, copy::Copier& copier, Executor& executor,
                     const Clock& clock, Counters& counters, MoveJournal& journal, EventBus& events,
                     std::function<void()> settled)
    : tiers_(tiers),
      store_(store),
      sessions_(sessions),
      clock_(clock),
      counters_(counters),
      journal_(journal),
      events_(events),
      settled_(std::move(settled)),
      mover_(copier, executor, options.mover),
      leaving_(tiers.size(), 0),
      leaving_count_(tiers.size(), 0),
      within_(tiers.size(), 0),
      errors_(tiers.size()),
      health_(tiers.size()) {}

bool Relocator::Freeze(TensorIndex index) {
  Tensor& tensor = store_[index];
  if (tensor.state == TensorState::kAbsent) {
    store_.Transition(index, TensorState::kMoving);
    return true;
  }
  if (tensor.state == TensorState::kCreating) {
    // Its writer still holds it, or put it down without sealing: then it is at rest, unsealed.
    if (sessions_.Pinned(tensor)) return false;
    store_.Transition(index, TensorState::kResident);
  }
  store_.Transition(index, TensorState::kMoving);
  if (!sessions_.Pinned(tensor)) return true;
  ++counters_.taken_back_moves;
  store_.Transition(index, TensorState::kResident);
  return false;
}

absl::Status Relocator::Start(TensorIndex index, std::vector<Room> path, copy::Priority priority,
                              TimePoint deadline) {
  HMM_CHECK(!path.empty() && store_[index].move == 0);
  const TierId from = store_.home_tier(index);
  if (!mover_.HasRoom(*tiers_[from], *tiers_[path.front().tier])) {
    ReturnRooms(path);
    return WithRetry(Error(absl::StatusCode::kUnavailable, Reason::kQueueFull,
                           absl::StrCat("the queue from ", tiers_[from]->name(), " is full")),
                     std::chrono::milliseconds(10));
  }
  const Decision decision = Decide(index);
  if (!Freeze(index)) {
    ReturnRooms(path);
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kPinned, "pins hold the tensor");
  }
  const std::uint64_t key = next_++;
  auto move = std::make_unique<Move>();
  move->tensor = index;
  move->priority = priority;
  move->from = from;
  move->tenant = store_[index].tenant;
  move->down = path.back().tier > from;
  move->within = path.back().tier == from;
  move->decision = decision;
  const Room first = path.front();
  move->rest.assign(path.begin() + 1, path.end());
  Move& ref = *moves_.emplace(key, std::move(move)).first->second;
  store_[index].move = key;
  CountLeaving(ref, index);
  if (ref.within) {
    ref.twice = first.extent.length;
    within_[from] += ref.twice;
  }
  if (deadline != TimePoint::max()) {
    ref.hint_until = deadline;
    hints_.emplace(deadline, key);
  }
  return SubmitHop(key, ref, first);
}

Decision Relocator::Decide(TensorIndex index) const {
  const Tensor& tensor = store_[index];
  const tier::Tier& home = *tiers_[store_.home_tier(index)];
  const TimePoint now = clock_.Now();
  return {journal_.cause(),     journal_.session(), now, home.ledger().used(), home.limit(),
          now - tensor.touched, tensor.priority};
}

void Relocator::Note(TensorIndex index, const Decision& decision, TierId from, TierId to,
                     MoveOutcome outcome, std::optional<Reason> error) {
  Tensor& tensor = store_[index];
  MoveRecord record;
  record.end = clock_.Now();
  record.decision = decision;
  record.bytes = tensor.bytes;
  record.from = from;
  record.to = to;
  record.outcome = outcome;
  record.error = error;
  record.previous = tensor.last_move;
  tensor.last_move = journal_.Add(record);
  Event& event = events_.Emit(EventType::kMove);
  event.tenant = tensor.tenant;
  event.tier = from;
  event.handle = tensor.handle();
  event.key = std::string(tensor.key());
  event.kind = tensor.kind;
  event.bytes = tensor.bytes;
  event.move = record;
}

void Relocator::NoteDropped(TensorIndex index) {
  const TierId tier = store_.home_tier(index);
  Note(index, Decide(index), tier, tier, MoveOutcome::kDropped);
}

void Relocator::NoteHealth(TierId from, TierId to, const absl::Status& status) {
  if (status.code() == absl::StatusCode::kCancelled) return;  // never started
  const TimePoint now = clock_.Now();
  if (status.ok()) {
    for (const TierId tier : {from, to}) {
      health_[tier].proved = now;
      health_[tier].proved_ok = true;
    }
    return;
  }
  const bool read = tiers_[to]->mappable() && !tiers_[from]->mappable();
  Health& health = health_[read ? from : to];
  health.proved = now;
  health.proved_ok = false;
  ++(read ? health.read_errors : health.write_errors);
  if (ReasonOf(status) == Reason::kChecksum) ++health.checksum_errors;
}

void Relocator::DropStaleHints() {
  const TimePoint now = clock_.Now();
  while (!hints_.empty() && hints_.begin()->first <= now) {
    Move& move = *moves_.at(hints_.begin()->second);
    ForgetHint(hints_.begin()->second, move);
    mover_.Cancel(move.id);  // one that runs goes on
  }
}

void Relocator::ForgetHint(std::uint64_t key, Move& move) {
  if (move.hint_until == TimePoint::max()) return;
  hints_.erase({move.hint_until, key});
  move.hint_until = TimePoint::max();
}

void Relocator::CountLeaving(Move& move, TensorIndex index) {
  // Upwards the source stays as a clean copy when sealed, else it goes too, but nobody waits for
  // it.
  if (!move.down) return;
  move.leaving = store_.home(index).extent.length;
  move.leaving_from = store_.home_tier(index);
  leaving_[move.leaving_from] += move.leaving;
  ++leaving_count_[move.leaving_from];
  leaving_of_[Share(move.leaving_from, move.tenant)] += move.leaving;
}

void Relocator::UncountLeaving(Move& move) {
  if (move.leaving == 0) return;
  leaving_[move.leaving_from] -= move.leaving;
  --leaving_count_[move.leaving_from];
  const auto share = leaving_of_.find(Share(move.leaving_from, move.tenant));
  share->second -= move.leaving;
  if (share->second == 0) leaving_of_.erase(share);
  move.leaving = 0;
}

void Relocator::UncountTwice(Move& move) {
  within_[move.from] -= move.twice;
  move.twice = 0;
}

Bytes Relocator::leaving_bytes(TierId tier, TenantId tenant) const {
  const auto share = leaving_of_.find(Share(tier, tenant));
  return share == leaving_of_.end() ? 0 : share->second;
}

absl::Status Relocator::SubmitHop(std::uint64_t key, Move& move, const Room& to) {
  const TensorIndex index = move.tensor;
  move.source = store_[index].home;
  move.target = store_.AddCopy(index, to, Copy::Role::kTarget, ByteState::kMoving);
  store_.Account(move.source, ByteState::kMoving);
  Copy& source = store_.copy(move.source);
  Copy& target = store_.copy(move.target);
  copy::CopyJob job;
  job.from = tiers_[source.tier].get();
  job.source = source.extent;
  job.to = tiers_[target.tier].get();
  job.target = target.extent;
  job.bytes = store_[index].bytes;
  if (source.has_checksum) job.expected_checksum = source.checksum;
  ++source.copiers;
  ++target.copiers;
  auto id = mover_.Submit(job, move.priority, [this, key](copy::CopyResult result) {
    OnHopDone(key, std::move(result));
  });
  if (id.ok()) {
    move.id = *id;
    return absl::OkStatus();
  }
  store_.CopierDone(move.source);
  store_.CopierDone(move.target);
  const absl::Status why = id.status();
  Fail(key, move, why);
  return why;
}

void Relocator::OnHopDone(std::uint64_t key, copy::CopyResult result) {
  const auto it = moves_.find(key);
  HMM_CHECK(it != moves_.end());
  Move& move = *it->second;
  const TierId from = store_.copy(move.source).tier;
  const TierId to = store_.copy(move.target).tier;
  store_.CopierDone(move.source);
  store_.CopierDone(move.target);
  NoteHealth(from, to, result.status);
  // What follows from it has the cause of the move.
  const MoveJournal::Because why(journal_, move.decision.cause, move.decision.session);
  if (move.tensor == kNoIndex) {
    moves_.erase(it);
  } else if (result.status.ok()) {
    Arrive(key, move, result);
  } else {
    Fail(key, move, result.status);
  }
  settled_();
}

void Relocator::Arrive(std::uint64_t key, Move& move, const copy::CopyResult& result) {
  const TensorIndex index = move.tensor;
  Copy& target = store_.copy(move.target);
  const TierId source_tier = store_.copy(move.source).tier;
  errors_[target.tier].writes = 0;
  errors_[source_tier].reads = 0;
  ForgetHint(key, move);  // it has started
  if (!tiers_[target.tier]->mappable()) {
    target.checksum = result.checksum;
    target.has_checksum = true;
  }
  const bool up = target.tier < source_tier;
  const TierId target_tier = target.tier;
  // Upwards a sealed tensor leaves a clean copy: its next way down costs nothing. One that is moved
  // within its tier is to leave its old place.
  store_.SwitchHome(index, move.target, /*keep_old=*/up && store_[index].sealed && !move.within);
  Note(index, move.decision, source_tier, target_tier, MoveOutcome::kMoved);
  if (!move.rest.empty()) {
    // It has left the first tier; now it is on its way out of this one.
    UncountLeaving(move);
    CountLeaving(move, index);
    const Room next = move.rest.front();
    move.rest.erase(move.rest.begin());
    (void)SubmitHop(key, move, next);  // a refusal is settled there
    return;
  }
  if (!move.within) ++(move.down ? counters_.demotions : counters_.promotions);
  EndMove(key);
  Rest(index);
}

void Relocator::Fail(std::uint64_t key, Move& move, const absl::Status& why) {
  const TensorIndex index = move.tensor;
  const TierId from = store_.copy(move.source).tier;
  const TierId to = store_.copy(move.target).tier;
  store_.FreeCopy(move.target);
  if (why.code() == absl::StatusCode::kCancelled) {
    Note(index, move.decision, from, to, MoveOutcome::kTakenBack);
  } else {
    Note(index, move.decision, from, to, MoveOutcome::kFailed,
         ReasonOf(why).value_or(Reason::kInternal));
  }
  EndMove(key);
  if (why.code() == absl::StatusCode::kDataLoss && !tiers_[from]->mappable()) {
    // What was read is not what was written, or could not be read: the bytes are gone.
    ++errors_[from].reads;
    ++counters_.lost_tensors;
    store_[index].lost = true;
    store_.UnlinkKey(index);
    lost_.push_back({store_[index].tenant, store_[index].handle()});
  } else if (why.code() != absl::StatusCode::kCancelled && ReasonOf(why) != Reason::kQueueFull) {
    CountError(from, to);
  }
  Rest(index);
}

void Relocator::CountError(TierId from, TierId to) {
  // Memory does not fail; where one end is a medium that may, it is that end's error.
  const bool read = tiers_[to]->mappable() && !tiers_[from]->mappable();
  ++(read ? errors_[from].reads : errors_[to].writes);
}

void Relocator::Rest(TensorIndex index) {
  store_.Transition(index, tiers_[store_.home_tier(index)]->mappable() ? TensorState::kResident
                                                                       : TensorState::kAbsent);
}

void Relocator::EndMove(std::uint64_t key) {
  const auto it = moves_.find(key);
  Move& move = *it->second;
  ReturnRooms(move.rest);
  UncountLeaving(move);
  UncountTwice(move);
  ForgetHint(key, move);
  if (move.tensor != kNoIndex) store_[move.tensor].move = 0;
  moves_.erase(it);
}

void Relocator::Detach(std::uint64_t key) {
  Move& move = *moves_.at(key);
  ReturnRooms(move.rest);
  UncountLeaving(move);
  UncountTwice(move);
  ForgetHint(key, move);
  store_[move.tensor].move = 0;
  store_.FreeCopy(move.target);  // an orphan until its copier is done
  move.tensor = kNoIndex;
  mover_.Cancel(move.id);  // if it had not started it never will
}

absl::Status Relocator::SwitchToClean(TensorIndex index, TierId tier) {
  const TierId from = store_.home_tier(index);
  const Decision decision = Decide(index);
  if (!Freeze(index)) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kPinned, "pins hold the tensor");
  }
  const CopyIndex clean = store_.FindCopy(index, tier, Copy::Role::kClean);
  HMM_CHECK(clean != kNoIndex);
  store_.SwitchHome(index, clean, /*keep_old=*/false);
  Note(index, decision, from, tier, MoveOutcome::kClean);
  ++(tier > from ? counters_.demotions : counters_.promotions);
  ++counters_.clean_drops;
  Rest(index);
  return absl::OkStatus();
}

bool Relocator::Cancellable(TensorIndex index) const {
  const Tensor& tensor = store_[index];
  if (tensor.state != TensorState::kMoving || tensor.move == 0) return false;
  return moves_.at(tensor.move)->down && tiers_[store_.home_tier(index)]->mappable();
}

bool Relocator::CancelDemotion(TensorIndex index) {
  if (!Cancellable(index)) return false;
  ++counters_.cancelled_demotions;
  const Move& move = *moves_.at(store_[index].move);
  Note(index, move.decision, store_.home_tier(index), Destination(index), MoveOutcome::kTakenBack);
  Detach(store_[index].move);
  Rest(index);
  return true;
}

void Relocator::Raise(TensorIndex index, copy::Priority priority) {
  if (store_[index].move == 0) return;
  Move& move = *moves_.at(store_[index].move);
  if (priority >= move.priority) return;
  move.priority = priority;
  if (priority < copy::Priority::kPrefetch) ForgetHint(store_[index].move, move);
  mover_.Raise(move.id, priority);
}

TierId Relocator::Destination(TensorIndex index) const {
  const Move& move = *moves_.at(store_[index].move);
  return move.rest.empty() ? store_.copy(move.target).tier : move.rest.back().tier;
}

copy::Priority Relocator::PriorityOf(TensorIndex index) const {
  return moves_.at(store_[index].move)->priority;
}

bool Relocator::Doom(TensorIndex index) {
  Tensor& tensor = store_[index];
  if (tensor.move != 0) Detach(tensor.move);
  if (Session* owner = sessions_.Find(tensor.owner)) owner->owned.erase(index);
  store_.Transition(index, TensorState::kDoomed);
  if (!sessions_.Pinned(tensor)) {
    Finish(index);
    return false;
  }
  doomed_.push_back(index);
  return true;
}

void Relocator::SweepDoomed(std::size_t limit) {
  // Round robin, so that a few that stay pinned do not hide the others.
  for (limit = std::min(limit, doomed_.size()); limit > 0; --limit) {
    if (sweep_at_ >= doomed_.size()) sweep_at_ = 0;
    const TensorIndex index = doomed_[sweep_at_];
    if (sessions_.Pinned(store_[index])) {
      ++sweep_at_;
      continue;
    }
    doomed_[sweep_at_] = doomed_.back();
    doomed_.pop_back();
    Finish(index);
  }
}

void Relocator::Finish(TensorIndex index) {
  while (store_[index].copies != kNoIndex) store_.FreeCopy(store_[index].copies);
  store_.Remove(index);
  settled_();
}

void Relocator::DoomLost() {
  for (const auto& [tenant, handle] : std::exchange(lost_, {})) {
    const TensorIndex index = store_.Find(tenant, handle);
    if (index != kNoIndex && store_[index].owner == 0 && store_[index].move == 0) Doom(index);
  }
}

absl::Status Relocator::Validate() const {
  auto broken = [](auto... parts) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal, absl::StrCat(parts...));
  };
  std::vector<Bytes> leaving(tiers_.size(), 0);
  std::vector<std::size_t> count(tiers_.size(), 0);
  std::vector<Bytes> within(tiers_.size(), 0);
  absl::flat_hash_map<std::uint64_t, Bytes> shares;
  for (const auto& [key, move] : moves_) {
    if (move->hint_until != TimePoint::max() && !hints_.contains({move->hint_until, key})) {
      return broken("move ", key, ": its deadline is forgotten");
    }
    if (move->tensor != kNoIndex && store_[move->tensor].move != key) {
      return broken("move ", key, ": its tensor does not know it");
    }
    within[move->from] += move->twice;
    if (move->leaving == 0) continue;
    leaving[move->leaving_from] += move->leaving;
    ++count[move->leaving_from];
    shares[Share(move->leaving_from, move->tenant)] += move->leaving;
    if (store_.home_tier(move->tensor) != move->leaving_from) {
      return broken("move ", key, ": counted as leaving a tier that it has left");
    }
  }
  if (within != within_) return broken("the bytes used twice are not those of the moves");
  if (leaving != leaving_ || count != leaving_count_ || shares != leaving_of_) {
    return broken("the bytes on their way out are not those of the moves");
  }
  for (const auto& [deadline, key] : hints_) {
    if (!moves_.contains(key)) return broken("a deadline of move ", key, ", which has ended");
  }
  return absl::OkStatus();
}

void Relocator::ReturnRooms(std::vector<Room>& rooms) {
  for (const Room& room : rooms) store_.ReturnRoom(room);
  rooms.clear();
}

}  // namespace hmm::core
