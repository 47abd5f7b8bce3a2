// SPDX-License-Identifier: Apache-2.0
//
// Why a tensor is where it is, and how the tiers do. Changes nothing.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "hmm/core.h"
#include "hmm/manager.h"
#include "hmm/tensor_info.h"
#include "policy/cost.h"

namespace hmm::core {
namespace {

constexpr std::size_t kRankLooksMax = 10000;
constexpr std::size_t kOwnersNamed = 16;  // in an error's words

EvictionCostInfo CostOf(const Core& core, TensorIndex index) {
  const Tensor& tensor = core.store[index];
  const TierId home = core.store.home_tier(index);
  const TimePoint now = core.clock.Now();
  EvictionCostInfo info;
  info.accesses = core.sessions.AccessSum(tensor);
  info.idle = now - tensor.touched;
  info.recompute_us = tensor.recompute_us;
  info.below = core.reclaimer.Below(home);
  policy::CostFactors factors;
  factors.accesses = info.accesses;
  factors.age = now - tensor.created;
  factors.idle = info.idle;
  factors.kind = tensor.kind;
  factors.priority = tensor.priority;
  factors.bytes = core.store.copy(tensor.home).extent.length;
  if (info.below.has_value()) {
    info.bring_back = core.EstimateTime(*info.below, home, tensor.bytes, &info.bring_back_measured);
    factors.bring_back = info.bring_back;
    info.clean_below = core.store.FindCopy(index, *info.below, Copy::Role::kClean) != kNoIndex;
  }
  if (tensor.recompute_us > 0) factors.recompute = std::chrono::microseconds(tensor.recompute_us);
  info.cost = policy::CostOfEviction(factors);
  return info;
}

// What the daemon would do with it next.
std::string NextOf(const Core& core, TensorIndex index, const EvictionCostInfo& cost) {
  const Tensor& tensor = core.store[index];
  const std::string& tier = core.tiers[core.store.home_tier(index)]->name();
  switch (tensor.state) {
    case TensorState::kCreating:
      return "stays: it is being written";
    case TensorState::kMoving:
      if (tensor.move == 0) return "is being moved";
      return absl::StrCat("is on its way to ",
                          core.tiers[core.relocator.Destination(index)]->name());
    case TensorState::kDoomed:
      return "was freed; its bytes return when the last pin goes";
    case TensorState::kGone:
      return "is gone";
    case TensorState::kResident:
    case TensorState::kAbsent:
      break;
  }
  if (tensor.ahead)
    return "was allocated ahead and is not yet taken: goes first when room is needed";
  if (tensor.lost) return "is lost: its bytes cannot be read; free it and make it anew";
  if (core.sessions.Pinned(tensor)) return "stays while it is pinned";
  if (tensor.holds > 0) return "stays for a call that waits for it";
  const std::string when =
      absl::StrCat("leaves ", tier, " when room is needed and its turn comes: ");
  if (!cost.below.has_value()) {
    return tensor.droppable ? absl::StrCat(when, "dropped, for nothing lies below")
                            : "stays: nothing lies below and it may not be dropped";
  }
  const std::string& below = core.tiers[*cost.below]->name();
  if (cost.clean_below)
    return absl::StrCat(when, "to its copy in ", below, ", without moving bytes");
  if (core.reclaimer.CheaperToDrop(index, *cost.below)) {
    return absl::StrCat(when, "dropped, for it is sooner made anew than brought back from ", below);
  }
  return absl::StrCat(when, "moved to ", below,
                      tensor.droppable ? ", or dropped where that has no room" : "");
}

// As Find, but what was freed and a pin keeps is found too.
TensorIndex FindAny(const TensorStore& store, TenantId tenant, Handle handle) {
  if (handle.slot >= store.slots_used(tenant)) return kNoIndex;
  const TensorIndex index = store.at_slot(tenant, handle.slot);
  return index != kNoIndex && store[index].handle() == handle ? index : kNoIndex;
}

// Handles and keys are a tenant's own: without one, all are asked.
absl::StatusOr<TensorIndex> FindNamed(const Core& core, std::optional<SessionId> viewer,
                                      std::string_view tenant, Handle handle,
                                      std::string_view key) {
  TenantId at = 0;
  auto end = static_cast<TenantId>(core.store.tenant_count());
  if (viewer.has_value() || !tenant.empty()) {
    HMM_ASSIGN_OR_RETURN(at, core.TenantFor(viewer, tenant));
    end = at + 1;
  }
  TensorIndex found = kNoIndex;
  std::vector<std::string> owners;
  for (; at < end; ++at) {
    const TensorIndex index = !key.empty()         ? core.store.FindKey(at, key)
                              : viewer.has_value() ? core.store.Find(at, handle)
                                                   : FindAny(core.store, at, handle);
    if (index == kNoIndex) continue;
    found = index;
    owners.push_back(core.store.tenant_name(at));
  }
  if (owners.empty()) {
    return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
                 "no such tensor: never allocated here, freed, or evicted");
  }
  if (owners.size() == 1) return found;
  const std::size_t others = owners.size() - std::min(owners.size(), kOwnersNamed);
  owners.resize(owners.size() - others);
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
               absl::StrCat("each of the tenants ", absl::StrJoin(owners, ", "),
                            others > 0 ? absl::StrCat(" and ", others, " others") : "",
                            " has one; say whose is meant"));
}

}  // namespace

absl::StatusOr<Explanation> Manager::Explain(std::optional<SessionId> viewer,
                                             std::string_view tenant_name, Handle handle,
                                             std::string_view key, std::size_t moves_max) const {
  HMM_ASSIGN_OR_RETURN(const TensorIndex index,
                       FindNamed(*core_, viewer, tenant_name, handle, key));
  Explanation out;
  out.tensor = InfoOf(*core_, index);
  out.cost = CostOf(*core_, index);
  out.next = NextOf(*core_, index, out.cost);
  const policy::LruList& list = core_->store.lru(out.tensor.tier);
  out.of_tensors = list.size();
  if (core_->store.InRecency(index)) {
    for (TensorIndex at = list.Coldest(); at != index && !out.rank_capped;
         at = list.NextHotter(at)) {
      out.rank_capped = ++out.rank >= kRankLooksMax;
    }
  }
  std::uint64_t number = core_->store[index].last_move;
  while (number != 0 && out.moves.size() < moves_max) {
    const MoveRecord* record = core_->journal.Find(number);
    if (record == nullptr) break;
    out.moves.push_back(*record);
    number = record->previous;
  }
  out.moves_forgotten = number != 0 && core_->journal.Find(number) == nullptr;
  return out;
}

absl::StatusOr<std::vector<TierHealth>> Manager::GetHealth(std::string_view name) const {
  std::optional<TierId> only;
  if (!name.empty()) {
    HMM_ASSIGN_OR_RETURN(only, core_->TierByName(name));
  }
  const TimePoint now = core_->clock.Now();
  std::vector<TierHealth> all;
  for (std::size_t i = 0; i < core_->tiers.size(); ++i) {
    const auto id = static_cast<TierId>(i);
    if (only.has_value() && id != *only) continue;
    const Relocator::Health& seen = core_->relocator.health(id);
    TierHealth health;
    health.name = core_->tiers[i]->name();
    health.state = core_->reclaimer.state(id);
    health.reason = core_->reclaimer.reason(id);
    health.note =
        core_->reclaimer.note(id).empty() ? core_->tiers[i]->note() : core_->reclaimer.note(id);
    health.since = now - core_->reclaimer.since(id);
    if (seen.proved.has_value()) {
      health.last_probe = now - *seen.proved;
      health.last_probe_ok = seen.proved_ok;
    }
    health.read_errors = seen.read_errors;
    health.write_errors = seen.write_errors;
    health.checksum_errors = seen.checksum_errors;
    all.push_back(std::move(health));
  }
  return all;
}

EventBus& Manager::events() { return core_->events; }

}  // namespace hmm::core
