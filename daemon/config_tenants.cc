// SPDX-License-Identifier: Apache-2.0
//
// [[tenant]] blocks against each other and against the tiers, and what the core makes of them.
#include "daemon/config_tenants.h"

#include <sys/un.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/numbers.h"
#include "base/status.h"
#include "daemon/config_keys.h"
#include "daemon/text.h"

namespace hmm::daemon {
namespace {

constexpr std::size_t kTenantsMax = 256;
constexpr std::size_t kNameMax = 32;

absl::Status Refuse(const Config& config, const TenantConfig& tenant, std::string_view key,
                    std::string_view what) {
  const std::string name = tenant.name.empty() ? "tenant" : Cat("tenant ", tenant.name);
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
               Cat(config.file, ":", tenant.line, ": ", name, ": ", key, ": ", what));
}

absl::Status CheckName(const Config& config, const TenantConfig& tenant) {
  constexpr std::string_view kUid = "uid:";
  if (tenant.name.empty()) {
    return Refuse(config, tenant, "name", "missing; write for example \"pod-a\"");
  }
  if (tenant.name.starts_with(kUid)) {
    std::uint32_t uid = 0;
    const std::string digits = tenant.name.substr(kUid.size());
    // Only the way in which the daemon itself writes it names anybody.
    if (!absl::SimpleAtoi(digits, &uid) || Cat(uid) != digits) {
      return Refuse(config, tenant, "name", "is no uid; write for example \"uid:1000\"");
    }
    if (!tenant.dir.empty() || tenant.sources.contains("tenant.socket_mode") ||
        tenant.connections_max > 0) {
      return Refuse(config, tenant, "dir, socket_mode, connections_max",
                    "a uid comes through the common sockets; remove the key, or name the tenant "
                    "without \"uid:\"");
    }
    return absl::OkStatus();
  }
  if (tenant.name.size() > kNameMax ||
      tenant.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") !=
          std::string::npos) {
    return Refuse(config, tenant, "name", Cat("at most ", kNameMax, " of a-z, 0-9, _ and -"));
  }
  return absl::OkStatus();
}

absl::Status CheckShares(const Config& config, const TenantConfig& tenant) {
  std::vector<std::string_view> known;
  for (const TierConfig& tier : config.tiers) known.push_back(tier.name);
  for (const auto& [tier, share] : tenant.resident_max.by_tier) {
    if (std::find(known.begin(), known.end(), tier) != known.end()) continue;
    return Refuse(config, tenant, "resident_max",
                  Cat("there is no tier '", tier, "'", Suggest(tier, known)));
  }
  return absl::OkStatus();
}

// One name for a directory, however it is written: as it will be opened, links followed as far as
// it exists.
std::string RealName(const std::string& dir) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(dir, error);
  std::filesystem::path real = std::filesystem::weakly_canonical(whole, error);
  if (error) real = whole.lexically_normal();
  return (real.has_filename() ? real : real.parent_path()).string();  // "a/" and "a" are one
}

}  // namespace

absl::Status CheckTenants(Config& config) {
  if (config.tenants.size() > kTenantsMax) {
    return Refuse(config, config.tenants.back(), "name",
                  Cat(config.tenants.size(), " tenants; at most ", kTenantsMax));
  }
  constexpr std::string_view kLongestSocket = "/session.sock";
  const std::size_t room = sizeof(sockaddr_un::sun_path) - 1 - kLongestSocket.size();
  std::set<std::string_view> names;
  std::set<std::string> dirs = {RealName(config.dir), RealName(config.state_dir)};
  for (TenantConfig& tenant : config.tenants) {
    HMM_RETURN_IF_ERROR(CheckName(config, tenant));
    if (!names.insert(tenant.name).second) {
      return Refuse(config, tenant, "name", "another tenant has this name; each needs its own");
    }
    HMM_RETURN_IF_ERROR(CheckShares(config, tenant));
    if (!tenant.has_sockets()) continue;
    if (tenant.dir.empty()) tenant.dir = Cat(config.dir, "/", tenant.name);
    if (tenant.dir.size() > room) {
      return Refuse(config, tenant, "dir",
                    Cat(tenant.dir, " is too long for its sockets: at most ", room, " bytes"));
    }
    if (!dirs.insert(RealName(tenant.dir)).second) {
      return Refuse(
          config, tenant, "dir",
          Cat(tenant.dir, " is the daemon's own or another tenant's; each needs its own"));
    }
  }
  return absl::OkStatus();
}

core::TenantLimits TenantLimitsOf(const Config& config) {
  core::TenantLimits limits;
  for (const TenantConfig& tenant : config.tenants) {
    std::vector<core::ResidentMax>& tiers = limits[tenant.name];
    for (const TierConfig& tier : config.tiers) {
      const auto named = tenant.resident_max.by_tier.find(tier.name);
      const Share& share =
          named != tenant.resident_max.by_tier.end() ? named->second : tenant.resident_max.all;
      tiers.push_back({.ratio = share.ratio, .bytes = share.bytes});
    }
  }
  return limits;
}

}  // namespace hmm::daemon
