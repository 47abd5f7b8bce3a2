// SPDX-License-Identifier: Apache-2.0
//
// The daemon's configuration (TOML), against a machine that is made up.
#include <string>
#include <string_view>

#include "daemon/config.h"

using namespace hmm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto config = daemon::ParseConfig(text, "fuzz.toml");
  if (!config.ok()) return 0;
  daemon::Resources resources;
  resources.machine.memory_total = 64 * kGiB;
  resources.machine.memory_available = 48 * kGiB;
  resources.machine.cpus = 8;
  resources.disk = [](const std::string&) -> absl::StatusOr<daemon::Resources::Disk> {
    return daemon::Resources::Disk{.device = 1, .available = 1024 * kGiB};
  };
  (void)daemon::ChooseTiers(*config, resources);
  if (!daemon::CheckConfig(*config, resources).ok()) return 0;
  (void)daemon::Summary(*config);
  (void)daemon::TenantLimitsOf(*config);
  // What is printed means the same: to the letter, but for where values come from.
  const std::string printed = daemon::EffectiveConfigText(*config);
  if (!daemon::ParseConfig(printed, "printed.toml").ok()) __builtin_trap();
  for (const daemon::TierConfig& tier : config->tiers) (void)daemon::PageModeOf(tier);
  return 0;
}
