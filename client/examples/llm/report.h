// SPDX-License-Identifier: Apache-2.0
//
// The figures of a run. Values; one thread.
#pragma once

#include <hmm/kv_cache.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "hmm_weights.h"

namespace llm {

struct Report {
  std::uint64_t tokens = 0;                  // generated
  double seconds = 0;                        // from the first to the last of them
  double ttft_ms = 0;                        // from the start to the first token, of the first text
  std::uint64_t prefill_tokens_skipped = 0;  // prompt tokens found cached
  std::uint64_t recomputed_tokens = 0;       // after misses
  std::map<std::string, std::uint64_t> hits;  // by kind of tier: hbm, ddr, flash
  double exposed_wait_ms = 0;                 // computing stood still for moves or room
  std::uint64_t moved_bytes = 0;   // came up for us and was used: waited for, or by hints
  double start_ms = 0;             // until the weights could be used
  std::uint64_t loaded_bytes = 0;  // weights read from the checkpoint into hmmd

  // Behind the first, which the prompt's computation gave.
  double tokens_per_s() const {
    return seconds > 0 && tokens > 1 ? static_cast<double>(tokens - 1) / seconds : 0;
  }
  // `kinds`: of tiers, by their names.
  void Add(const hmm::KvStats& stats, const TierKinds& kinds);
  void Add(const WeightStats& stats, const TierKinds& kinds);
};

// One line of JSON; lines for people.
std::string ReportAsJson(const Report& report);
std::string ReportAsText(const Report& report);

}  // namespace llm
