// SPDX-License-Identifier: Apache-2.0
//
// hmmctl health.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/ctl/health_text.h"
#include "client/ctl/json_text.h"
#include "client/ctl/verbs.h"

namespace hmm::ctl {

using nlohmann::ordered_json;

std::string HealthTable(const v1::GetHealthResponse& health, const TableStyle& style) {
  Table table({{"TIER"},
               {"STATE"},
               {"SINCE", true},
               {"PROBED", true},
               {"READ-ERR", true},
               {"WRITE-ERR", true},
               {"CKSUM-ERR", true},
               {"REASON"},
               {"NOTE"}});
  const auto errors = [](std::uint64_t count) {
    return Cell(absl::StrCat(count), "", count > 0 ? Tint::kBad : Tint::kNone);
  };
  for (const v1::TierHealth& tier : health.tiers()) {
    Cell probed = "";
    if (tier.has_last_probe_ms()) {
      probed = Time(tier.last_probe_ms());
      if (!tier.last_probe_ok()) probed.tint = Tint::kBad;
    }
    table.AddRow({tier.tier(), StateCell(tier.state()), Time(tier.since_ms()), std::move(probed),
                  errors(tier.read_errors()), errors(tier.write_errors()),
                  errors(tier.checksum_errors()), tier.reason(), tier.note()});
  }
  if (style.tabs) return table.ToString(style);
  const std::string word = health.serving() ? "serving" : "not serving: draining or stopping";
  return absl::StrCat(
      style.colour ? Tinted(word, health.serving() ? Tint::kGood : Tint::kBad) : word, "\n\n",
      table.ToString(style));
}

ordered_json TierHealthToJson(const v1::TierHealth& tier) {
  ordered_json out;
  out["tier"] = tier.tier();
  out["state"] = tier.state();
  out["reason"] = tier.reason();
  out["note"] = tier.note();
  out["since_ms"] = tier.since_ms();
  out["last_probe_ms"] =
      tier.has_last_probe_ms() ? ordered_json(tier.last_probe_ms()) : ordered_json(nullptr);
  out["last_probe_ok"] = tier.last_probe_ok();
  out["read_errors"] = tier.read_errors();
  out["write_errors"] = tier.write_errors();
  out["checksum_errors"] = tier.checksum_errors();
  return out;
}

std::string HealthJson(const v1::GetHealthResponse& health) {
  ordered_json out;
  out["epoch"] = health.epoch();
  out["serving"] = health.serving();
  out["well"] = IsWell(health);
  out["tiers"] = ordered_json::array();
  for (const v1::TierHealth& tier : health.tiers()) out["tiers"].push_back(TierHealthToJson(tier));
  return Document(out);
}

bool IsWell(const v1::GetHealthResponse& health) {
  return health.serving() &&
         std::all_of(health.tiers().begin(), health.tiers().end(),
                     [](const v1::TierHealth& tier) { return tier.state() == "online"; });
}

absl::StatusOr<int> RunHealth(const Command& command) {
  absl::StatusOr<std::unique_ptr<DaemonLink>> link = DaemonLink::Connect(command.dir);
  if (!link.ok()) return link.status();
  const absl::StatusOr<v1::GetHealthResponse> health = (*link)->GetHealth(command.tier);
  if (!health.ok()) return health.status();
  HMM_RETURN_IF_ERROR(WriteOut(
      command.format == Format::kJson ? HealthJson(*health) : HealthTable(*health, command.style)));
  return IsWell(*health) ? 0 : 1;
}

}  // namespace hmm::ctl
