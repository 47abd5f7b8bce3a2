// SPDX-License-Identifier: Apache-2.0
#include "tier/tier.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace hmm::tier {

absl::Status CheckTierOptions(const TierOptions& options) {
  auto refuse = [&](const char* why) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                 absl::StrCat("tier \"", options.name, "\": ", why));
  };
  constexpr std::size_t kNameMax = 15;
  const bool spelled =
      options.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
  if (options.name.empty() || options.name.size() > kNameMax || !spelled) {
    return refuse("a name has 1 to 15 characters of a-z, 0-9 and _");
  }
  // Written so that a NaN fails.
  if (!(options.low > 0 && options.low < options.high && options.high <= 1)) {
    return refuse("watermarks must be 0 < low < high <= 1");
  }
  return absl::OkStatus();
}

absl::StatusOr<Extent> Tier::Allocate(TenantId tenant, Bytes bytes, ByteState state) {
  HMM_CHECK(state == ByteState::kCreating || state == ByteState::kMoving ||
            state == ByteState::kReserved);
  if (bytes == 0) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadSize,
                 "a tensor of 0 bytes cannot be allocated; ask for at least 1");
  }
  // Compare before rounding: a length near 2^64 would wrap.
  if (bytes > capacity() || LengthFor(bytes) > capacity()) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kTooLarge,
                 absl::StrCat(bytes, " bytes are larger than tier ", name(), " (", capacity(),
                              " bytes); raise its capacity or allocate less"));
  }
  if (LengthFor(bytes) > available()) return NoRoom(LengthFor(bytes));
  HMM_ASSIGN_OR_RETURN(Extent extent, DoAllocate(tenant, LengthFor(bytes)));
  ledger_.Transfer(ByteState::kCommittedFree, state, extent.length);
  tenant_bytes_[tenant] += extent.length;
  return extent;
}

absl::StatusOr<Extent> Tier::AllocateOutside(TenantId tenant, const Extent& from, ByteState state,
                                             const std::vector<Window>& avoid) {
  const Bytes length = from.length;
  HMM_CHECK(length > 0 && length <= capacity());
  // Not available(): what it is for leaves as much again, so that the limit holds in the end.
  if (length > capacity() - ledger_.used()) return NoRoom(length);
  HMM_ASSIGN_OR_RETURN(Extent extent, DoAllocateOutside(tenant, from, avoid));
  ledger_.Transfer(ByteState::kCommittedFree, state, extent.length);
  tenant_bytes_[tenant] += extent.length;
  return extent;
}

absl::Status Tier::NoRoom(Bytes length) const {
  return Error(absl::StatusCode::kResourceExhausted, Reason::kFull,
               absl::StrCat("tier ", name(), " has no room for ", length, " bytes now"));
}

absl::StatusOr<Bytes> Tier::SizeFor(Bytes bytes) const {
  if (bytes == capacity()) return bytes;
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kBadSize,
               absl::StrCat("tier ", name(), " keeps the ", capacity(), " bytes it began with"));
}

absl::Status Tier::DoResize(Bytes capacity) {
  HMM_CHECK(capacity == this->capacity());
  return absl::OkStatus();
}

absl::Status Tier::Resize(Bytes capacity) {
  HMM_RETURN_IF_ERROR(DoResize(capacity));
  HMM_CHECK(ledger_.capacity() == capacity && ledger_.Sums());
  options_.capacity = capacity;
  return absl::OkStatus();
}

Bytes Tier::TenantBytes(TenantId tenant) const {
  const auto it = tenant_bytes_.find(tenant);
  return it == tenant_bytes_.end() ? 0 : it->second;
}

void Tier::Free(TenantId tenant, const Extent& extent, ByteState state) {
  const auto held = tenant_bytes_.find(tenant);
  HMM_CHECK(held != tenant_bytes_.end() && held->second >= extent.length);
  ledger_.Transfer(state, ByteState::kCommittedFree, extent.length);
  held->second -= extent.length;
  if (held->second == 0) tenant_bytes_.erase(held);
  DoFree(tenant, extent);
}

}  // namespace hmm::tier
