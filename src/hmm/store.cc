// SPDX-License-Identifier: Apache-2.0
//
// What the lists, sums and shared slots must say of a tensor: see store_check.cc, which checks it.
#include "hmm/store.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "share/pin.h"

namespace hmm::core {
using tier::ByteState;

std::size_t TensorStore::KeyHash::operator()(std::string_view key) const {
  return absl::Hash<absl::string_view>()(absl::string_view(key.data(), key.size()));
}
std::size_t TensorStore::KeyHash::operator()(TensorIndex index) const {
  return (*this)(store->tensors_[index].key());
}

TensorStore::TensorStore(const ManagerOptions& options, Tiers& tiers, const Clock& clock,
                         EventBus& events, const MoveJournal& journal)
    : options_(options),
      tiers_(tiers),
      clock_(clock),
      events_(events),
      journal_(journal),
      clean_bytes_(tiers.size(), 0),
      ahead_bytes_(tiers.size(), 0),
      moving_homes_(tiers.size(), 0) {
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    lru_.emplace_back(lru_links_);
    clean_.emplace_back(clean_links_);
    ahead_.emplace_back(lru_links_);
  }
}

std::optional<TenantId> TensorStore::FindTenant(std::string_view name) const {
  const auto it = tenant_by_name_.find(std::string(name));
  return it == tenant_by_name_.end() ? std::nullopt : std::optional<TenantId>(it->second);
}

absl::StatusOr<TenantId> TensorStore::TenantFor(std::string_view name) {
  if (auto it = tenant_by_name_.find(std::string(name)); it != tenant_by_name_.end()) {
    return it->second;
  }
  auto tenant = std::make_unique<Tenant>(std::string(name), this);
  const Bytes bytes = share::TableBytes(options_.max_tensors);
  HMM_ASSIGN_OR_RETURN(tenant->file,
                       share::CreateMemoryFile(absl::StrCat("hmm-table-", tenant->name), bytes));
  HMM_ASSIGN_OR_RETURN(
      tenant->table,
      share::Mapping::Map(tenant->file.get(), bytes, share::Mapping::Access::kReadWrite, false));
  auto* header = reinterpret_cast<share::TableHeader*>(tenant->table.data());
  *header = {share::kTableMagic, share::kAbiVersion, options_.max_tensors, options_.boot_epoch};
  // Our mapping keeps writing; nobody can make another writable one.
  HMM_RETURN_IF_ERROR(share::SealFutureWrites(tenant->file.get()));
  const auto id = static_cast<TenantId>(tenants_.size());
  tenants_.push_back(std::move(tenant));
  tenant_by_name_.emplace(std::string(name), id);
  return id;
}

share::TableSlot& TensorStore::slot_of(const Tensor& tensor) {
  return share::TableSlots(tenants_[tensor.tenant]->table.data())[tensor.slot];
}

absl::StatusOr<TensorIndex> TensorStore::Create(TenantId tenant_id, SessionId owner,
                                                const TensorSpec& spec, const Room& room) {
  Tenant& tenant = *tenants_[tenant_id];
  if (!spec.key.empty() && FindKey(tenant_id, spec.key) != kNoIndex) {
    return Error(absl::StatusCode::kAlreadyExists, Reason::kExists,
                 "the key is taken by another tensor of this tenant; look it up, or free that one");
  }
  std::uint32_t slot = 0;
  if (!tenant.free_slots.empty()) {
    slot = tenant.free_slots.back();
    tenant.free_slots.pop_back();
  } else if (tenant.slots.size() < options_.max_tensors) {
    slot = static_cast<std::uint32_t>(tenant.slots.size());
    tenant.slots.push_back(kNoIndex);
    tenant.generations.push_back(0);
  } else {
    return Error(
        absl::StatusCode::kResourceExhausted, Reason::kQuota,
        absl::StrCat("all ", options_.max_tensors,
                     " tensor slots of this tenant are taken; free some, or raise max_tensors"));
  }
  TensorIndex index = 0;
  if (!free_tensors_.empty()) {
    index = free_tensors_.back();
    free_tensors_.pop_back();
  } else {
    index = static_cast<TensorIndex>(tensors_.size());
    tensors_.emplace_back();
  }
  Tensor& tensor = tensors_[index];
  tensor = Tensor{};
  tensor.bytes = spec.bytes;
  tensor.created = tensor.touched = clock_.Now();
  tensor.recompute_us = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(spec.recompute_us, std::numeric_limits<std::uint32_t>::max()));
  tensor.slot = slot;
  tensor.generation = ++tenant.generations[slot];
  tensor.tenant = tenant_id;
  tensor.owner = owner;
  tensor.kind = spec.kind;
  tensor.priority = tensor.chances = static_cast<std::uint8_t>(spec.priority & 7);
  tensor.droppable = spec.droppable;
  tenant.slots[slot] = index;
  ++live_;
  ++tenant.live;
  tensor.home = AddCopy(index, room, Copy::Role::kHome, ByteState::kCreating);
  if (!spec.key.empty()) HMM_CHECK(LinkKey(index, spec.key));
  Transition(index, TensorState::kCreating);
  EnterLists(index, /*hot=*/true);
  return index;
}

absl::StatusOr<TensorIndex> TensorStore::CreateAhead(TenantId tenant, SessionId owner,
                                                     const TensorSpec& spec, const Room& room) {
  HMM_CHECK(spec.key.empty());
  HMM_ASSIGN_OR_RETURN(const TensorIndex index, Create(tenant, owner, spec, room));
  LeaveLists(index);
  Tensor& tensor = tensors_[index];
  tensor.ahead = true;
  EnterLists(index, /*hot=*/true);
  Account(tensor.home, ByteState::kReserved);
  Transition(index, TensorState::kResident);
  return index;
}

void TensorStore::MakeOrdinary(TensorIndex index) {
  Tensor& tensor = tensors_[index];
  if (!tensor.ahead) return;
  LeaveLists(index);
  tensor.ahead = false;
  EnterLists(index, /*hot=*/true);
  Account(tensor.home, ByteState::kResident);
  Touch(index);
}

TensorStore::AheadUse TensorStore::ahead_of(SessionId session) const {
  const auto found = ahead_of_.find(session);
  return found == ahead_of_.end() ? AheadUse{} : found->second;
}

void TensorStore::PublishLocation(const Tensor& tensor) {
  share::TableSlot& slot = slot_of(tensor);
  const Copy& home = copies_[tensor.home];
  slot.segment.store(home.extent.segment, std::memory_order_relaxed);
  slot.offset.store(home.extent.offset, std::memory_order_relaxed);
  slot.bytes.store(tensor.bytes, std::memory_order_relaxed);
  slot.flags.store(tensor.sealed ? share::kFlagSealed : 0, std::memory_order_relaxed);
}

void TensorStore::Transition(TensorIndex index, TensorState to) {
  Tensor& tensor = tensors_[index];
  const TensorState from = tensor.state;
  HMM_CHECK(TransitionAllowed(from, to));
  ++transitions_[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
  const bool at_rest = to == TensorState::kResident || to == TensorState::kAbsent;
  if (from == TensorState::kMoving) --moving_homes_[home_tier(index)];
  if (to == TensorState::kMoving) {
    LeaveLists(index);
    ++moving_homes_[home_tier(index)];
  }
  if (to == TensorState::kDoomed) {
    UnlinkKey(index);
    if (from != TensorState::kMoving) LeaveLists(index);
    tensor.ahead = false;
  }
  tensor.state = to;
  if (to != TensorState::kGone) {
    const Copy& home = copies_[tensor.home];
    if (at_rest && !tensor.ahead) Account(tensor.home, ByteState::kResident);
    if (to == TensorState::kDoomed && home.account != ByteState::kMoving) {
      Account(tensor.home, ByteState::kResident);
    }
    PublishLocation(tensor);
    share::PublishState(slot_of(tensor), {to, home.tier, tensor.generation});
  } else {
    share::PublishState(slot_of(tensor), {to, 0, tensor.generation});
  }
  if (from == TensorState::kMoving && at_rest) EnterLists(index, /*hot=*/true);
  EmitChange(tensor, from);
}

void TensorStore::EmitChange(const Tensor& tensor, TensorState from) {
  Event& event = events_.Emit(EventType::kTensor);
  event.tenant = tensor.tenant;
  event.handle = tensor.handle();
  event.key = std::string(tensor.key());
  event.kind = tensor.kind;
  event.bytes = tensor.bytes;
  event.from = from;
  event.to = tensor.state;
  if (tensor.state != TensorState::kGone) event.tier = copies_[tensor.home].tier;
  if (from == TensorState::kMoving || tensor.state == TensorState::kMoving) {
    event.cause = journal_.cause();
  }
}

void TensorStore::Remove(TensorIndex index) {
  Tensor& tensor = tensors_[index];
  HMM_CHECK(tensor.state == TensorState::kDoomed && tensor.copies == kNoIndex);
  Transition(index, TensorState::kGone);
  Tenant& tenant = *tenants_[tensor.tenant];
  tenant.slots[tensor.slot] = kNoIndex;
  // A generation is never used twice: a slot at its last one is retired.
  if (tensor.generation < options_.generation_max) {
    tenant.free_slots.push_back(tensor.slot);
  }
  tensor = Tensor{};
  free_tensors_.push_back(index);
  --live_;
  --tenant.live;
}

void TensorStore::Seal(TensorIndex index) {
  Tensor& tensor = tensors_[index];
  tensor.sealed = true;
  if (tensor.state == TensorState::kCreating) {
    Transition(index, TensorState::kResident);
  } else {
    slot_of(tensor).flags.store(share::kFlagSealed, std::memory_order_relaxed);
  }
}

TensorIndex TensorStore::Find(TenantId tenant_id, Handle handle) const {
  const Tenant& tenant = *tenants_[tenant_id];
  if (handle.slot >= tenant.slots.size()) return kNoIndex;
  const TensorIndex index = tenant.slots[handle.slot];
  if (index == kNoIndex) return kNoIndex;
  const Tensor& tensor = tensors_[index];
  if (tensor.generation != handle.generation || tensor.state == TensorState::kDoomed ||
      tensor.hidden) {
    return kNoIndex;
  }
  return index;
}

TensorIndex TensorStore::FindKey(TenantId tenant, std::string_view key) const {
  const auto& keys = tenants_[tenant]->keys;
  const auto it = keys.find(key);
  return it == keys.end() ? kNoIndex : *it;
}

bool TensorStore::LinkKey(TensorIndex index, std::string_view key) {
  Tensor& tensor = tensors_[index];
  HMM_CHECK(!tensor.key_linked && !key.empty());
  if (FindKey(tensor.tenant, key) != kNoIndex) return false;
  tensor.key_bytes = KeyBytes(key);
  tensor.key_linked = true;
  tenants_[tensor.tenant]->keys.insert(index);
  return true;
}

void TensorStore::UnlinkKey(TensorIndex index) {
  Tensor& tensor = tensors_[index];
  if (!tensor.key_linked) return;
  tenants_[tensor.tenant]->keys.erase(index);
  tensor.key_linked = false;
}

CopyIndex TensorStore::NewCopy() {
  if (!free_copies_.empty()) {
    const CopyIndex index = free_copies_.back();
    free_copies_.pop_back();
    return index;
  }
  copies_.emplace_back();
  return static_cast<CopyIndex>(copies_.size() - 1);
}

CopyIndex TensorStore::AddCopy(TensorIndex index, const Room& room, Copy::Role role,
                               ByteState account) {
  const CopyIndex at = NewCopy();
  Copy& copy = copies_[at];
  copy = Copy{};
  copy.extent = room.extent;
  copy.tensor = index;
  copy.tenant = room.tenant;
  copy.tier = room.tier;
  copy.role = role;
  copy.next = tensors_[index].copies;
  tensors_[index].copies = at;
  Account(at, account);
  return at;
}

void TensorStore::Account(CopyIndex index, ByteState to) {
  Copy& copy = copies_[index];
  if (copy.account == to) return;
  tiers_[copy.tier]->Account(copy.extent, copy.account, to);
  copy.account = to;
}

void TensorStore::Unchain(CopyIndex index) {
  CopyIndex* at = &tensors_[copies_[index].tensor].copies;
  while (*at != index) at = &copies_[*at].next;
  *at = copies_[index].next;
  copies_[index].next = kNoIndex;
}

void TensorStore::SwitchHome(TensorIndex index, CopyIndex to, bool keep_old) {
  Tensor& tensor = tensors_[index];
  HMM_CHECK(tensor.state == TensorState::kMoving && to != tensor.home);
  const CopyIndex old = tensor.home;
  Copy& next = copies_[to];
  if (next.role == Copy::Role::kClean) {
    clean_[next.tier].Remove(to);
    clean_bytes_[next.tier] -= next.extent.length;
  }
  --moving_homes_[copies_[old].tier];
  next.role = Copy::Role::kHome;
  Account(to, ByteState::kMoving);
  tensor.home = to;
  ++moving_homes_[next.tier];
  PublishLocation(tensor);
  share::PublishState(slot_of(tensor), {tensor.state, next.tier, tensor.generation});
  if (keep_old) {
    Copy& copy = copies_[old];
    copy.role = Copy::Role::kClean;
    Account(old, ByteState::kResident);
    clean_[copy.tier].PushHot(old);
    clean_bytes_[copy.tier] += copy.extent.length;
  } else {
    FreeCopy(old);
  }
}

void TensorStore::FreeCopy(CopyIndex index) {
  Copy& copy = copies_[index];
  if (copy.role == Copy::Role::kClean) {
    clean_[copy.tier].Remove(index);
    clean_bytes_[copy.tier] -= copy.extent.length;
  }
  if (copy.role != Copy::Role::kOrphan) {
    Unchain(index);
    copy.tensor = kNoIndex;
  }
  if (copy.copiers > 0) {
    // An extent given to a copier is never freed earlier than its completion.
    copy.role = Copy::Role::kOrphan;
    Account(index, ByteState::kMoving);
    return;
  }
  tiers_[copy.tier]->Free(copy.tenant, copy.extent, copy.account);
  copy = Copy{};
  free_copies_.push_back(index);
}

void TensorStore::CopierDone(CopyIndex index) {
  Copy& copy = copies_[index];
  HMM_CHECK(copy.copiers > 0);
  if (--copy.copiers == 0 && copy.role == Copy::Role::kOrphan) FreeCopy(index);
}

CopyIndex TensorStore::FindCopy(TensorIndex index, TierId tier, Copy::Role role) const {
  for (CopyIndex at = tensors_[index].copies; at != kNoIndex; at = copies_[at].next) {
    if (copies_[at].tier == tier && copies_[at].role == role) return at;
  }
  return kNoIndex;
}

void TensorStore::ReturnRoom(const Room& room) {
  tiers_[room.tier]->Free(room.tenant, room.extent, ByteState::kReserved);
}

void TensorStore::EnterLists(TensorIndex index, bool hot) {
  const TierId tier = home_tier(index);
  const Tensor& tensor = tensors_[index];
  if (tensor.ahead) {
    const Bytes length = copies_[tensor.home].extent.length;
    AheadUse& use = ahead_of_[tensor.owner];
    ++use.tensors;
    use.bytes += length;
    ahead_bytes_[tier] += length;
  }
  policy::LruList& list = tensor.ahead ? ahead_[tier] : lru_[tier];
  if (hot) {
    list.PushHot(index);
  } else {
    list.PushCold(index);
  }
}

void TensorStore::LeaveLists(TensorIndex index) {
  const TierId tier = home_tier(index);
  const Tensor& tensor = tensors_[index];
  if (!tensor.ahead) return lru_[tier].Remove(index);
  const Bytes length = copies_[tensor.home].extent.length;
  const auto use = ahead_of_.find(tensor.owner);
  use->second.bytes -= length;
  if (--use->second.tensors == 0) ahead_of_.erase(use);
  ahead_bytes_[tier] -= length;
  ahead_[tier].Remove(index);
}

void TensorStore::Touch(TensorIndex index, TimePoint now) {
  Tensor& tensor = tensors_[index];
  HMM_DCHECK(!tensor.ahead);
  tensor.touched = now;
  tensor.chances = tensor.priority;
  if (tensor.state != TensorState::kMoving && tensor.state != TensorState::kDoomed) {
    lru_[home_tier(index)].Touch(index);
  }
}
}  // namespace hmm::core
