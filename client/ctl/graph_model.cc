// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/graph_model.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "graph/file_error.h"

namespace hmm::ctl {
namespace {

absl::Status Unknown(absl::string_view what, const std::string& given,
                     const std::vector<std::string_view>& known) {
  return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
               absl::StrCat(what, " '", given, "' is not known", graph::Suggestion(given, known)));
}

void Set(const std::optional<std::uint64_t>& given, std::uint64_t& value) {
  if (given) value = *given;
}

absl::Status SetStep(const ModelArgs& args, graph::StepShape& step) {
  if (!args.phase.empty()) {
    const std::optional<graph::Phase> phase = graph::PhaseOf(args.phase);
    if (!phase) return Unknown("phase", args.phase, {"prefill", "decode", "train"});
    step.phase = *phase;
  }
  const bool decode = step.phase == graph::Phase::kDecode;
  step.tokens = args.tokens.value_or(decode ? 1 : kDefaultTokens);
  step.context = args.context.value_or(decode ? kDefaultContext : 0);
  Set(args.batch, step.batch);
  for (std::uint64_t* bytes :
       {&step.weight_dtype_bytes, &step.activation_dtype_bytes, &step.kv_dtype_bytes}) {
    Set(args.dtype_bytes, *bytes);
  }
  return absl::OkStatus();
}

absl::Status SetOfWord(absl::string_view part, bool first, ModelArgs& args) {
  const std::size_t equals = part.find('=');
  if (equals == part.npos && first && !part.empty()) {
    args.phase = std::string(part);
    return absl::OkStatus();
  }
  const std::string name(part.substr(0, equals));
  std::uint64_t value = 0;
  if (equals == part.npos || !absl::SimpleAtoi(part.substr(equals + 1), &value)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 absl::StrCat("'", part, "' is not NAME=NUMBER; write for example ",
                              "llama-8b:decode,context=8192,batch=4"));
  }
  const std::vector<std::string_view> known = {"tokens", "context", "batch"};
  if (name == "tokens") {
    args.tokens = value;
  } else if (name == "context") {
    args.context = value;
  } else if (name == "batch") {
    args.batch = value;
  } else {
    return Unknown("setting", name, known);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSpec> MakeModelSpec(const ModelArgs& args) {
  ModelSpec spec;
  if (!args.preset.empty()) {
    const std::optional<graph::ModelPreset> preset = graph::FindModelPreset(args.preset);
    if (!preset) return Unknown("--preset:", args.preset, graph::ModelPresetNames());
    spec.shape = preset->shape;
    spec.step = preset->step;
  } else {
    spec.shape.name = args.moe ? "moe" : "llama";
    spec.shape.vocab = kDefaultVocab;
    Set(args.heads, spec.shape.kv_heads);
  }
  graph::ModelShape& shape = spec.shape;
  Set(args.layers, shape.layers);
  Set(args.hidden, shape.hidden);
  Set(args.heads, shape.heads);
  Set(args.kv_heads, shape.kv_heads);
  Set(args.head_dim, shape.head_dim);
  Set(args.ffn, shape.ffn);
  Set(args.vocab, shape.vocab);
  Set(args.experts, shape.experts);
  Set(args.top_k, shape.top_k);
  Set(args.expert_ffn, shape.expert_ffn);
  Set(args.shared_experts, shape.shared_experts);
  Set(args.dense_layers, shape.dense_layers);
  HMM_RETURN_IF_ERROR(SetStep(args, spec.step));
  HMM_RETURN_IF_ERROR(graph::CheckModel(shape));
  HMM_RETURN_IF_ERROR(graph::CheckStep(spec.step));
  return spec;
}

absl::StatusOr<plan::Graph> GenerateSpec(const ModelArgs& args, const ModelSpec& spec) {
  return args.moe ? graph::GenerateMoe(spec.shape, spec.step)
                  : graph::GenerateLlama(spec.shape, spec.step);
}

std::optional<absl::StatusOr<plan::Graph>> GraphOfWord(std::string_view word) {
  const std::string given(word);
  ModelArgs args;
  args.preset = given.substr(0, given.find(':'));
  const std::optional<graph::ModelPreset> preset = graph::FindModelPreset(args.preset);
  if (!preset) return std::nullopt;
  args.moe = preset->shape.experts > 0;
  if (args.preset.size() < given.size()) {
    bool first = true;
    for (const absl::string_view part : absl::StrSplit(given.substr(args.preset.size() + 1), ',')) {
      if (const absl::Status set = SetOfWord(part, first, args); !set.ok()) {
        return Annotate(set, given);
      }
      first = false;
    }
  }
  const absl::StatusOr<ModelSpec> spec = MakeModelSpec(args);
  if (!spec.ok()) return Annotate(spec.status(), given);
  return GenerateSpec(args, *spec);
}

}  // namespace hmm::ctl
