// SPDX-License-Identifier: Apache-2.0
//
// JSON of events and explanations.
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/ctl/event_text.h"
#include "client/ctl/health_text.h"
#include "client/ctl/json_text.h"
#include "client/ctl/printer.h"

namespace hmm::ctl {
namespace {

using nlohmann::ordered_json;

std::string Word(const std::string& name, const char* prefix, int number) {
  if (name.empty()) return absl::StrCat(number);
  return absl::AsciiStrToLower(absl::StripPrefix(name, prefix));
}

ordered_json MoveToJson(const v1::MoveRecord& move) {
  ordered_json out;
  out["time_us"] = move.time_us();
  out["from"] = move.from();
  out["to"] = move.to();
  out["bytes"] = move.bytes();
  out["cause"] = CauseWord(move.cause());
  out["outcome"] = OutcomeWord(move.outcome());
  out["took_us"] = move.took_us();
  out["for_session"] = move.for_session();
  out["used_bytes"] = move.used_bytes();
  out["capacity_bytes"] = move.capacity_bytes();
  out["idle_us"] = move.idle_us();
  out["priority"] = move.priority();
  out["error"] = move.error();
  return out;
}

void AddTensor(const v1::TensorEvent& event, ordered_json& out) {
  out["type"] = "tensor";
  out["tenant"] = event.tenant();
  out["handle"] = event.handle();
  out["key"] = EscapeKey(event.key());
  out["kind"] = KindWord(event.kind());
  out["bytes"] = event.bytes();
  const auto state = [](v1::TensorState value) {
    return value == v1::TENSOR_STATE_UNSPECIFIED ? ordered_json(nullptr)
                                                 : ordered_json(StateWord(value));
  };
  out["from"] = state(event.from());
  out["to"] = state(event.to());
  out["tier"] = event.tier();
  out["cause"] = CauseWord(event.cause());
}

void AddSession(const v1::SessionEvent& event, ordered_json& out) {
  out["type"] = "session";
  out["change"] = Word(v1::SessionEvent::Change_Name(event.change()), "CHANGE_", event.change());
  out["session"] = event.session();
  out["tenant"] = event.tenant();
  out["uid"] = event.uid();
  out["pid"] = event.pid();
  out["command"] = event.command();
  out["pins"] = event.pins();
  out["why"] = event.why();
}

void AddOccupancy(const v1::OccupancyEvent& event, ordered_json& out) {
  out["type"] = "occupancy";
  out["tiers"] = ordered_json::array();
  for (const v1::OccupancyEvent::Sample& tier : event.tiers()) {
    ordered_json one;
    one["tier"] = tier.tier();
    one["capacity_bytes"] = tier.capacity_bytes();
    one["used_bytes"] = tier.used_bytes();
    one["pinned_bytes"] = tier.pinned_bytes();
    one["moving_bytes"] = tier.moving_bytes();
    one["clean_copy_bytes"] = tier.clean_copy_bytes();
    one["tensors"] = tier.tensors();
    out["tiers"].push_back(std::move(one));
  }
}

ordered_json EventToJson(const v1::Event& event) {
  ordered_json out;
  out["sequence"] = event.sequence();
  out["time_us"] = event.time_us();
  switch (event.what_case()) {
    case v1::Event::kTensor:
      AddTensor(event.tensor(), out);
      break;
    case v1::Event::kMove:
      out["type"] = "move";
      out["tenant"] = event.move().tenant();
      out["handle"] = event.move().handle();
      out["key"] = EscapeKey(event.move().key());
      out["kind"] = KindWord(event.move().kind());
      out["move"] = MoveToJson(event.move().move());
      break;
    case v1::Event::kWatermark:
      out["type"] = "watermark";
      out["tier"] = event.watermark().tier();
      out["mark"] = Word(v1::WatermarkEvent::Mark_Name(event.watermark().mark()), "MARK_",
                         event.watermark().mark());
      out["used_bytes"] = event.watermark().used_bytes();
      out["mark_bytes"] = event.watermark().mark_bytes();
      break;
    case v1::Event::kSession:
      AddSession(event.session(), out);
      break;
    case v1::Event::kTierHealth:
      out["type"] = "tier_health";
      out["from_state"] = event.tier_health().from_state();
      out["health"] = TierHealthToJson(event.tier_health().health());
      break;
    case v1::Event::kAdmin:
      out["type"] = "admin";
      out["action"] = event.admin().action();
      out["arguments"] = event.admin().arguments();
      out["reason"] = event.admin().reason();
      break;
    case v1::Event::kOccupancy:
      AddOccupancy(event.occupancy(), out);
      break;
    case v1::Event::WHAT_NOT_SET:
      out["type"] = "unknown";
      break;
  }
  return out;
}

ordered_json CostToJson(const v1::EvictionCost& cost) {
  ordered_json out;
  out["use_probability"] = cost.use_probability();
  out["horizon_ms"] = cost.horizon_ms();
  out["uses_per_s"] = cost.uses_per_s();
  out["accesses"] = cost.accesses();
  out["idle_us"] = cost.idle_us();
  out["below"] = cost.below();
  out["bring_back_us"] = cost.bring_back_us();
  out["bring_back_measured"] = cost.bring_back_measured();
  out["recompute_us"] = cost.recompute_us();
  out["weight"] = cost.weight();
  out["us_per_byte"] = cost.us_per_byte();
  out["clean_below"] = cost.clean_below();
  return out;
}

}  // namespace

std::string CauseWord(v1::MoveCause cause) {
  return Word(v1::MoveCause_Name(cause), "MOVE_CAUSE_", cause);
}
std::string OutcomeWord(v1::MoveOutcome outcome) {
  return Word(v1::MoveOutcome_Name(outcome), "MOVE_OUTCOME_", outcome);
}

std::string EventsJson(const v1::WatchResponse& events) {
  std::string out;
  for (const v1::Event& event : events.events()) {
    absl::StrAppend(&out, Dump(EventToJson(event), -1), "\n");
  }
  return out;
}

std::string ExplainJson(const v1::ExplainResponse& why) {
  ordered_json out;
  out["epoch"] = why.epoch();
  out["tensor"] = TensorToJson(why.tensor());
  out["policy"] = why.policy();
  out["rank"] = why.rank();
  out["rank_capped"] = why.rank_capped();
  out["of_tensors"] = why.of_tensors();
  out["next"] = why.next();
  out["cost"] = CostToJson(why.cost());
  out["moves"] = ordered_json::array();
  for (const v1::MoveRecord& move : why.moves()) out["moves"].push_back(MoveToJson(move));
  out["moves_forgotten"] = why.moves_forgotten();
  return Document(out);
}

}  // namespace hmm::ctl
