// SPDX-License-Identifier: Apache-2.0
//
// The manager's looking verbs. They change nothing.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "hmm/core.h"
#include "hmm/manager.h"
#include "share/pin.h"

namespace hmm::core {
namespace {

TensorInfo InfoOf(const Core& core, TensorIndex index) {
  const Tensor& tensor = core.store[index];
  TensorInfo info;
  info.handle = tensor.handle();
  info.key = tensor.key;
  info.kind = tensor.kind;
  info.state = tensor.state;
  info.tier = core.store.home_tier(index);
  info.bytes = tensor.bytes;
  info.sealed = tensor.sealed;
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

std::optional<TenantId> TenantOf(const Core& core, std::optional<SessionId> viewer) {
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
  const auto tenant = TenantOf(*core_, viewer);
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
  const auto tenant = TenantOf(*core_, viewer);
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

absl::StatusOr<TensorPage> Manager::ListTensors(std::optional<SessionId> viewer,
                                                std::string_view tier, std::uint64_t cursor,
                                                std::size_t limit) const {
  std::optional<TierId> only;
  if (!tier.empty()) {
    HMM_ASSIGN_OR_RETURN(only, core_->TierByName(tier));
  }
  const auto tenant = TenantOf(*core_, viewer);
  // The cursor is tenant << 32 | slot: stable while tensors come and go.
  TensorPage page;
  auto at_tenant = static_cast<TenantId>(cursor >> 32);
  auto at_slot = static_cast<std::uint32_t>(cursor);
  // Skipped slots cost too: a page looks at a bounded number of them.
  std::size_t looks = std::max<std::size_t>(limit, 1) * 16;
  for (; at_tenant < core_->store.tenant_count(); ++at_tenant, at_slot = 0) {
    if (tenant.has_value() && at_tenant != *tenant) continue;
    for (; at_slot < core_->store.slots_used(at_tenant); ++at_slot) {
      if (page.tensors.size() >= limit || looks-- == 0) {
        page.next = (static_cast<std::uint64_t>(at_tenant) << 32) | at_slot;
        return page;
      }
      const TensorIndex index = core_->store.at_slot(at_tenant, at_slot);
      if (index == kNoIndex) continue;
      if (only.has_value() && core_->store.home_tier(index) != *only) continue;
      page.tensors.push_back(InfoOf(*core_, index));
    }
  }
  return page;
}

std::vector<SessionStatus> Manager::ListSessions(std::optional<SessionId> viewer) const {
  const auto tenant = TenantOf(*core_, viewer);
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
    list.push_back(std::move(status));
  }
  return list;
}

}  // namespace hmm::core
