// SPDX-License-Identifier: Apache-2.0
//
// Messages of inspection and administration <-> the core's values.
#include <chrono>

#include "base/check.h"
#include "base/status.h"
#include "daemon/convert.h"
#include "daemon/rpc_status.h"
#include "daemon/text.h"

namespace hmm::daemon {
namespace {

// Numbers equal: a cast is the conversion.
static_assert(v1::EVENT_TYPE_ADMIN == static_cast<int>(core::EventType::kAdmin));
static_assert(v1::MOVE_CAUSE_PLAN == static_cast<int>(core::MoveCause::kPlan));
static_assert(v1::MOVE_CAUSE_COMPACT == static_cast<int>(core::MoveCause::kCompact));
static_assert(v1::MOVE_OUTCOME_FAILED == static_cast<int>(core::MoveOutcome::kFailed));
static_assert(v1::WatermarkEvent::MARK_BELOW_LOW == static_cast<int>(core::MarkCrossed::kBelowLow));
static_assert(v1::SessionEvent::CHANGE_EXPELLED ==
              static_cast<int>(core::SessionChange::kExpelled));

constexpr std::size_t kTextMax = 256;

std::uint64_t Us(Duration span) {
  return span.count() < 0
             ? 0
             : static_cast<std::uint64_t>(
                   std::chrono::duration_cast<std::chrono::microseconds>(span).count());
}
std::uint64_t Millis(Duration span) { return Us(span) / 1000; }

std::string TierName(const core::Manager& manager, TierId tier) {
  return tier < manager.tier_count() ? manager.tier(tier).name() : std::string();
}

std::string ReasonText(const std::optional<Reason>& reason) {
  return reason.has_value() ? std::string(ReasonName(*reason)) : std::string();
}

absl::Status BadEnum(std::string_view field, int value) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadEnum,
               Cat(field, " = ", value, " is not a value this daemon knows"));
}

}  // namespace

std::int64_t UnixUs(TimePoint when) {
  // The core's clock does not know the date.
  const auto now = std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
  const auto unix_now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(unix_now - (now - when)).count();
}

absl::StatusOr<std::optional<TensorKind>> DecodeKind(std::string_view field, v1::TensorKind kind) {
  if (kind == v1::TENSOR_KIND_UNSPECIFIED) return std::nullopt;
  if (!v1::TensorKind_IsValid(kind)) return BadEnum(field, kind);
  return static_cast<TensorKind>(kind);
}

absl::StatusOr<core::TensorFilter> Decode(const v1::ListTensorsRequest& request) {
  core::TensorFilter filter;
  filter.tier = request.tier();
  filter.tenant = request.tenant();
  filter.key_prefix = request.key_prefix();
  HMM_ASSIGN_OR_RETURN(filter.kind, DecodeKind("kind", request.kind()));
  if (!v1::TensorState_IsValid(request.state())) return BadEnum("state", request.state());
  if (request.state() != v1::TENSOR_STATE_UNSPECIFIED) {
    filter.state = static_cast<TensorState>(request.state());
  }
  if (request.has_pinned()) filter.pinned = request.pinned();
  return filter;
}

absl::StatusOr<core::TensorSelector> Decode(const v1::TensorSelector& request) {
  core::TensorSelector selector;
  selector.tenant = request.tenant();
  selector.handles = DecodeHandles(request.handles());
  selector.keys.assign(request.keys().begin(), request.keys().end());
  selector.key_prefix = request.key_prefix();
  HMM_ASSIGN_OR_RETURN(selector.kind, DecodeKind("kind", request.kind()));
  return selector;
}

void Encode(const core::MoveRecord& record, const core::Manager& manager, v1::MoveRecord& out) {
  out.set_time_us(UnixUs(record.end));
  out.set_from(TierName(manager, record.from));
  out.set_to(TierName(manager, record.to));
  out.set_bytes(record.bytes);
  out.set_cause(static_cast<v1::MoveCause>(record.decision.cause));
  out.set_outcome(static_cast<v1::MoveOutcome>(record.outcome));
  out.set_took_us(Us(record.end - record.decision.when));
  out.set_for_session(record.decision.session);
  out.set_used_bytes(record.decision.used);
  out.set_capacity_bytes(record.decision.capacity);
  out.set_idle_us(Us(record.decision.idle));
  out.set_priority(record.decision.priority);
  out.set_error(ReasonText(record.error));
}

void Encode(const core::TierHealth& health, v1::TierHealth& out) {
  out.set_tier(health.name);
  out.set_state(std::string(tier::TierStateName(health.state)));
  out.set_reason(ReasonText(health.reason));
  out.set_note(health.note);
  out.set_since_ms(Millis(health.since));
  if (health.last_probe.has_value()) out.set_last_probe_ms(Millis(*health.last_probe));
  out.set_last_probe_ok(health.last_probe_ok);
  out.set_read_errors(health.read_errors);
  out.set_write_errors(health.write_errors);
  out.set_checksum_errors(health.checksum_errors);
}

void Encode(const core::Explanation& info, const core::Manager& manager, v1::ExplainResponse& out) {
  Encode(info.tensor, manager, *out.mutable_tensor());
  out.set_policy("lru");
  out.set_rank(info.rank);
  out.set_rank_capped(info.rank_capped);
  out.set_of_tensors(info.of_tensors);
  out.set_next(info.next);
  v1::EvictionCost& cost = *out.mutable_cost();
  cost.set_use_probability(info.cost.cost.use_probability);
  cost.set_horizon_ms(Millis(policy::kCostHorizon));
  cost.set_uses_per_s(info.cost.cost.uses_per_s);
  cost.set_accesses(info.cost.accesses);
  cost.set_idle_us(Us(info.cost.idle));
  if (info.cost.below.has_value()) cost.set_below(TierName(manager, *info.cost.below));
  cost.set_bring_back_us(Us(info.cost.bring_back));
  cost.set_bring_back_measured(info.cost.below.has_value() && info.cost.bring_back_measured);
  cost.set_recompute_us(info.cost.recompute_us);
  cost.set_weight(info.cost.cost.weight);
  cost.set_us_per_byte(info.cost.cost.us_per_byte);
  cost.set_clean_below(info.cost.clean_below);
  for (const core::MoveRecord& move : info.moves) Encode(move, manager, *out.add_moves());
  out.set_moves_forgotten(info.moves_forgotten);
}

namespace {

void EncodeTensor(const core::Event& event, const core::Manager& manager, v1::TensorEvent& out) {
  out.set_tenant(manager.tenant_name(event.tenant));
  out.set_handle(event.handle.Pack());
  out.set_key(event.key);
  out.set_kind(static_cast<v1::TensorKind>(event.kind));
  out.set_bytes(event.bytes);
  out.set_from(static_cast<v1::TensorState>(event.from));
  out.set_to(static_cast<v1::TensorState>(event.to));
  out.set_tier(TierName(manager, event.tier));
  out.set_cause(static_cast<v1::MoveCause>(event.cause));
}

void EncodeSession(const core::Event& event, const core::Manager& manager, v1::SessionEvent& out) {
  out.set_change(static_cast<v1::SessionEvent::Change>(event.change));
  out.set_session(event.session);
  out.set_tenant(manager.tenant_name(event.tenant));
  out.set_uid(event.uid);
  out.set_pid(event.pid);
  out.set_command(PrintableMessage(event.text, 64));
  out.set_pins(event.pins);
  out.set_why(PrintableMessage(event.why, kTextMax));
}

}  // namespace

void Encode(const core::Event& event, const core::Manager& manager, v1::Event& out) {
  out.set_sequence(event.sequence);
  out.set_time_us(UnixUs(event.time));
  switch (event.type) {
    case core::EventType::kTensor:
      return EncodeTensor(event, manager, *out.mutable_tensor());
    case core::EventType::kMove: {
      v1::MoveEvent& move = *out.mutable_move();
      move.set_tenant(manager.tenant_name(event.tenant));
      move.set_handle(event.handle.Pack());
      move.set_key(event.key);
      move.set_kind(static_cast<v1::TensorKind>(event.kind));
      return Encode(event.move, manager, *move.mutable_move());
    }
    case core::EventType::kWatermark: {
      v1::WatermarkEvent& mark = *out.mutable_watermark();
      mark.set_tier(TierName(manager, event.tier));
      mark.set_mark(static_cast<v1::WatermarkEvent::Mark>(event.mark));
      mark.set_used_bytes(event.used);
      mark.set_mark_bytes(event.mark_bytes);
      return;
    }
    case core::EventType::kSession:
      return EncodeSession(event, manager, *out.mutable_session());
    case core::EventType::kTierHealth: {
      v1::TierHealthEvent& health = *out.mutable_tier_health();
      health.set_from_state(std::string(tier::TierStateName(event.before)));
      const auto now = manager.GetHealth(TierName(manager, event.tier));
      if (now.ok() && !now->empty()) Encode(now->front(), *health.mutable_health());
      // The change that is told of, even if another followed.
      health.mutable_health()->set_state(std::string(tier::TierStateName(event.after)));
      health.mutable_health()->set_note(event.text);
      return;
    }
    case core::EventType::kAdmin: {
      v1::AdminEvent& admin = *out.mutable_admin();
      admin.set_action(event.key);
      admin.set_arguments(PrintableMessage(event.text, kTextMax));
      admin.set_reason(event.why);
      return;
    }
  }
}

void EncodeOccupancy(const std::vector<core::TierInfo>& tiers, std::string_view only,
                     v1::OccupancyEvent& out) {
  for (const core::TierInfo& tier : tiers) {
    if (!only.empty() && tier.name != only) continue;
    v1::OccupancyEvent::Sample& sample = *out.add_tiers();
    sample.set_tier(tier.name);
    sample.set_capacity_bytes(tier.capacity);
    sample.set_used_bytes(tier.used);
    sample.set_pinned_bytes(tier.pinned);
    sample.set_moving_bytes(tier.by_state[static_cast<std::size_t>(tier::ByteState::kMoving)]);
    sample.set_clean_copy_bytes(tier.clean_copies);
    sample.set_tensors(tier.tensors);
  }
}

}  // namespace hmm::daemon
