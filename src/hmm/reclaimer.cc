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
constexpr unsigned kWindowsMax = 4;
constexpr std::size_t kWindowLooksMax = 1u << 16;  // over all windows of one attempt
constexpr auto kRetryFull = std::chrono::milliseconds(10);

}  // namespace

Reclaimer::Reclaimer(const ManagerOptions& options, Tiers& tiers, TensorStore& store,
                     SessionTable& sessions, Relocator& relocator, Counters& counters)
    : options_(options),
      tiers_(tiers),
      store_(store),
      sessions_(sessions),
      relocator_(relocator),
      counters_(counters),
      states_(tiers.size()) {}

std::optional<TierId> Reclaimer::Below(TierId tier) const {
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
  if (to > from && tiers_[to]->kind() > tiers_[from]->kind()) {
    // Down: every tier on the demotion path above `to`, then `to`.
    for (auto at = Below(from);
         at.has_value() && *at < to && tiers_[*at]->kind() < tiers_[to]->kind(); at = Below(*at)) {
      path.push_back(*at);
    }
    path.push_back(to);
    return path;
  }
  // Up (or aside): the way down from `to`, walked backwards from where the tensor is. Memory that
  // is not on that way is copied across directly.
  std::vector<TierId> down;
  for (auto at = Below(to); at.has_value(); at = Below(*at)) {
    if (tiers_[*at]->kind() >= tiers_[from]->kind()) break;
    down.push_back(*at);
  }
  if (!tiers_[from]->mappable()) path.assign(down.rbegin(), down.rend());
  path.push_back(to);
  return path;
}

Bytes Reclaimer::FreeIn(TierId tier) const {
  const tier::Ledger& ledger = tiers_[tier]->ledger();
  return ledger.capacity() - ledger.used();
}

Bytes Reclaimer::Reserve(TierId tier) const {
  // An exchange needs a place for the largest tensor; a giant must not lock everybody out, though.
  return std::max(tiers_[tier]->options().reserve,
                  std::min(states_[tier].largest, tiers_[tier]->capacity() / 8));
}

absl::Status Reclaimer::CheckTenant(TenantId tenant, TierId tier, Bytes length) {
  if (options_.tenant_resident_max >= 1.0) return absl::OkStatus();
  const auto limit = static_cast<Bytes>(static_cast<double>(tiers_[tier]->capacity()) *
                                        options_.tenant_resident_max);
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

absl::Status Reclaimer::Refusal(TierId tier, Bytes bytes, const Progress& progress) const {
  const bool pinned = progress.exhausted && progress.saw_pinned && !progress.blocked &&
                      progress.leaving == 0 && relocator_.leaving_bytes(tier) == 0;
  return WithRetry(
      Error(absl::StatusCode::kResourceExhausted, pinned ? Reason::kPinned : Reason::kFull,
            absl::StrCat(
                "tier ", tiers_[tier]->name(), " has no room for ", bytes,
                " bytes now: ", FreeIn(tier), " free, ", Reserve(tier), " of them reserved, ",
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
  return Refusal(tier, bytes, progress);
}

Bytes Reclaimer::Kept(TierId tier, Bytes length, Purpose purpose) const {
  if (purpose == Purpose::kExchange) return 0;
  // What was not asked for but taken from experience yields to a tensor that fits no other way.
  return std::max(tiers_[tier]->options().reserve,
                  std::min(Reserve(tier), tiers_[tier]->capacity() - length));
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
  const std::uint32_t sum = sessions_.AccessSum(tensor);
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
  ++counters_.evictions;
  return relocator_.Doom(victim) ? Outcome::kPinned : Outcome::kFreed;
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

Reclaimer::Outcome Reclaimer::Evict(TensorIndex victim, copy::Priority priority, Refused& refused) {
  const TierId tier = store_.home_tier(victim);
  for (std::size_t lower = tier + 1u; lower < tiers_.size(); ++lower) {
    if (store_.FindCopy(victim, static_cast<TierId>(lower), Copy::Role::kClean) == kNoIndex)
      continue;
    return relocator_.SwitchToClean(victim, static_cast<TierId>(lower)).ok() ? Outcome::kFreed
                                                                             : Outcome::kPinned;
  }
  const auto below = Below(tier);
  if (!below.has_value()) return Drop(victim);
  const Tensor& tensor = store_[victim];
  if (refused.Covers(tensor)) {
    return relocator_.leaving_bytes(*below) > 0 ? Outcome::kBlocked : Drop(victim);
  }
  auto room =
      Take(tensor.tenant, *below, tensor.bytes,
           priority == copy::Priority::kBackground ? Purpose::kBackground : Purpose::kExchange);
  if (!room.ok()) {
    // Room there is on its way: wait for it rather than lose the bytes.
    if (relocator_.leaving_bytes(*below) > 0) return Outcome::kBlocked;
    refused.Note(tensor, room.status());
    return Drop(victim);
  }
  const absl::Status started = relocator_.Start(victim, {*room}, priority);
  if (started.ok()) return Outcome::kLeaving;
  return ReasonOf(started) == Reason::kPinned ? Outcome::kPinned : Outcome::kBlocked;
}

Reclaimer::Progress Reclaimer::MakeRoom(TierId tier, Bytes bytes, copy::Priority priority,
                                        std::optional<TenantId> only, std::size_t victims_max) {
  HMM_CHECK(++depth_ <= tiers_.size() + 1);
  Progress progress;
  progress.freed = DropClean(tier, bytes, only, victims_max);
  // Twice round at most: what was put to the hot end is met again.
  std::size_t budget = std::min(kLooksMax, 2 * store_.lru(tier).size() + 8);
  Refused refused;
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
      if (store_.Find(tenant, handle) == victim && store_.lru(tier).Contains(victim)) {
        store_.lru(tier).Touch(victim);
      }
    }
  }
  --depth_;
  return progress;
}

Bytes Reclaimer::ClearWindow(TierId tier, const tier::Tier::Window& window, std::size_t& looks,
                             std::vector<TensorIndex>& victims) {
  auto inside = [&](const tier::Extent& extent) {
    return extent.segment == window.segment && extent.offset < window.offset + window.length &&
           extent.offset + extent.length > window.offset;
  };
  Bytes freed = 0;
  for (CopyIndex at = store_.OldestClean(tier); at != kNoIndex && looks > 0; --looks) {
    const CopyIndex next = store_.NextClean(tier, at);
    if (inside(store_.copy(at).extent)) {
      freed += store_.copy(at).extent.length;
      ++counters_.clean_drops;
      store_.FreeCopy(at);
    }
    at = next;
  }
  const policy::LruList& list = store_.lru(tier);
  for (TensorIndex at = list.Coldest(); at != kNoIndex && looks > 0; at = list.NextHotter(at)) {
    if (inside(store_.home(at).extent)) victims.push_back(at);
    --looks;
  }
  return freed;
}

Reclaimer::Progress Reclaimer::MakeWindow(TierId tier, Bytes length) {
  Progress progress;
  if (relocator_.leaving_bytes(tier) > 0) return progress;  // first see what that gives
  std::vector<tier::Tier::Window> skip;
  std::size_t looks = kWindowLooksMax;
  for (unsigned tries = 0; tries < kWindowsMax; ++tries) {
    const auto window = tiers_[tier]->EmptiestWindow(length, skip);
    if (!window.has_value()) break;
    std::vector<TensorIndex> victims;
    progress.freed += ClearWindow(tier, *window, looks, victims);
    const bool held = std::any_of(victims.begin(), victims.end(), [&](TensorIndex at) {
      return store_[at].holds > 0 || sessions_.Pinned(store_[at]);
    });
    if (held) {
      progress.saw_pinned = true;
      skip.push_back(*window);
      continue;
    }
    Refused refused;
    for (const TensorIndex victim : victims) {
      const Bytes bytes = store_.home(victim).extent.length;
      const Outcome outcome = Evict(victim, copy::Priority::kMakeRoom, refused);
      if (outcome == Outcome::kFreed) progress.freed += bytes;
      if (outcome == Outcome::kLeaving) progress.leaving += bytes;
      if (outcome == Outcome::kBlocked) progress.blocked = true;
    }
    if (progress.freed + progress.leaving > 0 || progress.blocked) return progress;
    skip.push_back(*window);
  }
  // No window to be had: fall back on recency, which ends when nothing unpinned is left.
  if (progress.freed > 0) return progress;
  return MakeRoom(tier, length, copy::Priority::kMakeRoom);
}

bool Reclaimer::Background() {
  bool more = false;
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    const auto tier = static_cast<TierId>(i);
    if (states_[i].state == tier::TierState::kOffline) continue;
    const tier::TierOptions& options = tiers_[i]->options();
    const policy::Watermarks marks{tiers_[i]->capacity(), options.high, options.low,
                                   options.reserve};
    const policy::Occupancy now{tiers_[i]->ledger().used(), relocator_.leaving_bytes(tier)};
    const policy::Drain drain = policy::DecideDrain(marks, now, states_[i].draining);
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

void Reclaimer::SetState(TierId tier, tier::TierState state, std::string note) {
  states_[tier].state = state;
  states_[tier].note = std::move(note);
}

}  // namespace hmm::core
