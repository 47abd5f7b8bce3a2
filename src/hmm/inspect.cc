// SPDX-License-Identifier: Apache-2.0
//
// The manager's looking verbs. They change nothing.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "hmm/core.h"
#include "hmm/manager.h"
#include "hmm/tensor_info.h"
#include "share/pin.h"

namespace hmm::core {

TensorInfo InfoOf(const Core& core, TensorIndex index) {
  const Tensor& tensor = core.store[index];
  TensorInfo info;
  info.handle = tensor.handle();
  info.key = std::string(tensor.key());
  info.kind = tensor.kind;
  info.state = tensor.state;
  info.tier = core.store.home_tier(index);
  info.bytes = tensor.bytes;
  info.sealed = tensor.sealed;
  info.ahead = tensor.ahead;
  info.droppable = tensor.droppable;
  info.priority = tensor.priority;
  info.recompute_us = tensor.recompute_us;
  info.tenant = core.store.tenant_name(tensor.tenant);
  info.owner = tensor.owner;
  for (const Session* session : core.sessions.of_tenant(tensor.tenant)) {
    const std::uint32_t pins = share::PinsOf(session->words[tensor.slot].load());
    if (pins > 0) info.pins.emplace_back(session->id, pins);
  }
  info.age = core.clock.Now() - tensor.created;
  info.idle = core.clock.Now() - tensor.touched;
  for (CopyIndex at = tensor.copies; at != kNoIndex; at = core.store.copy(at).next) {
    if (core.store.copy(at).role == Copy::Role::kClean) {
      info.clean_copies.push_back(core.store.copy(at).tier);
    }
  }
  std::sort(info.clean_copies.begin(), info.clean_copies.end());
  return info;
}

namespace {

std::optional<TenantId> ViewOf(const Core& core, std::optional<SessionId> viewer) {
  if (!viewer.has_value()) return std::nullopt;
  const Session* session = core.sessions.Find(*viewer);
  return session == nullptr ? static_cast<TenantId>(core.store.tenant_count()) : session->tenant;
}

}  // namespace

absl::StatusOr<std::vector<absl::StatusOr<TensorInfo>>> Manager::Describe(
    SessionId id, absl::Span<const Handle> handles, absl::Span<const std::string> keys) {
  HMM_ASSIGN_OR_RETURN(Session * session, core_->Active(id));
  HMM_RETURN_IF_ERROR(core_->CheckBatch(handles.size() + keys.size()));
  std::vector<absl::StatusOr<TensorInfo>> results;
  auto add = [&](TensorIndex index) {
    if (index == kNoIndex) {
      results.push_back(Error(absl::StatusCode::kNotFound, Reason::kNotFound,
                              "no such tensor: never allocated here, freed, or evicted"));
    } else {
      results.push_back(InfoOf(*core_, index));
    }
  };
  for (const Handle handle : handles) add(core_->store.Find(session->tenant, handle));
  for (const std::string& key : keys) add(core_->store.FindKey(session->tenant, key));
  return results;
}

std::vector<TierInfo> Manager::ListTiers(std::optional<SessionId> viewer) const {
  const auto tenant = ViewOf(*core_, viewer);
  std::vector<TierInfo> infos;
  for (std::size_t i = 0; i < core_->tiers.size(); ++i) {
    const tier::Tier& tier = *core_->tiers[i];
    const auto id = static_cast<TierId>(i);
    TierInfo info;
    info.name = tier.name();
    info.kind = tier.kind();
    info.backend = tier.backend();
    info.emulated = tier.options().emulated;
    info.state = core_->reclaimer.state(id);
    info.note = core_->reclaimer.note(id).empty() ? tier.note() : core_->reclaimer.note(id);
    info.capacity = tier.capacity();
    info.used = tenant.has_value() ? tier.TenantBytes(*tenant) : tier.ledger().used();
    for (const auto& [session_id, session] : core_->sessions.all()) {
      if (!tenant.has_value() || session->tenant == *tenant) info.pinned += session->pinned[i];
    }
    info.high = tier.options().high;
    info.low = tier.options().low;
    info.reserve = core_->reclaimer.Reserve(id);
    for (std::size_t s = 0; s < tier::kByteStates; ++s) {
      info.by_state[s] = tier.ledger()[static_cast<tier::ByteState>(s)];
    }
    info.clean_copies = core_->store.clean_bytes(id);
    info.tensors = core_->store.homes(id);
    info.hits = core_->hits[i];
    infos.push_back(std::move(info));
  }
  return infos;
}

StatusInfo Manager::GetStatus(std::optional<SessionId> viewer) const {
  const auto tenant = ViewOf(*core_, viewer);
  StatusInfo info;
  info.epoch = core_->options.boot_epoch;
  info.uptime = core_->clock.Now() - core_->started_at;
  for (const auto& [id, session] : core_->sessions.all()) {
    if (tenant.has_value() && session->tenant != *tenant) continue;
    ++info.sessions;
    info.pins += core_->sessions.Pins(*session);
  }
  info.tensors = tenant.has_value() ? core_->store.tensors_of(*tenant) : core_->store.live();
  info.tiers = ListTiers(viewer);
  for (std::size_t from = 0; from < core_->tiers.size(); ++from) {
    for (std::size_t to = 0; to < core_->tiers.size(); ++to) {
      const copy::LinkStats& stats =
          core_->relocator.mover().stats({core_->tiers[from].get(), core_->tiers[to].get()});
      if (stats.moves + stats.failed + stats.queued + stats.running == 0) continue;
      info.links.push_back({static_cast<TierId>(from), static_cast<TierId>(to), stats});
    }
  }
  info.counters = core_->counters;
  info.draining = core_->draining;
  return info;
}

absl::StatusOr<TenantId> Manager::TenantOf(std::optional<SessionId> viewer,
                                           std::string_view name) const {
  return core_->TenantFor(viewer, name);
}

const std::string& Manager::tenant_name(TenantId tenant) const {
  return core_->store.tenant_name(tenant);
}

absl::StatusOr<TierId> Manager::TierByName(std::string_view name) const {
  return core_->TierByName(name);
}

absl::StatusOr<TensorPage> Manager::ListTensors(std::optional<SessionId> viewer,
                                                const TensorFilter& filter, std::uint64_t cursor,
                                                std::size_t limit, std::size_t looks) const {
  std::optional<TierId> tier;
  if (!filter.tier.empty()) {
    HMM_ASSIGN_OR_RETURN(tier, core_->TierByName(filter.tier));
  }
  if (filter.key_prefix.size() > core_->options.key_bytes_max) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 absl::StrCat("key_prefix has ", filter.key_prefix.size(),
                              " bytes; keys have at most ", core_->options.key_bytes_max));
  }
  std::optional<TenantId> tenant;
  if (viewer.has_value() || !filter.tenant.empty()) {
    HMM_ASSIGN_OR_RETURN(tenant, core_->TenantFor(viewer, filter.tenant));
  }
  const TensorStore& store = core_->store;
  const auto passes = [&](TensorIndex index) {
    const Tensor& tensor = store[index];
    return (!tier.has_value() || store.home_tier(index) == *tier) &&
           (!filter.kind.has_value() || tensor.kind == *filter.kind) &&
           (!filter.state.has_value() || tensor.state == *filter.state) &&
           (filter.key_prefix.empty() || tensor.key().starts_with(filter.key_prefix)) &&
           (!filter.pinned.has_value() || core_->sessions.Pinned(tensor) == *filter.pinned);
  };
  // The cursor is tenant << 32 | slot: stable while tensors come and go.
  TensorPage page;
  auto at_tenant = static_cast<TenantId>(cursor >> 32);
  auto at_slot = static_cast<std::uint32_t>(cursor);
  if (tenant.has_value() && at_tenant < *tenant) {
    at_tenant = *tenant;
    at_slot = 0;
  }
  // Skipped slots cost too: a page looks at a bounded number of them.
  if (looks == 0) looks = std::max<std::size_t>(limit, 1) * 16;
  for (; at_tenant < store.tenant_count(); ++at_tenant, at_slot = 0) {
    if (tenant.has_value() && at_tenant != *tenant) break;
    for (; at_slot < store.slots_used(at_tenant); ++at_slot) {
      if (page.tensors.size() >= limit || looks-- == 0) {
        page.next = (static_cast<std::uint64_t>(at_tenant) << 32) | at_slot;
        return page;
      }
      const TensorIndex index = store.at_slot(at_tenant, at_slot);
      if (index != kNoIndex && passes(index)) page.tensors.push_back(InfoOf(*core_, index));
    }
  }
  return page;
}

std::vector<SessionStatus> Manager::ListSessions(std::optional<SessionId> viewer) const {
  const auto tenant = ViewOf(*core_, viewer);
  std::vector<SessionStatus> list;
  for (const auto& [id, session] : core_->sessions.all()) {
    if (tenant.has_value() && session->tenant != *tenant) continue;
    SessionStatus status;
    status.session = id;
    status.tenant = session->info.tenant;
    status.uid = session->info.uid;
    status.pid = session->info.pid;
    status.command = session->info.command;
    status.closing = session->closing;
    status.pins = core_->sessions.Pins(*session);
    if (status.pins > 0) {  // the bytes may be of the last audit
      for (const Bytes bytes : session->pinned) status.pinned_bytes += bytes;
    }
    status.age = core_->clock.Now() - session->opened;
    status.tensors = session->owned.size();
    if (const auto oldest = session->pin_ages.Find(core_->clock.Now()); oldest.has_value()) {
      status.oldest_pin = oldest->held;
      status.oldest_pin_of = oldest->tensor;
    }
    list.push_back(std::move(status));
  }
  return list;
}

}  // namespace hmm::core
