// SPDX-License-Identifier: Apache-2.0
#include "daemon/convert.h"

#include <chrono>

#include "base/status.h"
#include "daemon/rpc_status.h"
#include "daemon/text.h"

namespace hmm::daemon {
namespace {

// The numbers of src/base/ids.h are the numbers on the wire, so that a cast converts.
template <typename Core, typename Wire>
constexpr bool Same(Core core, Wire wire) {
  return static_cast<int>(core) == static_cast<int>(wire);
}
static_assert(Same(TierKind::kHbm, v1::TIER_KIND_HBM));
static_assert(Same(TierKind::kDdr, v1::TIER_KIND_DDR));
static_assert(Same(TierKind::kFlash, v1::TIER_KIND_FLASH));
static_assert(v1::TierKind_ARRAYSIZE == 4);
static_assert(Same(TensorKind::kWeight, v1::TENSOR_KIND_WEIGHT));
static_assert(Same(TensorKind::kKvCache, v1::TENSOR_KIND_KV_CACHE));
static_assert(Same(TensorKind::kActivation, v1::TENSOR_KIND_ACTIVATION));
static_assert(Same(TensorKind::kOptimizerState, v1::TENSOR_KIND_OPTIMIZER_STATE));
static_assert(Same(TensorKind::kOther, v1::TENSOR_KIND_OTHER));
static_assert(v1::TensorKind_ARRAYSIZE == 6);
static_assert(Same(TensorState::kGone, v1::TENSOR_STATE_UNSPECIFIED));
static_assert(Same(TensorState::kCreating, v1::TENSOR_STATE_CREATING));
static_assert(Same(TensorState::kResident, v1::TENSOR_STATE_RESIDENT));
static_assert(Same(TensorState::kMoving, v1::TENSOR_STATE_MOVING));
static_assert(Same(TensorState::kAbsent, v1::TENSOR_STATE_ABSENT));
static_assert(Same(TensorState::kDoomed, v1::TENSOR_STATE_DOOMED));
static_assert(v1::TensorState_ARRAYSIZE == kTensorStates);

std::uint64_t Ms(Duration span) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(span).count());
}

absl::StatusOr<TensorKind> DecodeKind(v1::TensorKind kind, int index) {
  if (kind == v1::TENSOR_KIND_UNSPECIFIED) return TensorKind::kOther;
  if (!v1::TensorKind_IsValid(kind)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadEnum,
                 Cat("tensors[", index, "].kind: ", static_cast<int>(kind),
                     " is no TensorKind of this daemon"));
  }
  return static_cast<TensorKind>(kind);
}

absl::StatusOr<core::TensorSpec> DecodeSpec(const v1::TensorSpec& spec, int index) {
  HMM_ASSIGN_OR_RETURN(const TensorKind kind, DecodeKind(spec.kind(), index));
  return core::TensorSpec{.bytes = spec.bytes(),
                          .kind = kind,
                          .key = spec.key(),
                          .priority = spec.priority(),
                          .recompute_us = spec.recompute_us(),
                          .droppable = spec.droppable()};
}

std::vector<std::string> DecodeKeys(const google::protobuf::RepeatedPtrField<std::string>& keys) {
  return {keys.begin(), keys.end()};
}

// `each(value, result)` fills the result of one element that did not fail.
template <typename Value, typename Results, typename Each>
void EncodeEach(const std::vector<absl::StatusOr<Value>>& values, Results& results, Each each) {
  results.Reserve(static_cast<int>(values.size()));
  for (const absl::StatusOr<Value>& value : values) {
    auto& result = *results.Add();
    if (value.ok()) {
      each(*value, result);
    } else {
      EncodeError(value.status(), *result.mutable_error());
    }
  }
}

template <typename Results>
void EncodeStatuses(const std::vector<absl::Status>& values, Results& results) {
  results.Reserve(static_cast<int>(values.size()));
  for (const absl::Status& value : values) {
    auto& result = *results.Add();
    if (!value.ok()) EncodeError(value, *result.mutable_error());
  }
}

}  // namespace

void EncodeError(const absl::Status& status, v1::ElementError& out) {
  out.set_code(static_cast<int>(status.code()));
  out.set_reason(std::string(ReasonName(ReasonOf(status).value_or(Reason::kInternal))));
  out.set_message(PrintableMessage(MessageOf(status), kMessageBytesMax));
  if (const auto delay = RetryAfter(status)) {
    out.set_retry_ms(static_cast<std::uint32_t>(delay->count()));
  }
}

void EncodeLocation(const core::Location& location, v1::Location& out) {
  out.set_tier(location.tier);
  out.set_segment(location.segment);
  out.set_offset(location.offset);
  out.set_bytes(location.bytes);
}

std::vector<Handle> DecodeHandles(const google::protobuf::RepeatedField<std::uint64_t>& handles) {
  std::vector<Handle> out;
  out.reserve(static_cast<std::size_t>(handles.size()));
  for (const std::uint64_t handle : handles) out.push_back(Handle::Unpack(handle));
  return out;
}

absl::StatusOr<core::AllocateArgs> Decode(const v1::AllocateRequest& request) {
  core::AllocateArgs args;
  args.tensors.reserve(static_cast<std::size_t>(request.tensors_size()));
  for (int i = 0; i < request.tensors_size(); ++i) {
    HMM_ASSIGN_OR_RETURN(args.tensors.emplace_back(), DecodeSpec(request.tensors(i), i));
  }
  if (request.has_ahead_like()) {
    HMM_ASSIGN_OR_RETURN(args.ahead_like.emplace(), DecodeSpec(request.ahead_like(), 0));
  }
  args.all = request.all();
  args.wait = request.wait();
  args.tier = request.tier();
  args.allow_lower = request.allow_lower();
  args.ahead = request.ahead();
  args.taken = DecodeHandles(request.taken());
  return args;
}

core::AcquireArgs Decode(const v1::AcquireRequest& request) {
  return {.handles = DecodeHandles(request.handles()),
          .all = request.all(),
          .tier = request.tier(),
          .allow_lower = request.allow_lower()};
}

core::LookupArgs Decode(const v1::LookupRequest& request) {
  return {.keys = DecodeKeys(request.keys()),
          .tier = request.tier(),
          .allow_lower = request.allow_lower(),
          .no_pin = request.no_pin()};
}

std::vector<core::SealItem> Decode(const v1::SealRequest& request) {
  std::vector<core::SealItem> items;
  items.reserve(static_cast<std::size_t>(request.items_size()));
  for (const v1::SealRequest::Item& item : request.items()) {
    items.push_back(
        {.handle = Handle::Unpack(item.handle()), .key = item.key(), .unpin = item.unpin()});
  }
  return items;
}

absl::StatusOr<core::PrefetchArgs> Decode(const v1::PrefetchRequest& request, TimePoint now) {
  if (request.handles_size() > 0 && request.keys_size() > 0) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 "handles and keys at once; a prefetch names either");
  }
  core::PrefetchArgs args{.handles = DecodeHandles(request.handles()),
                          .keys = DecodeKeys(request.keys()),
                          .tier = request.tier(),
                          .in_place = request.in_place()};
  // Past a year it is no deadline, and the sum must not overflow.
  constexpr std::uint64_t kYearUs = 365ull * 24 * 3600 * 1'000'000;
  if (request.deadline_us() > 0 && request.deadline_us() < kYearUs) {
    args.deadline = now + std::chrono::microseconds(request.deadline_us());
  }
  return args;
}

core::SwapArgs Decode(const v1::SwapRequest& request) {
  return {.handles = DecodeHandles(request.handles()), .tier = request.tier()};
}

void Encode(const core::AllocateResult& result, v1::AllocateResponse& out) {
  const auto encode = [](const core::Allocated& tensor, v1::AllocateResponse::Result& to) {
    to.set_handle(tensor.handle.Pack());
    EncodeLocation(tensor.location, *to.mutable_location());
  };
  EncodeEach(result.tensors, *out.mutable_results(), encode);
  out.mutable_ahead()->Reserve(static_cast<int>(result.ahead.size()));
  for (const core::Allocated& tensor : result.ahead) encode(tensor, *out.add_ahead());
}

void Encode(const core::AcquireResult& result, v1::AcquireResponse& out) {
  EncodeEach(result.tensors, *out.mutable_results(),
             [](const core::Acquired& tensor, v1::AcquireResponse::Result& to) {
               EncodeLocation(tensor.location, *to.mutable_location());
               to.set_found_tier(tensor.found_tier);
             });
}

void Encode(const core::LookupResult& result, bool pinned, v1::LookupResponse& out) {
  out.mutable_run()->Reserve(static_cast<int>(result.run.size()));
  for (const core::Found& found : result.run) {
    v1::LookupResponse::Found& to = *out.add_run();
    to.set_handle(found.handle.Pack());
    if (pinned) EncodeLocation(found.location, *to.mutable_location());
    to.set_found_tier(found.found_tier);
    to.set_estimated_us(found.estimated_us);
  }
  out.set_miss_reason(result.miss_reason);
}

void Encode(const core::SwapResult& result, v1::SwapResponse& out) {
  EncodeEach(result.tensors, *out.mutable_results(),
             [](TierId tier, v1::SwapResponse::Result& to) { to.set_tier(tier); });
}

void Encode(const std::vector<absl::Status>& result, v1::SealResponse& out) {
  EncodeStatuses(result, *out.mutable_results());
}

void Encode(const std::vector<absl::Status>& result, v1::PrefetchResponse& out) {
  EncodeStatuses(result, *out.mutable_results());
}

void Encode(const std::vector<absl::StatusOr<core::FreeResult>>& result, v1::FreeResponse& out) {
  EncodeEach(result, *out.mutable_results(),
             [](const core::FreeResult& freed, v1::FreeResponse::Result& to) {
               to.set_deferred(freed.deferred);
             });
}

void Encode(const core::TensorInfo& info, const core::Manager& manager, v1::TensorInfo& out) {
  out.set_handle(info.handle.Pack());
  out.set_key(info.key);
  out.set_kind(static_cast<v1::TensorKind>(info.kind));
  out.set_state(static_cast<v1::TensorState>(info.state));
  out.set_tier(info.tier);
  if (info.tier < manager.tier_count()) out.set_tier_name(manager.tier(info.tier).name());
  out.set_bytes(info.bytes);
  out.set_sealed(info.sealed);
  out.set_reserved(info.ahead);
  out.set_droppable(info.droppable);
  out.set_priority(info.priority);
  out.set_recompute_us(info.recompute_us);
  out.set_tenant(info.tenant);
  out.set_owner_session(info.owner);
  for (const auto& [session, pins] : info.pins) {
    v1::TensorInfo::SessionPins& to = *out.add_pins();
    to.set_session(session);
    to.set_pins(pins);
  }
  out.set_age_ms(Ms(info.age));
  out.set_idle_ms(Ms(info.idle));
  for (const TierId tier : info.clean_copies) out.add_clean_copies(tier);
}

void Encode(const core::TierInfo& info, v1::TierInfo& out) {
  const auto state = [&](tier::ByteState which) {
    return info.by_state[static_cast<std::size_t>(which)];
  };
  out.set_name(info.name);
  out.set_kind(static_cast<v1::TierKind>(info.kind));
  out.set_backend(info.backend);
  out.set_emulated(info.emulated);
  out.set_state(std::string(tier::TierStateName(info.state)));
  out.set_note(info.note);
  out.set_capacity_bytes(info.capacity);
  out.set_used_bytes(info.used);
  out.set_pinned_bytes(info.pinned);
  out.set_high_watermark(info.high);
  out.set_low_watermark(info.low);
  out.set_reserve_bytes(info.reserve);
  out.set_free_bytes(state(tier::ByteState::kFree));
  out.set_committed_free_bytes(state(tier::ByteState::kCommittedFree));
  out.set_creating_bytes(state(tier::ByteState::kCreating));
  out.set_resident_bytes(state(tier::ByteState::kResident));
  out.set_moving_bytes(state(tier::ByteState::kMoving));
  out.set_reserved_bytes(state(tier::ByteState::kReserved));
  out.set_clean_copy_bytes(info.clean_copies);
  out.set_tensors(info.tensors);
  out.set_hits(info.hits);
}

void Encode(const core::StatusInfo& info, v1::GetStatusResponse& out) {
  out.set_uptime_ms(Ms(info.uptime));
  out.set_sessions(info.sessions);
  out.set_pins(info.pins);
  out.set_tensors(info.tensors);
  for (const core::TierInfo& tier : info.tiers) Encode(tier, *out.add_tiers());
  for (const core::LinkInfo& link : info.links) {
    v1::LinkInfo& to = *out.add_links();
    to.set_from(info.tiers[link.from].name);
    to.set_to(info.tiers[link.to].name);
    to.set_moves(link.stats.moves);
    to.set_failed_moves(link.stats.failed);
    to.set_moved_bytes(link.stats.moved_bytes);
    to.set_busy_us(static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(link.stats.busy).count()));
    to.set_queued(link.stats.queued);
    to.set_running(link.stats.running);
  }
  const core::Counters& from = info.counters;
  v1::Counters& to = *out.mutable_counters();
  to.set_allocations(from.allocations);
  to.set_allocation_failures(from.allocation_failures);
  to.set_lookups(from.lookups);
  to.set_lookup_hits(from.lookup_hits);
  to.set_misses(from.misses);
  to.set_evictions(from.evictions);
  to.set_demotions(from.demotions);
  to.set_promotions(from.promotions);
  to.set_cancelled_demotions(from.cancelled_demotions);
  to.set_clean_drops(from.clean_drops);
  to.set_taken_back_moves(from.taken_back_moves);
  to.set_lost_tensors(from.lost_tensors);
  to.set_expelled_sessions(from.expelled_sessions);
  to.set_reaped_sessions(from.reaped_sessions);
  to.set_ahead_taken_back(from.ahead_taken_back);
  out.set_draining(info.draining);
}

void Encode(const core::SessionStatus& info, v1::SessionInfo& out) {
  out.set_session(info.session);
  out.set_tenant(info.tenant);
  out.set_uid(info.uid);
  out.set_pid(info.pid);
  out.set_command(PrintableMessage(info.command, 64));
  out.set_state(info.closing ? "closing" : "active");
  out.set_pins(info.pins);
  out.set_pinned_bytes(info.pinned_bytes);
  out.set_age_ms(Ms(info.age));
  out.set_tensors(info.tensors);
  out.set_oldest_pin_ms(Ms(info.oldest_pin));
  if (info.oldest_pin > Duration{}) out.set_oldest_pin_handle(info.oldest_pin_of.Pack());
}

}  // namespace hmm::daemon
