// SPDX-License-Identifier: Apache-2.0
#include "graph/generate.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/status.h"
#include "graph/graph_proto.h"
#include "plan/lifetimes.h"
#include "plan/machine.h"
#include "plan/planner.h"
#include "plan/roofline.h"
#include "support/catch.h"
#include "unit/graph/same.h"

namespace hmm::graph {
namespace {

using Catch::Contains;

struct Sums {
  Bytes weights = 0, states = 0, gradients = 0, past = 0, made = 0;
  double flops = 0;
  std::size_t ops = 0;
};

Sums SumsOf(const plan::Graph& graph) {
  Sums sums;
  for (const plan::Storage& s : graph.storages) {
    if (s.kind == TensorKind::kWeight) sums.weights += s.bytes;
    if (s.kind == TensorKind::kOptimizerState) sums.states += s.bytes;
    if (s.kind == TensorKind::kOther) sums.gradients += s.bytes;
    if (s.kind == TensorKind::kKvCache) (s.persistent ? sums.past : sums.made) += s.bytes;
  }
  for (const plan::Op& op : graph.ops) sums.flops += op.flops;
  sums.ops = graph.ops.size();
  return sums;
}

ModelPreset Preset(std::string_view name) {
  const auto preset = FindModelPreset(name);
  REQUIRE(preset.has_value());
  return *preset;
}

plan::Graph Generate(const ModelShape& shape, const StepShape& step) {
  const auto graph = GenerateModel(shape, step);
  if (!graph.ok()) FAIL(graph.status());
  return *graph;
}

StepShape With(StepShape step, Phase phase, std::uint64_t tokens, std::uint64_t context) {
  step.phase = phase;
  step.tokens = tokens;
  step.context = context;
  return step;
}

ModelShape Small(bool moe, bool latent) {
  ModelShape s;
  s.name = "small";
  s.layers = 3;
  s.hidden = 64;
  s.heads = 4;
  s.kv_heads = 2;
  s.ffn = 96;
  s.vocab = 100;
  if (moe) {
    s.experts = 8;
    s.top_k = 2;
    s.expert_ffn = 32;
    s.shared_experts = 1;
    s.dense_layers = 1;
  }
  if (latent) {
    s.kv_heads = 0;
    s.q_rank = 24;
    s.kv_rank = 16;
    s.nope_dim = 8;
    s.rope_dim = 4;
    s.v_dim = 8;
  }
  return s;
}

TEST_CASE("parameters of the presets") {
  // The number of elements in the published checkpoint's tensors, exactly.
  CHECK(CountParameters(Preset("llama-8b").shape).total == 8'030'261'248);
  // The report gives 671e9 and 37e9, and the weights' own notes 36.6e9 active with the output head:
  // three digits, so 0.1%. Left out: the bias of the router (256 a layer) and the MTP module.
  const ParameterCount deepseek = CountParameters(Preset("deepseek-v3").shape);
  CHECK(static_cast<double>(deepseek.total) == Approx(671e9).epsilon(0.001));
  CHECK(static_cast<double>(deepseek.active) == Approx(36.6e9).epsilon(0.002));
  CHECK_FALSE(FindModelPreset("llama-9b").has_value());
  for (const std::string_view name : ModelPresetNames()) CHECK(Preset(name).shape.name == name);
}

TEST_CASE("a graph holds each parameter once, in every phase and kind of model") {
  for (const bool moe : {false, true}) {
    for (const bool latent : {false, true}) {
      for (const bool tied : {false, true}) {
        ModelShape shape = Small(moe, latent);
        shape.tied_embedding = tied;
        const std::uint64_t parameters = CountParameters(shape).total;
        for (const Phase phase : {Phase::kPrefill, Phase::kDecode, Phase::kTrain}) {
          INFO(moe << latent << tied << PhaseName(phase));
          StepShape step =
              With({}, phase, phase == Phase::kDecode ? 1 : 16, phase == Phase::kDecode ? 32 : 0);
          step.batch = 2;
          const plan::Graph graph = Generate(shape, step);
          const Sums sums = SumsOf(graph);
          CHECK(sums.weights == 2 * parameters);
          const bool train = phase == Phase::kTrain;
          CHECK(sums.gradients == (train ? 2 * parameters : 0));
          CHECK(sums.states == (train ? 12 * parameters : 0));
          // Names are unique and all else is in range: a file of it can be read.
          const auto back = ParseGraphBinary(FormatGraphBinary(graph).value(), "g.pb");
          REQUIRE(back.ok());
          CHECK(hmm::testing::Same(graph, *back));
          for (const plan::Op& op : graph.ops) CHECK(op.flops > 0);
        }
      }
    }
  }
}

TEST_CASE("nothing is made that nobody reads") {
  for (const bool moe : {false, true}) {
    for (const bool latent : {false, true}) {
      for (const Phase phase : {Phase::kPrefill, Phase::kDecode, Phase::kTrain}) {
        INFO(moe << latent << PhaseName(phase));
        const plan::Graph graph =
            Generate(Small(moe, latent), With({}, phase, 4, phase == Phase::kDecode ? 8 : 0));
        std::vector<bool> read(graph.storages.size(), false);
        for (const plan::Op& op : graph.ops) {
          for (const plan::StorageIndex s : op.reads) read[s] = true;
          if (op.group.has_value()) {
            for (const plan::StorageIndex s : graph.groups[*op.group].members) read[s] = true;
          }
        }
        for (std::size_t s = 0; s < read.size(); ++s) {
          INFO(graph.storages[s].name);
          CHECK((read[s] || graph.storages[s].output));
        }
      }
    }
  }
}

TEST_CASE("llama-8b: prefill of 8,192 tokens") {
  const ModelPreset preset = Preset("llama-8b");
  plan::Graph graph = Generate(preset.shape, preset.step);
  const Sums sums = SumsOf(graph);
  CHECK(sums.weights == 2 * 8'030'261'248);
  CHECK(sums.past == 0);
  CHECK(sums.made == Bytes{8192} * 32 * 2 * 8 * 128 * 2);  // 128 KiB a token
  // Two FLOPs a parameter and token (the head runs for one token, the embedding multiplies nothing)
  // and causal attention; norms, RoPE and activations are the rest.
  const double matrices = 2.0 * 8192 * (8'030'261'248.0 - 2.0 * 128256 * 4096);
  const double attention = 32.0 * 32 * 4 * 128 * 8192 * 8193 / 2;
  CHECK(sums.flops > matrices + attention);
  CHECK(sums.flops < 1.005 * (matrices + attention));
  plan::FillDurations(graph, *plan::MachinePreset("ascend-supernode"));
  plan::Plan totals;
  plan::FillGraphTotals(graph, totals);
  // Weights, the whole cache and a few activations of 64 MiB to 448 MiB.
  CHECK(totals.unplanned_peak_bytes > sums.weights + sums.made);
  CHECK(totals.unplanned_peak_bytes < sums.weights + sums.made + Bytes{1} * kGiB + 512 * kMiB);
  double us = 0;
  for (const plan::Op& op : graph.ops) us += op.microseconds;
  CHECK(us > sums.flops / 140e6);
  CHECK(us < 1.1 * sums.flops / 140e6);  // prefill is bound by compute
}

TEST_CASE("llama-8b: decode is bound by what it reads") {
  const ModelPreset preset = Preset("llama-8b");
  plan::Graph graph = Generate(preset.shape, With(preset.step, Phase::kDecode, 1, 8192));
  const Sums sums = SumsOf(graph);
  CHECK(sums.past == Bytes{8192} * 128 * kKiB);
  CHECK(sums.made == 128 * kKiB);
  plan::Machine machine = *plan::MachinePreset("h100");
  machine.launch_us = 0;
  plan::FillDurations(graph, machine);
  double us = 0;
  for (const plan::Op& op : graph.ops) us += op.microseconds;
  const double read = static_cast<double>(sums.weights + sums.past) / machine.hbm_bytes_per_us;
  CHECK(us > read);
  CHECK(us < 1.01 * read);
  for (const plan::Storage& s : graph.storages) {
    if (s.kind == TensorKind::kKvCache) CHECK(s.persistent != s.output);
  }
}

TEST_CASE("training: three times the FLOPs, sixteen bytes a parameter") {
  const ModelPreset preset = Preset("llama-8b");
  const StepShape step = With(preset.step, Phase::kTrain, 4096, 0);
  const plan::Graph graph = Generate(preset.shape, step);
  const Sums sums = SumsOf(graph);
  CHECK(sums.weights + sums.gradients + sums.states == Bytes{16} * 8'030'261'248);
  // Kaplan et al., arXiv 2001.08361: 6 FLOPs a parameter and token, and attention; its way back
  // takes 2.5 times the way there.
  const double matrices = 6.0 * 4096 * (8'030'261'248.0 - 1.0 * 128256 * 4096);
  const double attention = 3.5 * 32.0 * 32 * 4 * 128 * 4096 * 4097 / 2;
  CHECK(sums.flops > matrices + attention);
  CHECK(sums.flops < 1.01 * (matrices + attention));
  // Adam comes after the whole way back.
  const auto adam = [](const plan::Op& op) { return op.type == "Adam"; };
  const auto first = std::find_if(graph.ops.begin(), graph.ops.end(), adam);
  REQUIRE(first != graph.ops.end());
  CHECK(std::all_of(first, graph.ops.end(), adam));
  CHECK(first->after ==
        std::vector<plan::OpIndex>{static_cast<plan::OpIndex>(first - graph.ops.begin()) - 1});
  // What the way back reads was kept: the input of a layer lives till its own backward op.
  const auto named = [&graph](std::string_view name) {
    const auto it = std::find_if(graph.ops.begin(), graph.ops.end(),
                                 [name](const plan::Op& op) { return op.name == name; });
    REQUIRE(it != graph.ops.end());
    return *it;
  };
  const plan::Op there = named("layers.5.ffn.act.op"), back = named("layers.5.ffn.act.op.bwd");
  CHECK(
      std::includes(back.reads.begin(), back.reads.end(), there.reads.begin(), there.reads.end()));
  // The residual stream's gradient is one storage, added to in place by both norms of a layer.
  const plan::Op a = named("layers.5.ffn.norm.op.bwd"), b = named("layers.5.attn.norm.op.bwd");
  std::vector<plan::StorageIndex> both;
  std::set_intersection(a.writes.begin(), a.writes.end(), b.writes.begin(), b.writes.end(),
                        std::back_inserter(both));
  CHECK(both.size() == 1);
}

TEST_CASE("experts are data-dependent groups") {
  const ModelPreset preset = Preset("deepseek-v3");
  const plan::Graph decode = Generate(preset.shape, With(preset.step, Phase::kDecode, 1, 4096));
  REQUIRE(decode.groups.size() == 58);
  for (const plan::DataDependentGroup& group : decode.groups) {
    CHECK(group.members.size() == 256);
    CHECK(group.k == 8);
    CHECK(decode.storages[group.members[0]].bytes == Bytes{3} * 7168 * 2048);
  }
  CHECK(SumsOf(decode).past == Bytes{4096} * 61 * 576 * 2);
  const std::vector<bool> offloadable = plan::OffloadableGroups(decode);
  CHECK(std::all_of(offloadable.begin(), offloadable.end(), [](bool b) { return b; }));
  StepShape batch = With(preset.step, Phase::kDecode, 1, 4096);
  batch.batch = 64;
  for (const plan::DataDependentGroup& group : Generate(preset.shape, batch).groups) {
    CHECK(group.k == 256);  // 64 x 8 choices can hit every one
  }
  const Sums sums = SumsOf(decode);
  const double matrices = 2.0 * static_cast<double>(CountParameters(preset.shape).active);
  CHECK(sums.flops > matrices);
  // In decoding, latent attention over 4,096 tokens adds 2 x 128 heads x (576 + 512) a token,
  // layer.
  const double attention = 61.0 * 2 * 128 * (576 + 512) * 4097;
  CHECK(sums.flops < 1.01 * (matrices + attention));
}

TEST_CASE("deepseek-v3 in training, and a trillion parameters") {
  const ModelPreset preset = Preset("deepseek-v3");
  const plan::Graph train = Generate(preset.shape, With(preset.step, Phase::kTrain, 4096, 0));
  const Sums sums = SumsOf(train);
  CHECK(sums.states == Bytes{12} * CountParameters(preset.shape).total);
  CHECK(train.groups.size() == 58);

  ModelShape dense = Preset("llama-8b").shape;
  dense.name = "dense-1t";
  dense.layers = 128;
  dense.hidden = 25'600;
  dense.heads = 160;
  dense.kv_heads = 16;
  dense.ffn = 83'000;
  const auto total = static_cast<double>(CountParameters(dense).total);
  CHECK(total == Approx(1e12).epsilon(0.1));
  StepShape step;
  step.phase = Phase::kTrain;
  step.tokens = 4096;
  CHECK(static_cast<double>(SumsOf(Generate(dense, step)).states) == 12 * total);
}

TEST_CASE("what no model or step may be is said by field") {
  struct Row {
    std::function<void(ModelShape&, StepShape&)> change;
    const char* says;
  };
  const Row rows[] = {
      {[](auto& m, auto&) { m.layers = 0; }, "layers: 0 is not from 1"},
      {[](auto& m, auto&) { m.layers = 10'001; }, "layers: 10001"},
      {[](auto& m, auto&) { m.hidden = 0; }, "hidden: 0"},
      {[](auto& m, auto&) { m.heads = 0; }, "heads: 0"},
      {[](auto& m, auto&) {
         m.heads = 7;
         m.kv_heads = 1;
       },
       "heads: 7 does not divide hidden"},
      {[](auto& m, auto&) { m.kv_heads = 0; }, "kv_heads: 0"},
      {[](auto& m, auto&) { m.kv_heads = 3; }, "kv_heads: 3 does not divide heads, 4"},
      {[](auto& m, auto&) { m.kv_heads = 8; }, "kv_heads: 8 is not from 1 to 4"},
      {[](auto& m, auto&) { m.ffn = 0; }, "ffn: 0"},
      {[](auto& m, auto&) { m.ffn = ~std::uint64_t{0}; }, "ffn: 18446744073709551615"},
      {[](auto& m, auto&) { m.vocab = 0; }, "vocab: 0"},
      {[](auto& m, auto&) { m.top_k = 9; }, "top_k: 9 is not from 1 to 8"},
      {[](auto& m, auto&) { m.top_k = 0; }, "top_k: 0"},
      {[](auto& m, auto&) { m.experts = 0; }, "need experts"},
      {[](auto& m, auto&) { m.dense_layers = 4; }, "dense_layers: 4 is not from 0 to 3"},
      {[](auto& m, auto&) {
         m.experts = m.top_k = 65'536;
         m.layers = 10'000;
       },
       "experts: 65536"},
      {[](auto& m, auto&) {
         m.experts = 65'536;
         m.layers = 10'000;
         m.hidden = m.expert_ffn = 1 << 20;
         m.heads = 64;
       },
       "1e17 parameters"},
      {[](auto& m, auto&) { m.kv_rank = 4; }, "q_rank: 0"},
      {[](auto&, auto& t) { t.batch = 0; }, "batch: 0"},
      {[](auto&, auto& t) { t.tokens = 0; }, "tokens: 0"},
      {[](auto&, auto& t) { t.tokens = ~std::uint64_t{0}; }, "tokens: 18446744073709551615"},
      {[](auto&, auto& t) { t.context = ~std::uint64_t{0}; }, "context: 18446744073709551615"},
      {[](auto&, auto& t) { t.weight_dtype_bytes = 0; }, "weight_dtype_bytes: 0"},
      {[](auto&, auto& t) { t.activation_dtype_bytes = 16; }, "activation_dtype_bytes: 16"},
      {[](auto&, auto& t) { t.kv_dtype_bytes = 0; }, "kv_dtype_bytes: 0"},
      {[](auto&, auto& t) {
         t.phase = Phase::kTrain;
         t.context = 5;
       },
       "training has no earlier"},
      {[](auto&, auto& t) { t.phase = Phase::kDecode; }, "decoding needs the tokens before"},
      {[](auto& m, auto& t) {
         m.vocab = 1 << 24;
         t.phase = Phase::kTrain;
         t.tokens = 1 << 28;
         t.batch = 1 << 20;
       },
       "2^61 bytes"},
  };
  for (const Row& row : rows) {
    ModelShape shape = Small(true, false);
    StepShape step;
    row.change(shape, step);
    INFO(row.says);
    const auto graph = GenerateModel(shape, step);
    REQUIRE_FALSE(graph.ok());
    CHECK(absl::IsInvalidArgument(graph.status()));
    CHECK(ReasonOf(graph.status()) == Reason::kBadArgument);
    CHECK_THAT(std::string(graph.status().message()), Contains(row.says));
  }
  CHECK_FALSE(GenerateLlama(Small(true, false), {}).ok());
  CHECK_FALSE(GenerateMoe(Small(false, false), {}).ok());
  CHECK(GenerateLlama(Small(false, true), {}).ok());
  CHECK(GenerateMoe(Small(true, true), {}).ok());
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode, Phase::kTrain}) {
    CHECK(PhaseOf(PhaseName(phase)) == phase);
  }
  CHECK_FALSE(PhaseOf("infer").has_value());
}

}  // namespace
}  // namespace hmm::graph
