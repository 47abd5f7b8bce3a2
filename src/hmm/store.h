// SPDX-License-Identifier: Apache-2.0
//
// All tensors of all tenants: slots of the residency tables, records, copies, keys, recency. It
// changes metadata, ledgers and the shared tables; it never moves bytes and never decides.
//
// One thread (the executor's).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "hmm/events.h"
#include "hmm/tensor.h"
#include "hmm/types.h"
#include "policy/lru.h"
#include "share/layout.h"
#include "share/memory_file.h"

namespace hmm::core {

using Tiers = std::vector<std::unique_ptr<tier::Tier>>;

// Room taken from a tier and accounted as reserved, not yet anybody's copy.
struct Room {
  TierId tier = 0;
  TenantId tenant = 0;
  tier::Extent extent;
};

class TensorStore {
 public:
  TensorStore(const ManagerOptions& options, Tiers& tiers, const Clock& clock, EventBus& events,
              const MoveJournal& journal);

  // --- tenants ----------------------------------------------------------------------------------
  // The tenant of this name, made on first use (its residency table is created then).
  absl::StatusOr<TenantId> TenantFor(std::string_view name);
  const std::string& tenant_name(TenantId tenant) const { return tenants_[tenant]->name; }
  int table_fd(TenantId tenant) const { return tenants_[tenant]->file.get(); }
  // Slots ever used: pin words beyond need no look.
  std::uint32_t slots_used(TenantId tenant) const {
    return static_cast<std::uint32_t>(tenants_[tenant]->slots.size());
  }
  std::size_t tenant_count() const { return tenants_.size(); }
  // The tenant of this name if there was ever one.
  std::optional<TenantId> FindTenant(std::string_view name) const;
  TensorIndex at_slot(TenantId tenant, std::uint32_t slot) const {
    return tenants_[tenant]->slots[slot];
  }

  // --- tensors ----------------------------------------------------------------------------------
  // A tensor in state CREATING whose home copy is `room`. ALREADY_EXISTS for a taken key (the room
  // stays the caller's), RESOURCE_EXHAUSTED/QUOTA when all slots are taken.
  absl::StatusOr<TensorIndex> Create(TenantId tenant, SessionId owner, const TensorSpec& spec,
                                     const Room& room);
  // As Create without a key, but RESIDENT and ahead: accounted as reserved, in AheadList.
  absl::StatusOr<TensorIndex> CreateAhead(TenantId tenant, SessionId owner, const TensorSpec& spec,
                                          const Room& room);
  // From now on an ordinary tensor, the hottest of its tier. Nothing for one that is that already.
  void MakeOrdinary(TensorIndex index);
  // The one way to change a state: checks the table in tensor.h, counts, publishes.
  void Transition(TensorIndex index, TensorState to);
  // Ends a DOOMED tensor: its slot is free (or retired). REQUIRES: no copies but orphans, no pins.
  void Remove(TensorIndex index);
  void Seal(TensorIndex index);

  Tensor& operator[](TensorIndex index) { return tensors_[index]; }
  const Tensor& operator[](TensorIndex index) const { return tensors_[index]; }
  std::size_t live() const { return live_; }
  std::size_t tensors_of(TenantId tenant) const {
    return tenant < tenants_.size() ? tenants_[tenant]->live : 0;
  }
  std::size_t record_count() const { return tensors_.size(); }
  // kNoIndex: unknown, foreign, hidden, freed (DOOMED included). FindKey finds hidden ones.
  TensorIndex Find(TenantId tenant, Handle handle) const;
  TensorIndex FindKey(TenantId tenant, std::string_view key) const;
  // False when the key is taken. REQUIRES: the tensor has no key yet.
  bool LinkKey(TensorIndex index, std::string_view key);
  void UnlinkKey(TensorIndex index);

  // --- copies -----------------------------------------------------------------------------------
  std::size_t copy_count() const { return copies_.size(); }
  Copy& copy(CopyIndex index) { return copies_[index]; }
  const Copy& copy(CopyIndex index) const { return copies_[index]; }
  Copy& home(TensorIndex index) { return copies_[tensors_[index].home]; }
  TierId home_tier(TensorIndex index) const { return copies_[tensors_[index].home].tier; }
  CopyIndex AddCopy(TensorIndex index, const Room& room, Copy::Role role, tier::ByteState account);
  // The home is now `to`; the old home becomes a clean copy (sealed) or is freed.
  void SwitchHome(TensorIndex index, CopyIndex to, bool keep_old);
  // Frees the extent, or orphans it while a copier uses it.
  void FreeCopy(CopyIndex index);
  // A copier is done with it; an orphan without copiers is freed.
  void CopierDone(CopyIndex index);
  CopyIndex FindCopy(TensorIndex index, TierId tier, Copy::Role role) const;
  void Account(CopyIndex index, tier::ByteState to);
  void ReturnRoom(const Room& room);
  // Oldest clean copy of a tier; kNoIndex: none.
  CopyIndex OldestClean(TierId tier) const { return clean_[tier].Coldest(); }
  CopyIndex NextClean(TierId tier, CopyIndex at) const { return clean_[tier].NextHotter(at); }
  Bytes clean_bytes(TierId tier) const { return clean_bytes_[tier]; }
  std::size_t homes(TierId tier) const { return lru_[tier].size() + moving_homes_[tier]; }

  // --- recency ----------------------------------------------------------------------------------
  // Home copies at rest, by recency of their tensors. Those of MOVING tensors are not in it.
  policy::LruList& lru(TierId tier) { return lru_[tier]; }
  const policy::LruList& lru(TierId tier) const { return lru_[tier]; }
  // Whether the tensor is in the lru() of its home: those that are ahead are in a list of their
  // own, which shares the links.
  bool InRecency(TensorIndex index) const {
    return !tensors_[index].ahead && lru_links_.Contains(index);
  }
  // REQUIRES: not ahead. A batch asks the clock once.
  void Touch(TensorIndex index) { Touch(index, clock_.Now()); }
  void Touch(TensorIndex index, TimePoint now);

  // --- allocated ahead --------------------------------------------------------------------------
  struct AheadUse {
    std::size_t tensors = 0;
    Bytes bytes = 0;  // as rounded by the tier
  };
  // Oldest at the cold end.
  const policy::LruList& ahead(TierId tier) const { return ahead_[tier]; }
  AheadUse ahead_of(SessionId session) const;
  Bytes ahead_bytes(TierId tier) const { return ahead_bytes_[tier]; }

  const TransitionCounts& transitions() const { return transitions_; }
  absl::Status Validate() const;

 private:
  struct Tenant;
  struct KeyHash {
    using is_transparent = void;
    const TensorStore* store;
    std::size_t operator()(std::string_view key) const;
    std::size_t operator()(TensorIndex index) const;
  };
  struct KeyEq {
    using is_transparent = void;
    const TensorStore* store;
    std::string_view Key(std::string_view key) const { return key; }
    std::string_view Key(TensorIndex index) const { return store->tensors_[index].key(); }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return Key(a) == Key(b);
    }
  };
  struct Tenant {
    Tenant(std::string n, const TensorStore* store)
        : name(std::move(n)), keys(0, KeyHash{store}, KeyEq{store}) {}
    std::string name;
    share::UniqueFd file;
    share::Mapping table;
    std::size_t live = 0;
    std::vector<TensorIndex> slots;          // slot -> record, kNoIndex when free
    std::vector<std::uint32_t> generations;  // last used generation of each slot
    std::vector<std::uint32_t> free_slots;
    absl::flat_hash_set<TensorIndex, KeyHash, KeyEq> keys;
  };

  share::TableSlot& slot_of(const Tensor& tensor);
  absl::Status ValidateCopies() const;
  absl::Status ValidateAhead() const;
  void PublishLocation(const Tensor& tensor);
  void EmitChange(const Tensor& tensor, TensorState from);
  CopyIndex NewCopy();
  void Unchain(CopyIndex index);
  void EnterLists(TensorIndex index, bool hot);
  void LeaveLists(TensorIndex index);

  const ManagerOptions& options_;
  Tiers& tiers_;
  const Clock& clock_;
  EventBus& events_;
  const MoveJournal& journal_;
  std::vector<std::unique_ptr<Tenant>> tenants_;
  absl::flat_hash_map<std::string, TenantId> tenant_by_name_;
  std::vector<Tensor> tensors_;
  std::vector<TensorIndex> free_tensors_;
  std::vector<Copy> copies_;
  std::vector<CopyIndex> free_copies_;
  std::size_t live_ = 0;
  policy::LruLinks lru_links_;          // by TensorIndex
  policy::LruLinks clean_links_;        // by CopyIndex
  std::vector<policy::LruList> lru_;    // by tier
  std::vector<policy::LruList> ahead_;  // by tier, of the same links: a tensor is in one of both
  std::vector<policy::LruList> clean_;  // by tier
  std::vector<Bytes> clean_bytes_;
  std::vector<Bytes> ahead_bytes_;
  absl::flat_hash_map<SessionId, AheadUse> ahead_of_;  // by owner; no zeros
  std::vector<std::size_t> moving_homes_;
  TransitionCounts transitions_{};
};

}  // namespace hmm::core
