// SPDX-License-Identifier: Apache-2.0
//
// Models told in a few numbers, on the command line (`hmmctl graph llama --layers 32 ...`) or in
// one word where a graph is expected:
//
//   llama-8b                                     a preset's prefill of 8,192 tokens
//   llama-8b:decode,context=32768,batch=4        its decode: one token a sequence by default
//
// One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "graph/generate.h"
#include "plan/graph.h"

namespace hmm::ctl {

// What is not given comes from the preset, or is a default.
struct ModelArgs {
  bool moe = false;  // which of the two verbs
  std::string preset;
  std::string phase;
  std::optional<std::uint64_t> layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
  std::optional<std::uint64_t> experts, top_k, expert_ffn, shared_experts, dense_layers;
  std::optional<std::uint64_t> tokens, context, batch;
  std::optional<std::uint64_t> dtype_bytes;  // of weights, activations and KV
};

// Defaults where no preset says otherwise.
inline constexpr std::uint64_t kDefaultTokens = 8192;   // prefill and training; decode has 1
inline constexpr std::uint64_t kDefaultContext = 8192;  // decode; the others have 0
inline constexpr std::uint64_t kDefaultVocab = 128256;

struct ModelSpec {
  graph::ModelShape shape;
  graph::StepShape step;
};
// INVALID_ARGUMENT/BAD_ARGUMENT or NOT_FOUND for an unknown preset or phase, with the nearest
// known.
absl::StatusOr<ModelSpec> MakeModelSpec(const ModelArgs& args);
absl::StatusOr<plan::Graph> GenerateSpec(const ModelArgs& args, const ModelSpec& spec);

// nullopt: `word` does not begin with a preset's name. Errors name the part that is wrong.
std::optional<absl::StatusOr<plan::Graph>> GraphOfWord(std::string_view word);

}  // namespace hmm::ctl
