// SPDX-License-Identifier: Apache-2.0
//
// The configuration: one TOML file. One table of keys (config_keys.cc) is the source of the parser,
// of config/hmmd.toml and of the error texts. Pure but for reading the file; any thread.
//
// Every refusal is INVALID_ARGUMENT/BAD_CONFIG (RESOURCE_EXHAUSTED/BAD_CONFIG for a capacity beyond
// the machine), says file:line, the key, and what to write instead.
#pragma once

#include <cstdint>
#include <functional>
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

namespace hmm::daemon {

// "8GiB", or "80%" of something that is known later.
struct Share {
  Bytes bytes = 0;
  double ratio = 0;  // > 0: of the whole
  Bytes Of(Bytes whole) const {
    return ratio > 0 ? static_cast<Bytes>(ratio * static_cast<double>(whole)) : bytes;
  }
};

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
  std::string path;  // flash; empty: <state_dir>/<name>.tier
  std::size_t line = 0;

  // Resolved by CheckConfig.
  TierKind tier_kind = TierKind::kDdr;
  Bytes capacity_bytes = 0;
  Bytes reserve_bytes = 0;
};

struct Config {
  std::string file;  // empty: none was given
  std::string dir = "/run/hmm";
  std::string state_dir = "/var/lib/hmm";
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
  core::ManagerOptions limits;
  std::vector<TierConfig> tiers;  // fastest first
};

// The text of a file; `file` is its name for messages. Syntax, keys and types only.
absl::StatusOr<Config> ParseConfig(std::string_view text, const std::string& file);
absl::StatusOr<Config> LoadConfig(const std::string& path);

// What CheckConfig asks the machine.
struct Resources {
  tier::Machine machine;
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
};
absl::StatusOr<Resources> DetectResources();

// Everything that can be known without listening and allocating: values against each other and
// against the machine. Resolves percentages and defaults in place.
absl::Status CheckConfig(Config& config, const Resources& resources);

// Gives a configuration without tiers an emulated hbm0, a ddr0 and a flash0 of sizes that a small
// machine can bear. False: it names its own.
bool ChooseTiers(Config& config, const Resources& resources);

// config/hmmd.toml: every key, commented out, at its default.
std::string DefaultConfigText();

// "hbm0 1 GiB (emulated), ddr0 4 GiB, flash0 16 GiB"
std::string Summary(const Config& config);          // REQUIRES: checked
tier::PageMode PageModeOf(const TierConfig& tier);  // REQUIRES: checked

}  // namespace hmm::daemon
