// SPDX-License-Identifier: Apache-2.0
//
// Protobuf messages <-> the core's values. Pure. Decoding refuses what the core's types cannot say
// (unknown enum values, bad combinations); everything else is the manager's to judge.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hmm/events.h"
#include "hmm/manager.h"
#include "hmm/types.h"
#include "hmm/v1/admin.pb.h"
#include "hmm/v1/inspection.pb.h"
#include "hmm/v1/memory.pb.h"

namespace hmm::daemon {

// The same code, reason, message and delay that a call of this element alone would have ended with.
void EncodeError(const absl::Status& status, v1::ElementError& out);
void EncodeLocation(const core::Location& location, v1::Location& out);

// INVALID_ARGUMENT/BAD_ENUM names the field, the element and the value.
absl::StatusOr<core::AllocateArgs> Decode(const v1::AllocateRequest& request);
core::AcquireArgs Decode(const v1::AcquireRequest& request);
core::LookupArgs Decode(const v1::LookupRequest& request);
std::vector<core::SealItem> Decode(const v1::SealRequest& request);
// INVALID_ARGUMENT/BAD_ARGUMENT: handles and keys at once.
absl::StatusOr<core::PrefetchArgs> Decode(const v1::PrefetchRequest& request, TimePoint now);
core::SwapArgs Decode(const v1::SwapRequest& request);
std::vector<Handle> DecodeHandles(const google::protobuf::RepeatedField<std::uint64_t>& handles);

void Encode(const core::AllocateResult& result, v1::AllocateResponse& out);
void Encode(const core::AcquireResult& result, v1::AcquireResponse& out);
void Encode(const core::LookupResult& result, bool pinned, v1::LookupResponse& out);
void Encode(const core::SwapResult& result, v1::SwapResponse& out);
void Encode(const std::vector<absl::Status>& result, v1::SealResponse& out);
void Encode(const std::vector<absl::Status>& result, v1::PrefetchResponse& out);
void Encode(const std::vector<absl::StatusOr<core::FreeResult>>& result, v1::FreeResponse& out);

// `manager` gives the names of tiers.
void Encode(const core::TensorInfo& info, const core::Manager& manager, v1::TensorInfo& out);
void Encode(const core::TierInfo& info, v1::TierInfo& out);
void Encode(const core::StatusInfo& info, v1::GetStatusResponse& out);
void Encode(const core::SessionStatus& info, v1::SessionInfo& out);

// --- inspection and administration (convert_inspect.cc)
// ------------------------------------------- Microseconds since the Unix epoch of a moment on the
// core's clock.
std::int64_t UnixUs(TimePoint when);
// nullopt for UNSPECIFIED. INVALID_ARGUMENT/BAD_ENUM, here and below.
absl::StatusOr<std::optional<TensorKind>> DecodeKind(std::string_view field, v1::TensorKind kind);
absl::StatusOr<core::TensorFilter> Decode(const v1::ListTensorsRequest& request);
absl::StatusOr<core::TensorSelector> Decode(const v1::TensorSelector& request);
void Encode(const core::MoveRecord& record, const core::Manager& manager, v1::MoveRecord& out);
void Encode(const core::TierHealth& health, v1::TierHealth& out);
void Encode(const core::Explanation& info, const core::Manager& manager, v1::ExplainResponse& out);
void Encode(const core::Event& event, const core::Manager& manager, v1::Event& out);
// Of all tiers, or of the one named.
void EncodeOccupancy(const std::vector<core::TierInfo>& tiers, std::string_view only,
                     v1::OccupancyEvent& out);

}  // namespace hmm::daemon
