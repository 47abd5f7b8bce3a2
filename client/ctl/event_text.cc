// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/event_text.h"

#include <ctime>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ctl/printer.h"

namespace hmm::ctl {
namespace {

// The cells of one line; those that do not apply stay empty.
struct Line {
  std::string type{};
  std::string tier{};
  std::string tenant{};
  std::string subject{};
  Cell change = "";
  Cell size = "";
  Cell why = "";
};

std::string Way(const std::string& from, const std::string& to) {
  return from == to || to.empty() ? from : absl::StrCat(from, "->", to);
}

std::string Subject(std::uint64_t handle, const std::string& key) {
  return key.empty() ? absl::StrCat(handle) : absl::StrCat(handle, "/", EscapeKey(key));
}

std::string StateOrGone(v1::TensorState state, const char* none) {
  return state == v1::TENSOR_STATE_UNSPECIFIED ? none : StateWord(state);
}

Line TensorLine(const v1::TensorEvent& event) {
  return {.type = "tensor",
          .tier = event.tier(),
          .tenant = event.tenant(),
          .subject = Subject(event.handle(), event.key()),
          .change =
              absl::StrCat(StateOrGone(event.from(), "new"), "->", StateOrGone(event.to(), "gone")),
          .size = Size(event.bytes()),
          .why = event.cause() == v1::MOVE_CAUSE_UNSPECIFIED ? "" : CauseWord(event.cause())};
}

Line MoveLine(const v1::MoveEvent& event) {
  const v1::MoveRecord& move = event.move();
  const bool failed = move.outcome() == v1::MOVE_OUTCOME_FAILED;
  const auto why = [&move](const std::string& took) {
    return absl::StrCat(CauseWord(move.cause()), ",", took, move.error().empty() ? "" : ",",
                        move.error());
  };
  return {.type = "move",
          .tier = Way(move.from(), move.to()),
          .tenant = event.tenant(),
          .subject = Subject(event.handle(), event.key()),
          .change = {OutcomeWord(move.outcome()), "", failed ? Tint::kBad : Tint::kNone},
          .size = Size(move.bytes()),
          .why = {why(absl::StrCat(move.took_us(), "us")),
                  why(absl::StrFormat("%d.%03d", move.took_us() / 1000, move.took_us() % 1000))}};
}

Line WatermarkLine(const v1::WatermarkEvent& event) {
  const bool above = event.mark() == v1::WatermarkEvent::MARK_ABOVE_HIGH;
  return {.type = "watermark",
          .tier = event.tier(),
          .change = {above ? "above_high" : "below_low", "", above ? Tint::kWarn : Tint::kNone},
          .size = Size(event.used_bytes()),
          .why = {absl::StrCat("mark=", SizeCell(event.mark_bytes())),
                  absl::StrCat("mark=", event.mark_bytes())}};
}

Line SessionLine(const v1::SessionEvent& event) {
  static constexpr const char* kChanges[] = {"-", "attached", "closing", "reaped", "expelled"};
  const auto change = static_cast<std::size_t>(event.change());
  std::string why = absl::StrCat("pid=", event.pid(), ",", EscapeKey(event.command()));
  if (event.pins() > 0) absl::StrAppend(&why, ",pins=", event.pins());
  if (!event.why().empty()) absl::StrAppend(&why, ",", event.why());
  return {
      .type = "session",
      .tenant = event.tenant(),
      .subject = absl::StrCat(event.session()),
      .change = {change < std::size(kChanges) ? kChanges[change] : absl::StrCat(change), "",
                 event.change() == v1::SessionEvent::CHANGE_EXPELLED ? Tint::kBad : Tint::kNone},
      .why = std::move(why)};
}

Line HealthLine(const v1::TierHealthEvent& event) {
  Cell change = StateCell(event.health().state());
  change.text = absl::StrCat(event.from_state(), "->", change.text);
  return {.type = "tier_health",
          .tier = event.health().tier(),
          .change = std::move(change),
          .why = absl::StrCat(event.health().reason(), event.health().reason().empty() ? "" : ": ",
                              event.health().note())};
}

Line AdminLine(const v1::AdminEvent& event) {
  return {.type = "admin",
          .change = {event.action(), "", event.reason().empty() ? Tint::kNone : Tint::kBad},
          .why = absl::StrCat(event.arguments(),
                              event.reason().empty() ? "" : " failed: ", event.reason())};
}

void AddLine(Table& table, const v1::Event& event, Line line) {
  table.AddRow({Cell(ClockText(event.time_us()), absl::StrCat(event.time_us())),
                event.sequence() == 0 ? "" : absl::StrCat(event.sequence()), std::move(line.type),
                std::move(line.tier), std::move(line.tenant), std::move(line.subject),
                std::move(line.change), std::move(line.size), std::move(line.why)});
}

void AddOccupancy(Table& table, const v1::Event& event) {
  for (const v1::OccupancyEvent::Sample& tier : event.occupancy().tiers()) {
    const double use = tier.capacity_bytes() == 0 ? 0
                                                  : static_cast<double>(tier.used_bytes()) /
                                                        static_cast<double>(tier.capacity_bytes());
    const auto why = [&tier](const auto& pinned, const auto& moving) {
      return absl::StrCat("pinned=", pinned, ",moving=", moving, ",tensors=", tier.tensors());
    };
    AddLine(table, event,
            {.type = "occupancy",
             .tier = tier.tier(),
             .change = Percent(use),
             .size = Size(tier.used_bytes()),
             .why = {why(SizeCell(tier.pinned_bytes()), SizeCell(tier.moving_bytes())),
                     why(tier.pinned_bytes(), tier.moving_bytes())}});
  }
}

void AddEvent(Table& table, const v1::Event& event) {
  switch (event.what_case()) {
    case v1::Event::kTensor:
      return AddLine(table, event, TensorLine(event.tensor()));
    case v1::Event::kMove:
      return AddLine(table, event, MoveLine(event.move()));
    case v1::Event::kWatermark:
      return AddLine(table, event, WatermarkLine(event.watermark()));
    case v1::Event::kSession:
      return AddLine(table, event, SessionLine(event.session()));
    case v1::Event::kTierHealth:
      return AddLine(table, event, HealthLine(event.tier_health()));
    case v1::Event::kAdmin:
      return AddLine(table, event, AdminLine(event.admin()));
    case v1::Event::kOccupancy:
      return AddOccupancy(table, event);
    case v1::Event::WHAT_NOT_SET:  // of a newer daemon
      return AddLine(table, event, {.type = "unknown"});
  }
}

}  // namespace

std::string ClockText(std::int64_t time_us) {
  if (time_us <= 0) return "-";
  const std::time_t seconds = time_us / 1'000'000;
  std::tm local{};
  localtime_r(&seconds, &local);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d.%03d", local.tm_year + 1900,
                         local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                         time_us / 1000 % 1000);
}

std::string EventsTable(const v1::WatchResponse& events, const TableStyle& style, bool first) {
  Table table({{"TIME", false, 23},
               {"SEQ", true, 6},
               {"TYPE", false, 11},
               {"TIER", false, 12},
               {"TENANT", false, 8},
               {"SUBJECT", false, 14},
               {"CHANGE", false, 18},
               {"SIZE", true, 8},
               {"WHY"}});
  for (const v1::Event& event : events.events()) AddEvent(table, event);
  TableStyle shown = style;
  shown.header = style.header && first;
  return table.ToString(shown);
}

}  // namespace hmm::ctl
