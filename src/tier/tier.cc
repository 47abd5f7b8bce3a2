// SPDX-License-Identifier: Apache-2.0
#include "tier/tier.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace hmm::tier {

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
  HMM_ASSIGN_OR_RETURN(Extent extent, DoAllocate(tenant, LengthFor(bytes)));
  ledger_.Transfer(ByteState::kCommittedFree, state, extent.length);
  return extent;
}

void Tier::Free(TenantId tenant, const Extent& extent, ByteState state) {
  ledger_.Transfer(state, ByteState::kCommittedFree, extent.length);
  DoFree(tenant, extent);
}

}  // namespace hmm::tier
