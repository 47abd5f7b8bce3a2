// SPDX-License-Identifier: Apache-2.0
//
// The configuration: one TOML file. One table of keys (config_keys.cc) is the source of the parser,
// of config/hmmd.toml, of docs/config.md, of hmmd.toml(5) and of the error texts. Pure but for
// reading the file; any thread.
//
// Every refusal is INVALID_ARGUMENT/BAD_CONFIG (RESOURCE_EXHAUSTED/BAD_CONFIG for a capacity beyond
// the machine), says file:line, the key, and what to write instead.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/units.h"
#include "hmm/types.h"
#include "tier/host_tier.h"
#include "tier/machine.h"
#include "tier/topology.h"

namespace hmm::daemon {

// "8GiB", or "80%" of something that is known later.
struct Share {
  Bytes bytes = 0;
  double ratio = 0;  // > 0: of the whole
  Bytes Of(Bytes whole) const {
    return ratio > 0 ? static_cast<Bytes>(ratio * static_cast<double>(whole)) : bytes;
  }
};

// A share of every tier, or of those that are named.
struct TierShares {
  Share all;
  std::map<std::string, Share> by_tier;
};

// Where the values of a block come from, by "section.key": "hmmd.toml:3", "flag --dir". Those that
// are not in it are defaults.
using Sources = std::map<std::string, std::string>;

struct TierConfig {
  std::string name;
  std::string kind;
  Share capacity;
  bool emulated = false;
  double high = 0;  // 0: by kind, see DefaultWatermarks
  double low = 0;
  Share reserve{.ratio = 0.02};
  Bytes commit_chunk = 2 * kMiB;
  std::string pages = "auto";
  std::int64_t numa_node = -1;
  std::string demote_to;     // empty: derived from the topology
  Bytes link_bandwidth = 0;  // a second; 0: as fast as it goes
  std::string path;          // flash; empty: <state_dir>/<name>.tier
  std::size_t line = 0;
  Sources sources;

  // Resolved by CheckConfig.
  TierKind tier_kind = TierKind::kDdr;
  Bytes capacity_bytes = 0;
  Bytes reserve_bytes = 0;
  unsigned rank = 0;
  std::optional<TierId> below;  // index into Config::tiers
};

// A tenant that the file names: one with sockets of its own (a pod), or a uid ("uid:1000") on the
// common ones.
struct TenantConfig {
  std::string name;
  std::string dir;  // of its sockets; empty: <daemon.dir>/<name>
  std::uint64_t socket_mode = 0666;
  std::uint64_t connections_max = 0;  // 0: limits.connections_max alone
  TierShares resident_max;            // 0: limits.tenant_resident_max
  std::size_t line = 0;
  Sources sources;

  bool has_sockets() const { return !name.starts_with("uid:"); }
};

struct Config {
  std::string file;  // empty: none was given
  std::string dir = "/run/hmm";
  std::string state_dir = "/var/lib/hmm";
  std::string log_format = "text";
  std::string log_level = "info";
  std::uint64_t socket_mode = 0666;
  Duration stop_timeout = std::chrono::seconds(5);
  Bytes commit_headroom = 256 * kMiB;
  std::string flash_engine = "auto";
  std::uint64_t flash_depth = 32;
  std::uint64_t connections_max = 1024;
  std::uint64_t session_connections_max = 1024;
  std::uint64_t handshakes_max = 64;
  Duration handshake_timeout = std::chrono::seconds(5);
  std::uint64_t armed_max = 16;
  Bytes message_max = 16 * kMiB;
  std::uint64_t copy_threads = 2;
  Bytes copy_io_unit = kMiB;
  std::string calibrate = "cached";
  core::ManagerOptions limits;
  // Fastest first once CheckConfig has ordered them.
  std::vector<TierConfig> tiers;
  std::vector<TenantConfig> tenants;
  Sources sources;

  // Resolved by CheckConfig.
  tier::Topology topology;            // empty: it could not be read
  std::vector<std::string> warnings;  // for the log: what will be, though not as asked for
};

// The text of a file; `file` is its name for messages. Syntax, keys and types only.
absl::StatusOr<Config> ParseConfig(std::string_view text, const std::string& file);
absl::StatusOr<Config> LoadConfig(const std::string& path);

// What CheckConfig asks the machine.
struct Resources {
  tier::Machine machine;
  absl::StatusOr<tier::Topology> topology = tier::Topology{};
  // Free bytes of the file system that holds this path (of its nearest existing parent), counting
  // what is at the path already, which the tier overwrites; and which file system that is.
  struct Disk {
    std::uint64_t device = 0;
    Bytes available = 0;
  };
  std::function<absl::StatusOr<Disk>(const std::string& path)> disk;
  // Whether a file that the configuration names can be a tier's; the message says why not.
  std::function<absl::Status(const std::string& path)> path = [](const std::string&) {
    return absl::OkStatus();
  };
  // Makes the daemon's own directory, where that is wanted: else a tier below it would be blamed
  // for what is wrong with it.
  std::function<absl::Status(const std::string& directory)> directory = [](const std::string&) {
    return absl::OkStatus();
  };
};
absl::StatusOr<Resources> DetectResources();

// Everything that can be known without listening and allocating: values against each other and
// against the machine. Resolves percentages, defaults and demotion paths, and orders the tiers, in
// place.
absl::Status CheckConfig(Config& config, const Resources& resources);

// Gives a configuration without tiers an emulated hbm0, a ddr0 and a flash0 of sizes that a small
// machine can bear. False: it names its own.
bool ChooseTiers(Config& config, const Resources& resources);

// config/hmmd.toml: every key, commented out, at its default.
std::string DefaultConfigText();
// A file that means what `config` means, each value with a comment that says where it comes from.
std::string EffectiveConfigText(const Config& config);  // REQUIRES: checked
// docs/config.md: every key, its default, what it takes and what it is for.
std::string ConfigReferenceText();
// hmmd.toml(5), the same as a man page.
std::string ConfigManPage(std::string_view version);
// What the core enforces for the tenants that the file names.
core::TenantLimits TenantLimitsOf(const Config& config);  // REQUIRES: checked

// "hbm0 1 GiB (emulated), ddr0 4 GiB, flash0 16 GiB"
std::string Summary(const Config& config);          // REQUIRES: checked
tier::PageMode PageModeOf(const TierConfig& tier);  // REQUIRES: checked

}  // namespace hmm::daemon
