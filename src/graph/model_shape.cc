// SPDX-License-Identifier: Apache-2.0
//
// Models: what is a model, how many parameters it has, and those that everybody knows.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/generate.h"

namespace hmm::graph {
namespace {

absl::Status Bad(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument, what);
}

// Beyond these it is no model of this decade, but a slip of the pen.
constexpr double kParametersMax = 1e17;
constexpr std::uint64_t kLayersMax = 10'000;
constexpr std::uint64_t kWidthMax = 1 << 20;
constexpr std::uint64_t kVocabMax = 1 << 24;
constexpr std::uint64_t kExpertsMax = 1 << 16;
constexpr std::uint64_t kHeadsMax = 1 << 14;
constexpr std::uint64_t kHeadDimMax = 1 << 14;
constexpr std::uint64_t kTokensMax = 1 << 28;
constexpr std::uint64_t kBatchMax = 1 << 20;

absl::Status Within(const char* field, std::uint64_t value, std::uint64_t least,
                    std::uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return Bad(absl::StrCat(field, ": ", value, " is not from ", least, " to ", most));
}

absl::Status CheckAttention(const ModelShape& s) {
  HMM_RETURN_IF_ERROR(Within("heads", s.heads, 1, kHeadsMax));
  if (s.kv_rank > 0) {
    HMM_RETURN_IF_ERROR(Within("q_rank", s.q_rank, 1, kWidthMax));
    HMM_RETURN_IF_ERROR(Within("kv_rank", s.kv_rank, 1, kWidthMax));
    HMM_RETURN_IF_ERROR(Within("nope_dim", s.nope_dim, 1, kHeadDimMax));
    HMM_RETURN_IF_ERROR(Within("rope_dim", s.rope_dim, 1, kHeadDimMax));
    return Within("v_dim", s.v_dim, 1, kHeadDimMax);
  }
  HMM_RETURN_IF_ERROR(Within("kv_heads", s.kv_heads, 1, s.heads));
  if (s.heads % s.kv_heads != 0) {
    return Bad(absl::StrCat("kv_heads: ", s.kv_heads, " does not divide heads, ", s.heads));
  }
  if (s.head_dim == 0 && s.hidden % s.heads != 0) {
    return Bad(
        absl::StrCat("heads: ", s.heads, " does not divide hidden, ", s.hidden, "; give head_dim"));
  }
  return Within("head_dim", s.head_dim == 0 ? s.hidden / s.heads : s.head_dim, 1, kHeadDimMax);
}

absl::Status CheckExperts(const ModelShape& s) {
  HMM_RETURN_IF_ERROR(Within("experts", s.experts, 1, kExpertsMax));
  HMM_RETURN_IF_ERROR(Within("top_k", s.top_k, 1, s.experts));
  HMM_RETURN_IF_ERROR(Within("shared_experts", s.shared_experts, 0, kExpertsMax));
  HMM_RETURN_IF_ERROR(Within("dense_layers", s.dense_layers, 0, s.layers));
  return Within("expert_ffn", s.expert_ffn == 0 ? s.ffn : s.expert_ffn, 1, kWidthMax);
}

// In doubles first, to learn whether whole numbers would overflow.
template <typename Number>
struct Parameters {
  Number total;
  Number active;
};
template <typename Number>
Parameters<Number> Count(const ModelShape& s) {
  const auto n = [](std::uint64_t value) { return static_cast<Number>(value); };
  const Number hidden = n(s.hidden), heads = n(s.heads);
  const Number dim = n(s.head_dim == 0 ? s.hidden / s.heads : s.head_dim);
  const Number latent =
      hidden * n(s.q_rank) + n(s.q_rank) + n(s.q_rank) * heads * n(s.nope_dim + s.rope_dim) +
      hidden * n(s.kv_rank + s.rope_dim) + n(s.kv_rank) +
      n(s.kv_rank) * heads * n(s.nope_dim + s.v_dim) + heads * n(s.v_dim) * hidden;
  const Number attention = s.kv_rank > 0 ? latent : hidden * dim * (2 * heads + 2 * n(s.kv_heads));
  const Number expert = 3 * hidden * n(s.expert_ffn == 0 ? s.ffn : s.expert_ffn);
  const Number moe_layers = n(s.experts == 0 ? 0 : s.layers - s.dense_layers);
  const Number table = n(s.vocab) * hidden;
  const Number common = n(s.layers) * (attention + 2 * hidden) +
                        (n(s.layers) - moe_layers) * 3 * hidden * n(s.ffn) +
                        moe_layers * (hidden * n(s.experts) + n(s.shared_experts) * expert) +
                        hidden + table;  // final norm, head
  return {common + moe_layers * n(s.experts) * expert + (s.tied_embedding ? n(0) : table),
          common + moe_layers * n(s.top_k) * expert};
}

// Llama 3.1 8B. All numbers: the config.json of meta-llama/Llama-3.1-8B (num_hidden_layers,
// hidden_size, num_attention_heads, num_key_value_heads, intermediate_size, vocab_size,
// tie_word_embeddings), the same as table 3 of "The Llama 3 Herd of Models", arXiv 2407.21783.
ModelPreset Llama8b() {
  ModelPreset preset;
  ModelShape& s = preset.shape;
  s.name = "llama-8b";
  s.layers = 32;     // num_hidden_layers
  s.hidden = 4096;   // hidden_size
  s.heads = 32;      // num_attention_heads
  s.kv_heads = 8;    // num_key_value_heads
  s.ffn = 14336;     // intermediate_size
  s.vocab = 128256;  // vocab_size
  preset.step.tokens = 8192;
  return preset;
}

// DeepSeek-V3. All numbers: section 4.2 ("Hyper-Parameters") of the "DeepSeek-V3 Technical Report",
// arXiv 2412.19437, and the config.json of deepseek-ai/DeepSeek-V3, whose keys stand beside them.
ModelPreset DeepSeekV3() {
  ModelPreset preset;
  ModelShape& s = preset.shape;
  s.name = "deepseek-v3";
  s.layers = 61;         // num_hidden_layers; the MTP module, a 62nd, is left out
  s.hidden = 7168;       // hidden_size
  s.heads = 128;         // num_attention_heads
  s.ffn = 18432;         // intermediate_size
  s.vocab = 129280;      // vocab_size
  s.experts = 256;       // n_routed_experts
  s.top_k = 8;           // num_experts_per_tok
  s.expert_ffn = 2048;   // moe_intermediate_size
  s.shared_experts = 1;  // n_shared_experts
  s.dense_layers = 3;    // first_k_dense_replace
  s.q_rank = 1536;       // q_lora_rank
  s.kv_rank = 512;       // kv_lora_rank
  s.nope_dim = 128;      // qk_nope_head_dim
  s.rope_dim = 64;       // qk_rope_head_dim
  s.v_dim = 128;         // v_head_dim
  preset.step.tokens = 8192;
  preset.step.weight_dtype_bytes = 1;  // quantization_config: fp8
  return preset;
}

}  // namespace

std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kPrefill:
      return "prefill";
    case Phase::kDecode:
      return "decode";
    case Phase::kTrain:
      return "train";
  }
  return "unknown";
}

std::optional<Phase> PhaseOf(std::string_view name) {
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode, Phase::kTrain}) {
    if (name == PhaseName(phase)) return phase;
  }
  return std::nullopt;
}

absl::Status CheckModel(const ModelShape& s) {
  HMM_RETURN_IF_ERROR(Within("layers", s.layers, 1, kLayersMax));
  HMM_RETURN_IF_ERROR(Within("hidden", s.hidden, 1, kWidthMax));
  HMM_RETURN_IF_ERROR(Within("vocab", s.vocab, 1, kVocabMax));
  HMM_RETURN_IF_ERROR(CheckAttention(s));
  const bool all_experts = s.experts > 0 && s.dense_layers == 0 && s.expert_ffn > 0;
  HMM_RETURN_IF_ERROR(Within("ffn", s.ffn, all_experts ? 0 : 1, kWidthMax));
  if (s.experts > 0) {
    HMM_RETURN_IF_ERROR(CheckExperts(s));
  } else if (s.top_k > 0 || s.shared_experts > 0 || s.dense_layers > 0 || s.expert_ffn > 0) {
    return Bad("top_k, expert_ffn, shared_experts and dense_layers need experts");
  }
  if (Count<double>(s).total <= kParametersMax) return absl::OkStatus();
  return Bad("layers, widths and experts together: more than 1e17 parameters");
}

absl::Status CheckStep(const StepShape& step) {
  HMM_RETURN_IF_ERROR(Within("batch", step.batch, 1, kBatchMax));
  HMM_RETURN_IF_ERROR(Within("tokens", step.tokens, 1, kTokensMax));
  HMM_RETURN_IF_ERROR(Within("context", step.context, 0, kTokensMax));
  HMM_RETURN_IF_ERROR(Within("weight_dtype_bytes", step.weight_dtype_bytes, 1, 8));
  HMM_RETURN_IF_ERROR(Within("activation_dtype_bytes", step.activation_dtype_bytes, 1, 8));
  HMM_RETURN_IF_ERROR(Within("kv_dtype_bytes", step.kv_dtype_bytes, 1, 8));
  if (step.phase == Phase::kTrain && step.context != 0) {
    return Bad("context: training has no earlier tokens; give 0");
  }
  if (step.phase == Phase::kDecode && step.context == 0) {
    return Bad("context: decoding needs the tokens before; give at least 1");
  }
  return absl::OkStatus();
}

ParameterCount CountParameters(const ModelShape& shape) {
  const Parameters<std::uint64_t> count = Count<std::uint64_t>(shape);
  return {count.total, count.active};
}

std::optional<ModelPreset> FindModelPreset(std::string_view name) {
  if (name == "llama-8b") return Llama8b();
  if (name == "deepseek-v3") return DeepSeekV3();
  return std::nullopt;
}

const std::vector<std::string_view>& ModelPresetNames() {
  static const std::vector<std::string_view> kNames = {"llama-8b", "deepseek-v3"};
  return kNames;
}

}  // namespace hmm::graph
