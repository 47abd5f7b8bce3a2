// SPDX-License-Identifier: Apache-2.0
//
// The invariants of the store, and the check of each. It shares no sums with what it checks: all is
// counted anew from the tensors and copies.
//   - a live tensor has exactly one home copy; its slot's record and generation lead back to it
//   - home copies of tensors that are not MOVING or DOOMED lie in their tier's recency list (those
//     allocated ahead in its list of these), clean copies in its clean list, nothing else in any
//   - for each tier, the extents of all copies of an account plus the rooms still held by calls
//     equal the ledger
#include <array>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "hmm/store.h"

namespace hmm::core {
namespace {

using tier::ByteState;

template <typename... Parts>
absl::Status Broken(const Parts&... parts) {
  return Error(absl::StatusCode::kInternal, Reason::kInternal, absl::StrCat(parts...));
}

}  // namespace

absl::Status TensorStore::Validate() const {
  std::size_t live = 0;
  std::vector<std::size_t> at_rest(tiers_.size(), 0), moving(tiers_.size(), 0);
  for (TensorIndex i = 0; i < tensors_.size(); ++i) {
    const Tensor& t = tensors_[i];
    if (t.state == TensorState::kGone) continue;
    ++live;
    if (tenants_[t.tenant]->slots[t.slot] != i)
      return Broken("tensor ", i, ": slot leads elsewhere");
    if (t.key_linked && FindKey(t.tenant, t.key()) != i) return Broken("tensor ", i, ": key lost");
    if (t.state == TensorState::kDoomed && t.key_linked)
      return Broken("tensor ", i, ": doomed, visible");
    std::size_t homes = 0;
    for (CopyIndex c = t.copies; c != kNoIndex; c = copies_[c].next) {
      if (copies_[c].tensor != i) return Broken("copy ", c, ": of another tensor");
      if (copies_[c].role == Copy::Role::kHome) {
        ++homes;
        if (c != t.home) return Broken("tensor ", i, ": two homes");
      }
      if ((copies_[c].role == Copy::Role::kClean) != clean_links_.Contains(c)) {
        return Broken("copy ", c, ": clean list disagrees");
      }
    }
    if (homes != 1) return Broken("tensor ", i, ": ", homes, " home copies");
    const bool listed = t.state != TensorState::kMoving && t.state != TensorState::kDoomed;
    if (listed != lru_links_.Contains(i)) return Broken("tensor ", i, ": recency list disagrees");
    if (listed && !t.ahead) ++at_rest[home_tier(i)];
    if (t.state == TensorState::kMoving) ++moving[home_tier(i)];
    const bool mappable = tiers_[home_tier(i)]->mappable();
    if (t.state == TensorState::kResident && !mappable)
      return Broken("tensor ", i, ": resident on flash");
    if (t.state == TensorState::kAbsent && mappable)
      return Broken("tensor ", i, ": absent in memory");
    const share::StateWord word =
        share::StateWord::Unpack(const_cast<TensorStore*>(this)->slot_of(t).state.load());
    if (word.state != t.state || word.generation != t.generation || word.tier != home_tier(i)) {
      return Broken("tensor ", i, ": the residency table says otherwise");
    }
  }
  if (live != live_) return Broken("live ", live_, " counted ", live);
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    if (lru_[i].size() != at_rest[i]) return Broken(tiers_[i]->name(), ": strangers in its list");
    if (moving_homes_[i] != moving[i]) return Broken(tiers_[i]->name(), ": moving homes off");
  }
  HMM_RETURN_IF_ERROR(ValidateAhead());
  return ValidateCopies();
}

absl::Status TensorStore::ValidateAhead() const {
  absl::flat_hash_map<SessionId, AheadUse> uses;
  std::vector<AheadUse> sums(tiers_.size());
  for (TensorIndex i = 0; i < tensors_.size(); ++i) {
    const Tensor& t = tensors_[i];
    if (!t.ahead) continue;
    const Bytes length = copies_[t.home].extent.length;
    if (t.state != TensorState::kResident || t.sealed || t.key_linked || t.owner == 0 ||
        t.holds != 0 || t.move != 0) {
      return Broken("tensor ", i, ": ahead, but used");
    }
    for (AheadUse* use : {&uses[t.owner], &sums[home_tier(i)]}) {
      ++use->tensors;
      use->bytes += length;
    }
  }
  for (const auto& [session, use] : ahead_of_) {
    const AheadUse counted = uses[session];
    if (use.tensors == 0 || counted.tensors != use.tensors || counted.bytes != use.bytes) {
      return Broken("session ", session, ": has ", counted.tensors, " tensors ahead, counted ",
                    use.tensors);
    }
  }
  if (uses.size() != ahead_of_.size()) return Broken("tensors ahead of a session not counted");
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    if (ahead_[i].size() != sums[i].tensors || ahead_bytes_[i] != sums[i].bytes) {
      return Broken(tiers_[i]->name(), ": tensors ahead do not match their list");
    }
  }
  return absl::OkStatus();
}

absl::Status TensorStore::ValidateCopies() const {
  std::vector<std::array<Bytes, tier::kByteStates>> sums(tiers_.size());
  std::vector<Bytes> clean(tiers_.size(), 0);
  for (CopyIndex c = 0; c < copies_.size(); ++c) {
    const Copy& copy = copies_[c];
    if (copy.role == Copy::Role::kNone) continue;
    sums[copy.tier][static_cast<std::size_t>(copy.account)] += copy.extent.length;
    if (copy.role == Copy::Role::kClean) clean[copy.tier] += copy.extent.length;
    const bool at_rest =
        copy.role == Copy::Role::kClean ||
        (copy.role == Copy::Role::kHome && (tensors_[copy.tensor].state == TensorState::kResident ||
                                            tensors_[copy.tensor].state == TensorState::kAbsent));
    const bool ahead = copy.role == Copy::Role::kHome && tensors_[copy.tensor].ahead;
    if (at_rest && copy.account != (ahead ? ByteState::kReserved : ByteState::kResident)) {
      return Broken("copy ", c, ": at rest, accounted as ",
                    std::string(tier::ByteStateName(copy.account)));
    }
  }
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    const tier::Tier& tier = *tiers_[i];
    if (!tier.ledger().Sums()) return Broken(tier.name(), ": ledger does not sum to the capacity");
    for (ByteState s : {ByteState::kCreating, ByteState::kResident, ByteState::kMoving}) {
      if (sums[i][static_cast<std::size_t>(s)] != tier.ledger()[s]) {
        return Broken(tier.name(), ": copies hold ", sums[i][static_cast<std::size_t>(s)], " ",
                      std::string(tier::ByteStateName(s)), " bytes, the ledger says ",
                      tier.ledger()[s]);
      }
    }
    if (sums[i][static_cast<std::size_t>(ByteState::kReserved)] >
        tier.ledger()[ByteState::kReserved]) {
      return Broken(tier.name(), ": more reserved in copies than in the ledger");
    }
    if (clean[i] != clean_bytes_[i]) return Broken(tier.name(), ": clean bytes off");
    HMM_RETURN_IF_ERROR(tier.Validate());
  }
  return absl::OkStatus();
}

}  // namespace hmm::core
