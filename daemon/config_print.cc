// SPDX-License-Identifier: Apache-2.0
//
// hmmd --print-config: what the daemon would run with, as a file that would make it so, and where
// each value comes from.
#include <algorithm>
#include <type_traits>

#include "absl/strings/str_replace.h"
#include "daemon/config_keys.h"
#include "daemon/text.h"

namespace hmm::daemon {
namespace {

constexpr std::size_t kComment = 36;  // column of the comments

// Keys that say nothing about a tier of this kind.
bool Idle(const TierConfig& tier, std::string_view key) {
  const bool flash = tier.tier_kind == TierKind::kFlash;
  if (key == "demote_to") return tier.demote_to.empty();
  if (key == "link_bandwidth") return tier.link_bandwidth == 0;
  if (key == "path") return !flash;
  if (key == "emulated") return tier.tier_kind != TierKind::kHbm && !tier.emulated;
  return flash && (key == "commit_chunk" || key == "pages" || key == "numa_node");
}
bool Idle(const TenantConfig& tenant, std::string_view key) {
  if (key == "resident_max") {
    const TierShares& shares = tenant.resident_max;
    return shares.by_tier.empty() && shares.all.bytes == 0 && shares.all.ratio == 0;
  }
  return !tenant.has_sockets() && key != "name";
}
bool Idle(const Config&, std::string_view) { return false; }

// What a percentage comes to here; empty: the value says it.
std::string Here(const TierConfig& tier, std::string_view key) {
  const auto size = [](Bytes bytes) {
    return absl::StrReplaceAll(FormatBytes(bytes), {{" ", ""}});
  };
  if (key == "capacity" && tier.capacity.ratio > 0) return size(tier.capacity_bytes);
  if (key == "reserve" && tier.reserve.ratio > 0) return size(tier.reserve_bytes);
  return "";
}
template <typename Owner>
std::string Here(const Owner&, std::string_view) {
  return "";
}

template <typename Owner>
void AppendKey(const Key<Owner>& key, Owner& owner, std::string& out) {
  if (Idle(owner, key.name)) return;
  const auto source = owner.sources.find(FullName(key));
  // A block's path that follows from others is shown, not said: that it exists is asked of paths
  // that somebody gave.
  const bool follows =
      key.type == KeyType::kPath && !std::is_same_v<Owner, Config> && source == owner.sources.end();
  std::string line = Cat(follows ? "# " : "", key.name, " = ", Literal(key.type, key.slot(owner)));
  line.resize(std::max(line.size() + 1, kComment), ' ');
  const std::string here = Here(owner, key.name);
  Append(out, line, "# ", source == owner.sources.end() ? "default" : source->second,
         here.empty() ? "" : Cat("; ", here, " here"), "\n");
}

}  // namespace

std::string EffectiveConfigText(const Config& checked) {
  Config config = checked;  // slots are for writing too
  std::string out = Cat("# What hmmd runs with here, and where each value comes from. File: ",
                        config.file.empty() ? "none" : config.file, "\n");
  std::string_view section;
  for (const Key<Config>& key : ConfigKeys()) {
    if (key.section != section) {
      section = key.section;
      Append(out, "\n[", section, "]\n");
    }
    AppendKey(key, config, out);
  }
  for (TierConfig& tier : config.tiers) {
    out += "\n[[tier]]\n";
    for (const Key<TierConfig>& key : TierKeys()) AppendKey(key, tier, out);
  }
  for (TenantConfig& tenant : config.tenants) {
    out += "\n[[tenant]]\n";
    for (const Key<TenantConfig>& key : TenantKeys()) AppendKey(key, tenant, out);
  }
  return out;
}

}  // namespace hmm::daemon
