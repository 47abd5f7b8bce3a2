// SPDX-License-Identifier: Apache-2.0
#include "hmm/reclaimer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "policy/watermark.h"

namespace hmm::core {
namespace {

// Looks at the recency list in one go: pinned and recently used tensors at the cold end cost one
// each.
constexpr std::size_t kLooksMax = 4096;
constexpr auto kRetryFull = std::chrono::milliseconds(10);

}  // namespace

Reclaimer::Reclaimer(const ManagerOptions& options, Tiers& tiers, TensorStore& store,
                     SessionTable& sessions, Relocator& relocator, const LinkTimes& link_times,
                     Counters& counters, MoveJournal& journal, EventBus& events, const Clock& clock)
    : options_(options),
      tiers_(tiers),
      store_(store),
      sessions_(sessions),
      relocator_(relocator),
      link_times_(link_times),
      counters_(counters),
      journal_(journal),
      events_(events),
      clock_(clock),
      states_(tiers.size()),
      fixed_(tiers.size()) {
  for (TierStatus& status : states_) status.since = clock.Now();
}

std::optional<TierId> Reclaimer::Below(TierId tier) const {
  const auto& given = options_.demote_to;
  for (auto at = given.empty() ? std::nullopt : given[tier]; at.has_value(); at = given[*at]) {
    if (states_[*at].state != tier::TierState::kOffline) return at;
  }
  for (std::size_t i = tier + 1u; i < tiers_.size(); ++i) {
    if (tiers_[i]->kind() <= tiers_[tier]->kind()) continue;  // a sibling
    if (states_[i].state == tier::TierState::kOffline) continue;
    return static_cast<TierId>(i);
  }
  return std::nullopt;
}

std::vector<TierId> Reclaimer::Path(TierId from, TierId to) const {
  std::vector<TierId> path;
  if (from == to) return path;
  // The first of each kind between the two on the way down from `top`: a slower pool of a kind that
  // was passed already would be a copy for nothing.
  const auto between = [this](TierId top, TierId bottom) {
    std::vector<TierId> hops;
    TierKind last = tiers_[top]->kind();
    for (auto at = Below(top); at.has_value() && tiers_[*at]->kind() < tiers_[bottom]->kind();
         at = Below(*at)) {
      if (tiers_[*at]->kind() == last) continue;
      last = tiers_[*at]->kind();
      hops.push_back(*at);
    }
    return hops;
  };
  if (to > from && tiers_[to]->kind() > tiers_[from]->kind()) {
    path = between(from, to);
  } else if (!tiers_[from]->mappable()) {
    // Up: the way down from `to`, walked backwards. Memory is copied across directly.
    path = between(to, from);
    std::reverse(path.begin(), path.end());
  }
  path.push_back(to);
  return path;
}

Bytes Reclaimer::FreeIn(TierId tier) const { return tiers_[tier]->available(); }

Bytes Reclaimer::Reserve(TierId tier) const {
  // An exchange needs a place for the largest tensor; a giant must not lock everybody out, though.
  return std::max(tiers_[tier]->options().reserve,
                  std::min(states_[tier].largest, tiers_[tier]->capacity() / 8));
}

policy::Watermarks Reclaimer::MarksOf(TierId tier) const {
  const tier::TierOptions& options = tiers_[tier]->options();
  return {tiers_[tier]->limit(), options.high, options.low, options.reserve};
}

Bytes Reclaimer::TenantMax(TenantId tenant, TierId tier) const {
  const Bytes capacity = tiers_[tier]->capacity();
  double ratio = options_.tenant_resident_max;
  if (!options_.tenant_limits.empty()) {
    const auto found = options_.tenant_limits.find(store_.tenant_name(tenant));
    if (found != options_.tenant_limits.end()) {
      const ResidentMax& own = found->second[tier];
      if (own.ratio > 0)
        ratio = own.ratio;
      else if (own.bytes > 0)
        return std::min(own.bytes, capacity);
    }
  }
  if (ratio >= 1.0) return capacity;
  return static_cast<Bytes>(static_cast<double>(capacity) * ratio);
}

absl::Status Reclaimer::CheckTenant(TenantId tenant, TierId tier, Bytes length) {
  const Bytes limit = TenantMax(tenant, tier);
  if (limit >= tiers_[tier]->capacity()) return absl::OkStatus();
  auto held = [&] { return tiers_[tier]->TenantBytes(tenant); };
  if (length <= limit && held() + length > limit) {
    const Bytes missing = held() + length - limit;
    const Bytes leaving = relocator_.leaving_bytes(tier, tenant);
    if (leaving < missing) MakeRoom(tier, missing - leaving, copy::Priority::kMakeRoom, tenant);
  }
  if (length <= limit && held() + length <= limit) return absl::OkStatus();
  const absl::Status over =
      Error(absl::StatusCode::kResourceExhausted, Reason::kQuota,
            absl::StrCat("the tenant holds ", held(), " of its ", limit, " bytes in tier ",
                         tiers_[tier]->name(), ", ", length, " more do not fit; free some"));
  return length > limit ? over : WithRetry(over, kRetryFull);
}

absl::Status Reclaimer::Refusal(TenantId tenant, TierId tier, Bytes bytes,
                                const Progress& progress) const {
  const bool pinned = progress.exhausted && progress.saw_pinned && !progress.blocked &&
                      progress.leaving == 0 && relocator_.leaving_bytes(tier) == 0;
  // Asked only where it may be the reason: calls that wait are refused at every look.
  const Bytes longest = FreeIn(tier) >= bytes ? tiers_[tier]->LongestFree(tenant) : bytes;
  const bool in_pieces = longest < bytes;
  return WithRetry(
      Error(absl::StatusCode::kResourceExhausted, pinned ? Reason::kPinned : Reason::kFull,
            absl::StrCat(
                "tier ", tiers_[tier]->name(), " has no room for ", bytes,
                " bytes now: ", FreeIn(tier), " free, ", Reserve(tier), " of them reserved, ",
                in_pieces ? absl::StrCat("about ", longest, " at most in one piece, ") : "",
                pinned ? "and all that could move is pinned" : "retry after the delay, or wait")),
      kRetryFull);
}

absl::StatusOr<Room> Reclaimer::Take(TenantId tenant, TierId tier, Bytes bytes, Purpose purpose) {
  TierStatus& status = states_[tier];
  if (status.state == tier::TierState::kOffline || status.state == tier::TierState::kDraining) {
    return WithRetry(Error(absl::StatusCode::kUnavailable, Reason::kDraining,
                           absl::StrCat("tier ", tiers_[tier]->name(), " is ",
                                        std::string(tier::TierStateName(status.state)))),
                     std::chrono::milliseconds(1000));
  }
  tier::Tier& medium = *tiers_[tier];
  // Zero and oversized: the tier's own words, before any arithmetic that could wrap.
  if (bytes == 0 || bytes > medium.capacity()) {
    return medium.Allocate(tenant, bytes, tier::ByteState::kReserved).status();
  }
  const Bytes length = medium.LengthFor(bytes);
  const Bytes reserve = std::min(medium.options().reserve, medium.capacity());
  if (purpose == Purpose::kAllocate && length > medium.capacity() - reserve) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kTooLarge,
                 absl::StrCat(bytes, " bytes are more than tier ", medium.name(),
                              " can ever hold beside its reserve of ", reserve, " bytes"));
  }
  HMM_RETURN_IF_ERROR(CheckTenant(tenant, tier, length));
  const Bytes kept = Kept(tier, length, purpose);
  Progress progress;
  bool made_room = false;
  bool made_window = false;
  while (true) {
    const Bytes free = FreeIn(tier);
    if (free >= length && free - length >= kept) {
      auto extent = medium.Allocate(tenant, bytes, tier::ByteState::kReserved);
      if (extent.ok()) {
        status.largest = std::max(status.largest, extent->length);
        return Room{tier, tenant, *extent};
      }
      if (ReasonOf(extent.status()) != Reason::kFull) return extent.status();
      if (std::exchange(made_window, true)) break;
      // Enough bytes, but in pieces (or in chunks of other tenants): empty the window that holds
      // least.
      progress = MakeWindow(tier, length);
      continue;
    }
    if (made_window || std::exchange(made_room, true)) break;
    const Bytes missing = length + kept - free;
    const Bytes leaving = relocator_.leaving_bytes(tier);
    if (leaving < missing) {
      progress = MakeRoom(tier, missing - leaving,
                          purpose == Purpose::kBackground ? copy::Priority::kBackground
                                                          : copy::Priority::kMakeRoom);
    }
  }
  return Refusal(tenant, tier, bytes, progress);
}

std::optional<Room> Reclaimer::TakeSpare(TenantId tenant, TierId tier, Bytes bytes) {
  tier::Tier& medium = *tiers_[tier];
  if (states_[tier].state == tier::TierState::kOffline ||
      states_[tier].state == tier::TierState::kDraining) {
    return std::nullopt;
  }
  if (bytes == 0 || bytes > medium.capacity()) return std::nullopt;
  const Bytes length = medium.LengthFor(bytes);
  const Bytes start = policy::MarksInBytes(MarksOf(tier)).start;
  const Bytes used = medium.ledger().used();
  const Bytes free = FreeIn(tier);
  if (used > start || length > start - used) return std::nullopt;
  if (length > free || free - length < Kept(tier, length, Purpose::kAllocate)) return std::nullopt;
  if (medium.TenantBytes(tenant) + length > TenantMax(tenant, tier)) return std::nullopt;
  auto extent = medium.Allocate(tenant, bytes, tier::ByteState::kReserved);
  if (!extent.ok()) return std::nullopt;  // in pieces, or the system has no memory to back it now
  states_[tier].largest = std::max(states_[tier].largest, extent->length);
  return Room{tier, tenant, *extent};
}

Bytes Reclaimer::Kept(TierId tier, Bytes length, Purpose purpose) const {
  if (purpose == Purpose::kExchange) return 0;
  // What was not asked for but taken from experience yields to a tensor that fits no other way.
  return std::max(tiers_[tier]->options().reserve,
                  std::min(Reserve(tier), tiers_[tier]->capacity() - length));
}

bool Reclaimer::TakeBack(TensorIndex index) {
  // Its client may take it at this moment, so the same protocol as for any victim decides. Pinned,
  // it is ordinary from here on; so it is after a pin that failed for our MOVING, and then its
  // client, which counts it as gone, frees it.
  store_.MakeOrdinary(index);
  if (!relocator_.Freeze(index)) {
    ++counters_.allocations;
    return false;
  }
  ++counters_.ahead_taken_back;
  return !relocator_.Doom(index);
}

Bytes Reclaimer::TakeBackAhead(TierId tier, Bytes bytes, std::optional<TenantId> only,
                               std::size_t& count) {
  Bytes freed = 0;
  const policy::LruList& list = store_.ahead(tier);
  std::size_t looks = kLooksMax;
  for (TensorIndex at = list.Coldest(); at != kNoIndex && freed < bytes && count > 0 && looks > 0;
       --looks) {
    const TensorIndex next = list.NextHotter(at);
    if (!only.has_value() || store_[at].tenant == *only) {
      const Bytes length = store_.home(at).extent.length;
      if (TakeBack(at)) freed += length;
      --count;
    }
    at = next;
  }
  return freed;
}

Bytes Reclaimer::DropClean(TierId tier, Bytes bytes, std::optional<TenantId> only,
                           std::size_t& count) {
  Bytes freed = 0;
  std::size_t looks = kLooksMax;  // at those of other tenants
  for (CopyIndex at = store_.OldestClean(tier); at != kNoIndex && freed < bytes && count > 0;) {
    const CopyIndex next = store_.NextClean(tier, at);
    const Copy& copy = store_.copy(at);
    if (!only.has_value() || copy.tenant == *only) {
      freed += copy.extent.length;
      ++counters_.clean_drops;
      store_.FreeCopy(at);
      --count;
    } else if (--looks == 0) {
      break;
    }
    at = next;
  }
  return freed;
}

bool Reclaimer::UsedSince(TensorIndex index) {
  Tensor& tensor = store_[index];
  const std::uint16_t sum = sessions_.AccessSum(tensor);
  if (sum != tensor.accesses_seen) {
    // Pinned by clients on their own since the last look: it was hot, we did not know.
    tensor.accesses_seen = sum;
    store_.Touch(index);
    return true;
  }
  if (tensor.chances > 0) {
    --tensor.chances;
    store_.lru(store_.home_tier(index)).Touch(index);
    return true;
  }
  return false;
}

TensorIndex Reclaimer::NextVictim(TierId tier, std::optional<TenantId> only, std::size_t& budget,
                                  bool& saw_pinned) {
  policy::LruList& list = store_.lru(tier);
  TensorIndex next = kNoIndex;
  for (TensorIndex at = list.Coldest(); at != kNoIndex && budget > 0; at = next) {
    --budget;
    next = list.NextHotter(at);
    const Tensor& tensor = store_[at];
    if (only.has_value() && tensor.tenant != *only) continue;
    if (tensor.holds > 0) {
      list.Touch(at);
      continue;
    }
    if (UsedSince(at)) continue;
    if (sessions_.Pinned(tensor)) {
      saw_pinned = true;
      list.Touch(at);
      continue;
    }
    return at;
  }
  return kNoIndex;
}

Reclaimer::Outcome Reclaimer::Drop(TensorIndex victim) {
  if (!store_[victim].droppable) return Outcome::kNoPlace;
  if (!relocator_.Freeze(victim)) return Outcome::kPinned;
  relocator_.NoteDropped(victim);
  ++counters_.evictions;
  ++states_[store_.home_tier(victim)].dropped;
  return relocator_.Doom(victim) ? Outcome::kPinned : Outcome::kFreed;
}

bool Reclaimer::CheaperToDrop(TensorIndex victim, TierId below) const {
  const Tensor& tensor = store_[victim];
  if (!tensor.droppable || tensor.recompute_us == 0) return false;
  Duration back{};
  TierId at = below;
  for (const TierId next : Path(below, store_.home_tier(victim))) {
    const auto time = link_times_.Time(at, next, tensor.bytes);
    if (!time.has_value()) return false;
    back += *time;
    at = next;
  }
  // Compared in microseconds, for what a client says may be anything.
  const auto back_us = std::chrono::duration_cast<std::chrono::microseconds>(back).count();
  return tensor.recompute_us < static_cast<std::uint64_t>(std::max<std::int64_t>(back_us, 0));
}

bool Reclaimer::Refused::Covers(const Tensor& tensor) const {
  return tensor.bytes >= bytes ||
         std::find(tenants.begin(), tenants.end(), tensor.tenant) != tenants.end();
}

void Reclaimer::Refused::Note(const Tensor& tensor, const absl::Status& why) {
  if (ReasonOf(why) == Reason::kQuota) {
    tenants.push_back(tensor.tenant);
  } else {
    // Shorter ones may ask again, but not one by one down to the last byte.
    bytes = tensor.bytes / 2;
  }
}

Reclaimer::Outcome Reclaimer::Evict(TensorIndex victim, copy::Priority priority,
                                    RefusedByTier& refused) {
  const TierId tier = store_.home_tier(victim);
  for (std::size_t lower = tier + 1u; lower < tiers_.size(); ++lower) {
    if (store_.FindCopy(victim, static_cast<TierId>(lower), Copy::Role::kClean) == kNoIndex)
      continue;
    return relocator_.SwitchToClean(victim, static_cast<TierId>(lower)).ok() ? Outcome::kFreed
                                                                             : Outcome::kPinned;
  }
  auto below = Below(tier);
  if (!below.has_value() || CheaperToDrop(victim, *below)) return Drop(victim);
  const Tensor& tensor = store_[victim];
  for (; below.has_value(); below = Below(*below)) {
    if (!refused[*below].Covers(tensor)) {
      auto room =
          Take(tensor.tenant, *below, tensor.bytes,
               priority == copy::Priority::kBackground ? Purpose::kBackground : Purpose::kExchange);
      if (room.ok()) {
        const absl::Status started = relocator_.Start(victim, {*room}, priority);
        if (started.ok()) return Outcome::kLeaving;
        return ReasonOf(started) == Reason::kPinned ? Outcome::kPinned : Outcome::kBlocked;
      }
      refused[*below].Note(tensor, room.status());
    }
    // Room there is on its way: wait for it. Else what is there cannot go, and may stay for long,
    // as pins do: further down is better than lost.
    if (relocator_.leaving_bytes(*below) > 0) return Outcome::kBlocked;
  }
  return Drop(victim);
}

MoveCause Reclaimer::VictimCause(TierId tier, copy::Priority priority) const {
  // Further down it is only ever to make room for what comes from above.
  if (depth_ > 1) return MoveCause::kRoom;
  if (priority == copy::Priority::kBackground) {
    // A tier that shrinks has the marks of its goal: without the resize it would be below them.
    const bool shrinks = tiers_[tier]->limit() < tiers_[tier]->capacity();
    return shrinks ? MoveCause::kResize : MoveCause::kWatermark;
  }
  const MoveCause cause = journal_.cause();
  return cause == MoveCause::kAdminEvict || cause == MoveCause::kResize ? cause : MoveCause::kRoom;
}

Reclaimer::Progress Reclaimer::MakeRoom(TierId tier, Bytes bytes, copy::Priority priority,
                                        std::optional<TenantId> only, std::size_t victims_max) {
  HMM_CHECK(++depth_ <= tiers_.size() + 1);
  const MoveJournal::Because why(journal_, VictimCause(tier, priority), journal_.session());
  Progress progress;
  progress.freed = TakeBackAhead(tier, bytes, only, victims_max);
  if (progress.freed < bytes) {
    progress.freed += DropClean(tier, bytes - progress.freed, only, victims_max);
  }
  // Twice round at most: what was put to the hot end is met again.
  std::size_t budget = std::min(kLooksMax, 2 * store_.lru(tier).size() + 8);
  RefusedByTier refused(tiers_.size());
  while (progress.freed + progress.leaving < bytes && victims_max-- > 0) {
    const TensorIndex victim = NextVictim(tier, only, budget, progress.saw_pinned);
    if (victim == kNoIndex) {
      progress.exhausted = true;
      break;
    }
    const Bytes length = store_.home(victim).extent.length;
    const Handle handle = store_[victim].handle();
    const TenantId tenant = store_[victim].tenant;
    const Outcome outcome = Evict(victim, priority, refused);
    if (outcome == Outcome::kBlocked) {
      progress.blocked = true;
      break;
    }
    if (outcome == Outcome::kFreed) progress.freed += length;
    if (outcome == Outcome::kLeaving) progress.leaving += length;
    if (outcome == Outcome::kPinned) progress.saw_pinned = true;
    // Those that stay go to the hot end, so that the next look meets others.
    if (outcome == Outcome::kPinned || outcome == Outcome::kNoPlace) {
      if (store_.Find(tenant, handle) == victim && store_.InRecency(victim)) {
        store_.lru(tier).Touch(victim);
      }
    }
  }
  --depth_;
  return progress;
}

bool Reclaimer::Demote(TensorIndex index) {
  ++depth_;  // what makes room further down does it for this one
  RefusedByTier refused(tiers_.size());
  const Outcome outcome = Evict(index, copy::Priority::kMakeRoom, refused);
  --depth_;
  return outcome == Outcome::kFreed || outcome == Outcome::kLeaving;
}

bool Reclaimer::WantsBackground() const {
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    const auto tier = static_cast<TierId>(i);
    if (states_[i].draining ||
        tiers_[i]->ledger().used() > policy::MarksInBytes(MarksOf(tier)).start) {
      return true;
    }
  }
  return false;
}

bool Reclaimer::Background() {
  bool more = false;
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    const auto tier = static_cast<TierId>(i);
    if (states_[i].state == tier::TierState::kOffline) continue;
    const policy::Watermarks marks = MarksOf(tier);
    const policy::Occupancy now{tiers_[i]->ledger().used() - relocator_.within_bytes(tier),
                                relocator_.leaving_bytes(tier)};
    const policy::Drain drain = policy::DecideDrain(marks, now, states_[i].draining);
    if (drain.draining != states_[i].draining) NoteDrain(tier, drain.draining, now.used, marks);
    states_[i].draining = drain.draining;
    const std::size_t under_way = relocator_.leaving_count(tier);
    if (drain.to_free == 0 || under_way >= options_.victims_per_batch) continue;
    const Progress progress = MakeRoom(tier, drain.to_free, copy::Priority::kBackground,
                                       std::nullopt, options_.victims_per_batch - under_way);
    // What went at once needs no completion that would call us again.
    more = more || (progress.freed > 0 && progress.freed < drain.to_free);
  }
  return more;
}

void Reclaimer::NoteDrain(TierId tier, bool draining, Bytes used, const policy::Watermarks& marks) {
  Event& event = events_.Emit(EventType::kWatermark);
  event.tier = tier;
  event.mark = draining ? MarkCrossed::kAboveHigh : MarkCrossed::kBelowLow;
  event.used = used;
  const policy::Marks at = policy::MarksInBytes(marks);
  event.mark_bytes = draining ? at.start : at.stop;
}

void Reclaimer::SetState(TierId tier, tier::TierState state, std::string note,
                         std::optional<Reason> reason) {
  TierStatus& status = states_[tier];
  Event& event = events_.Emit(EventType::kTierHealth);
  event.tier = tier;
  event.before = status.state;
  event.after = state;
  event.text = note;
  if (status.state != state) status.since = clock_.Now();
  status.state = state;
  status.note = std::move(note);
  status.reason = reason;
}

}  // namespace hmm::core
