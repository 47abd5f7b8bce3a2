// SPDX-License-Identifier: Apache-2.0
//
// What a replay counted. Each thread and process counts its own; they merge by adding. The JSON
// form of a tally travels from a worker process to the one that started it. Values; one thread
// each.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "client/ctl/histogram.h"

namespace hmm::ctl {

struct ReplayTally {
  std::uint64_t requests = 0;
  std::uint64_t accesses = 0;           // blocks asked for = hits + misses
  std::array<std::uint64_t, 3> hits{};  // by TierKind - 1 of where the block was
  std::uint64_t misses = 0;             // beyond the leading run, of these:
  std::uint64_t stored = 0;             //   written and sealed now
  std::uint64_t present = 0;            //   already there (cached beyond the run, or raced for)
  std::uint64_t unstored = 0;           //   no room for them within the time for retries
  std::uint64_t verified_bytes = 0;     // compared with the pattern: every byte of every hit
  std::uint64_t wrong_bytes = 0;
  std::uint64_t errors = 0;  // anything that should not happen
  bool interrupted = false;
  Histogram hit_us;   // a request's hits: from asking until all are pinned in place
  Histogram miss_us;  // a request's misses: Allocate and Seal, without the time to fill the blocks
  std::vector<std::string> messages;  // the first few errors, for people

  std::uint64_t TotalHits() const { return hits[0] + hits[1] + hits[2]; }
  // Keeps a message; past kMessagesMax only counts.
  void AddError(std::string message);
  void Merge(const ReplayTally& other);

  static constexpr std::size_t kMessagesMax = 5;
};

std::string TallyToJson(const ReplayTally& tally);
// INVALID_ARGUMENT for anything TallyToJson does not write.
absl::StatusOr<ReplayTally> TallyFromJson(std::string_view text);

// Bytes that crossed between neighbouring tiers while the replay ran, by all clients of the daemon.
struct ReplayTraffic {
  std::uint64_t hbm_to_ddr = 0;
  std::uint64_t ddr_to_hbm = 0;
  std::uint64_t ddr_to_flash = 0;
  std::uint64_t flash_to_ddr = 0;
  std::uint64_t evictions = 0;
};

struct ReplayReport {
  ReplayTally tally;
  std::optional<ReplayTraffic> traffic;  // unknown where the admin socket is not ours to use
  double seconds = 0;
  bool hbm_emulated = false;
};

}  // namespace hmm::ctl
