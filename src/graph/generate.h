// SPDX-License-Identifier: Apache-2.0
//
// Graphs of transformer models at true sizes, made from a few numbers: one step of prefill, decode
// or training, on one device. Pure.
//
//   inference, a layer   norm -> qkv -> rope -> append (writes kv.new) -> attention (reads kv.past
//                        and kv.new) -> out -> add -> norm -> FFN or experts -> add
//   train, a step        forward as above, every result that the way back needs kept; loss;
//   backward
//                        in reverse, each matrix product at twice its FLOPs; then Adam, layer by
//                        layer, over gradients and states
//
// What is where: weights are persistent. The cache of earlier tokens (kv.past) is persistent and
// only read; that of this step's tokens (kv.new) is made by the step and is an output. Gradients
// live from the backward pass to Adam. Experts of a layer are one data-dependent group, of which at
// most batch x tokens x top_k distinct members are read; in training Adam reads each expert
// besides.
//
// Not modelled: tensor or expert parallelism (shape the model as one device sees it), dropout,
// communication, MTP heads; attention keeps no score matrix (as FlashAttention). A lookup in the
// embedding counts as reading the whole table, as a read of a storage does everywhere here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/graph.h"

namespace hmm::graph {

// What a model is.
struct ModelShape {
  std::string name;
  std::uint64_t layers = 0;    // 1 .. 10,000
  std::uint64_t hidden = 0;    // width of the residual stream
  std::uint64_t heads = 0;     // of queries
  std::uint64_t kv_heads = 0;  // divides heads
  std::uint64_t head_dim = 0;  // 0: hidden / heads
  std::uint64_t ffn = 0;       // inner width of a dense FFN (SwiGLU: three matrices)
  std::uint64_t vocab = 0;
  bool tied_embedding = false;  // the output head is the embedding

  // Mixture of experts; 0 experts: none.
  std::uint64_t experts = 0;         // a layer's, routed
  std::uint64_t top_k = 0;           // of them, for a token
  std::uint64_t expert_ffn = 0;      // inner width of one; 0: ffn
  std::uint64_t shared_experts = 0;  // that every token passes, each of expert_ffn
  std::uint64_t dense_layers = 0;    // the first layers, which have a dense FFN instead

  // Multi-head latent attention (DeepSeek); kv_rank 0: grouped-query attention.
  std::uint64_t q_rank = 0;
  std::uint64_t kv_rank = 0;
  std::uint64_t nope_dim = 0;  // of a head's query and key, without position
  std::uint64_t rope_dim = 0;  // of a head's query, and of the one key with position
  std::uint64_t v_dim = 0;     // of a head's value
};

enum class Phase : std::uint8_t { kPrefill, kDecode, kTrain };
std::string_view PhaseName(Phase phase);  // "prefill", "decode", "train"
std::optional<Phase> PhaseOf(std::string_view name);

// What one step does.
struct StepShape {
  Phase phase = Phase::kPrefill;
  std::uint64_t batch = 1;    // sequences
  std::uint64_t tokens = 1;   // new ones of each sequence
  std::uint64_t context = 0;  // earlier ones of each sequence, in the cache; training: 0
  std::uint64_t weight_dtype_bytes = 2;
  std::uint64_t activation_dtype_bytes = 2;
  std::uint64_t kv_dtype_bytes = 2;
};

struct ParameterCount {
  std::uint64_t total = 0;
  std::uint64_t active = 0;  // that one token passes: top_k experts a layer, and no embedding
};
// REQUIRES: CheckModel(shape).ok().
ParameterCount CountParameters(const ModelShape& shape);

// INVALID_ARGUMENT/BAD_ARGUMENT naming the field that is out of its range or contradicts another.
absl::Status CheckModel(const ModelShape& shape);
absl::Status CheckStep(const StepShape& step);

// A dense model (experts: 0) and a mixture of experts. INVALID_ARGUMENT/BAD_ARGUMENT as CheckModel
// and CheckStep, for the other sort of model, or if sizes or counts exceed what a graph may have.
absl::StatusOr<plan::Graph> GenerateLlama(const ModelShape& shape, const StepShape& step);
absl::StatusOr<plan::Graph> GenerateMoe(const ModelShape& shape, const StepShape& step);
// Either, by shape.experts.
absl::StatusOr<plan::Graph> GenerateModel(const ModelShape& shape, const StepShape& step);

struct ModelPreset {
  ModelShape shape;
  StepShape step;  // its dtypes, and a prefill of 8,192 tokens
};
// "llama-8b", "deepseek-v3"; nullopt for another name.
std::optional<ModelPreset> FindModelPreset(std::string_view name);
const std::vector<std::string_view>& ModelPresetNames();

}  // namespace hmm::graph
