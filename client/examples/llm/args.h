// SPDX-License-Identifier: Apache-2.0
//
// The command line of hmm-llm. Values; ParseArgs is called once, by main.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace llm {

enum class KvKind { kLocal, kHmm };
enum class StatsKind { kNone, kText, kJson };

struct Args {
  std::string model;       // path
  std::string make_model;  // shape to generate; empty: run
  std::string tokenizer;   // path; empty: numbers
  std::string prompt;
  std::size_t steps = 0;  // positions computed, prompt included; 0: the model's context
  float temperature = 0;
  std::uint64_t seed = 1;

  KvKind kv = KvKind::kHmm;
  std::uint64_t kv_budget = 0;  // local: bytes of cached blocks; 0: no limit
  std::string kv_tier;          // hmm: where blocks have to be to be read; empty: anywhere mapped
  std::size_t block_tokens = 16;
  std::uint64_t window = 16u << 20;
  std::string salt;
  std::size_t chunk = 64;

  bool offload_weights = false;
  std::string weight_tier;
  std::size_t sequences = 1;  // round robin, each suspended while others run
  std::size_t turn = 16;      // tokens of one turn
  std::string suspend_to;

  bool serve = false;  // requests from standard input: serve.h
  std::string dir;     // of hmmd; empty: $HMM_DIR, else /run/hmm
  std::string device;
  StatsKind stats = StatsKind::kText;
};

// Writes help to standard output, what is wrong to standard error.
// nullopt: nothing to run, exit with `exit_code` (help: 0, wrong usage: 2).
std::optional<Args> ParseArgs(int argc, char** argv, int* exit_code);

}  // namespace llm
