// SPDX-License-Identifier: Apache-2.0
//
// Real models. What is expected of each was computed beside the importer (sums over the file's
// tensors, an independent script for the plain accounting) or is stated in the data's README.
#include <algorithm>
#include <string>

#include "graph/onnx_dims.h"
#include "onnx_model_builder.h"
#include "plan/lifetimes.h"
#include "plan/planner.h"

namespace hmm {
namespace {

using graph::OnnxOptions;

std::string File(const std::string& name) {
  return std::string(HMM_GRAPH_DATA) + "/onnx/" + name + ".onnx";
}

plan::Graph ImportFile(const std::string& name, const OnnxOptions& options) {
  INFO(name);
  absl::StatusOr<plan::Graph> imported = graph::ImportOnnx(File(name), options);
  INFO(imported.status().ToString());
  REQUIRE(imported.ok());
  REQUIRE(plan::CheckGraph(*imported).ok());
  return *std::move(imported);
}

OnnxOptions Bloom() {
  OnnxOptions options;
  options.dims = {{"inputs_input_ids_dim0", 2},
                  {"inputs_attention_mask_dim0", 2},
                  {"inputs_labels_dim0", 2},
                  {"inputs_attention_mask_dim1", 1024},
                  {"inputs_labels_dim1", 1024}};
  return options;
}

struct Expected {
  const char* name;
  graph::DimBindings dims;
  std::size_t ops;
  Bytes weight_bytes;  // initializers, constants, constants-of-shape, parameters
  Bytes kv_bytes;      // past and present; what is updated in place once
};

Bytes SumOf(const plan::Graph& graph, TensorKind kind) {
  Bytes sum = 0;
  for (const plan::Storage& storage : graph.storages) {
    if (storage.kind == kind) sum += storage.bytes;
  }
  return sum;
}

}  // namespace

TEST_CASE("every provided model imports, with every size known") {
  const Expected expected = GENERATE(
      Expected{"light_resnet50", {}, 415, 102443820, 0},
      Expected{"light_densenet121", {}, 1746, 32594200, 0},
      // 2 (key, value) x batch x 2 heads x (past + (past + new)) x 4 x 4 bytes
      Expected{"gpt2_megatron",
               {{"batch_size", 2}, {"seq_len", 16}, {"past_seq_len", 32}},
               161,
               6492,
               2 * 2 * 2 * (32 + 48) * 4 * 4},
      // 12 layers x 2 x batch x 2 heads x (7 + 8) x 2 x 4 bytes; the model's context is 8
      Expected{"gpt2_past_12layer",
               {{"batch_size", 2}, {"seq_len", 7}},
               3069,
               22652,
               12 * 2 * 2 * 2 * (7 + 8) * 2 * 4},
      // key and value, 128 x 4 x 4 bytes each, updated in place
      Expected{"paged_decoder",
               {{"num_tokens", 8}, {"batch_plus_1", 3}, {"batch", 2}, {"max_blocks", 4}},
               52,
               616,
               2 * 128 * 4 * 4},
      Expected{"tiny_gpt2_beamsearch_fp16",
               {{"batch_size", 2},
                {"sequence_length", 16},
                {"num_return_sequences", 1},
                {"max_length", 32},
                {"seq_len", 1},
                {"past_seq_len", 31},
                {"total_seq_len", 32}},
               1,
               284480,
               0},
      // 5 layers x 2 x batch x 4 heads x (15 + 16) x 8 x 4 bytes
      Expected{"tiny_random_gpt2_past",
               {{"batch_size", 2}, {"seq_len", 1}, {"past_seq_len", 15}, {"total_seq_len", 16}},
               39,
               568448,
               5 * 2 * 2 * 4 * (15 + 16) * 8 * 4},
      Expected{"bloom_3layer_training", Bloom().dims, 500, 589388903, 0});
  OnnxOptions options;
  std::vector<std::string> notes;
  options.dims = expected.dims;
  options.notes = &notes;
  const plan::Graph imported = ImportFile(expected.name, options);
  INFO(expected.name);
  CHECK(imported.ops.size() == expected.ops);
  CHECK(imported.unknown.empty());
  CHECK(notes.empty());
  CHECK(SumOf(imported, TensorKind::kWeight) == expected.weight_bytes);
  CHECK(SumOf(imported, TensorKind::kKvCache) == expected.kv_bytes);
}

TEST_CASE("the plain accounting of the training step is that of the published numbers, exactly") {
  OnnxOptions options = Bloom();
  options.plain = true;
  const plan::Graph plain = ImportFile("bloom_3layer_training", options);
  CHECK(plain.ops.size() == 500);
  CHECK(plain.unknown.size() == 80);
  plan::Plan totals;
  plan::FillGraphTotals(plain, totals);
  CHECK(totals.unplanned_peak_bytes == 3'917'574'130);
  CHECK(totals.unplanned_peak_op == 261);
  CHECK(plain.ops[261].type == "SoftmaxCrossEntropyLossInternal");
  CHECK(totals.floor_bytes == 2'053'218'290);
  CHECK(totals.floor_op == 261);

  // Inputs and weights are in the real accounting only; the file's constants are not in the number.
  const plan::Graph real = ImportFile("bloom_3layer_training", Bloom());
  Bytes inputs = 0;
  for (const plan::Storage& storage : real.storages) {
    const bool parameter = storage.name.find("_original_module._original_model.") == 0;
    if (storage.input || (storage.kind == TensorKind::kWeight && parameter)) {
      inputs += storage.bytes;
    }
  }
  CHECK(inputs == 589'436'928);
}

TEST_CASE("the real accounting of the training step knows every size and shares bytes") {
  const plan::Graph real = ImportFile("bloom_3layer_training", Bloom());
  plan::Plan totals;
  plan::FillGraphTotals(real, totals);
  CHECK(totals.unplanned_peak_op == 261);
  // The loss's own tensors, as in the plain accounting, and the 8 bytes of its ignored label.
  CHECK(totals.floor_bytes == 2'053'218'290 + 8);
  // Weights stay; activations, sharing bytes, take less than each output on its own.
  CHECK(totals.unplanned_peak_bytes < Bytes{3'917'574'130} + 589'436'928);
  CHECK(totals.unplanned_peak_bytes > totals.floor_bytes + 589'388'903);
  const plan::Storage* parameter =
      testing::FindStorage(real, "_original_module._original_model.transformer.ln_f.weight");
  REQUIRE(parameter != nullptr);
  CHECK(parameter->persistent);
  CHECK(parameter->bytes == 2048);
}

TEST_CASE("the decoder inside a search is its workspace, its weights are read") {
  OnnxOptions options;
  options.dims = {{"batch_size", 2},    {"sequence_length", 16}, {"num_return_sequences", 1},
                  {"max_length", 32},   {"seq_len", 1},          {"past_seq_len", 31},
                  {"total_seq_len", 32}};
  const plan::Graph search = ImportFile("tiny_gpt2_beamsearch_fp16", options);
  REQUIRE(search.ops.size() == 1);
  // Past (fp16) of five layers at least: 2 x 2 x 4 x 31 x 8 x 2 bytes each.
  CHECK(search.ops[0].workspace > 5 * 2 * 2 * 4 * 31 * 8 * 2);
  Bytes read = 0;
  for (const plan::StorageIndex s : search.ops[0].reads) {
    if (search.storages[s].kind == TensorKind::kWeight) read += search.storages[s].bytes;
  }
  CHECK(read == 284480);
  options.dims.erase("past_seq_len");
  const auto unbound = graph::ImportOnnx(File("tiny_gpt2_beamsearch_fp16"), options);
  REQUIRE_FALSE(unbound.ok());
  CHECK(unbound.status().message().find("--dim past_seq_len=N") != absl::string_view::npos);
}

TEST_CASE("work is what is known of the models") {
  const auto flops = [](const plan::Graph& imported) {
    double sum = 0;
    for (const plan::Op& op : imported.ops) sum += op.flops;
    return sum;
  };
  // 4.1 and 2.8 billion multiply-adds, as published for these networks.
  CHECK(flops(ImportFile("light_resnet50", {})) == Approx(2 * 4.09e9).epsilon(0.01));
  CHECK(flops(ImportFile("light_densenet121", {})) == Approx(2 * 2.83e9).epsilon(0.01));
}

TEST_CASE("a cache whose shape does not change is one storage, written in place") {
  OnnxOptions options;
  options.dims = {{"num_tokens", 8}, {"batch_plus_1", 3}, {"batch", 2}, {"max_blocks", 4}};
  const plan::Graph paged = ImportFile("paged_decoder", options);
  const plan::StorageIndex past = testing::IndexOfStorage(paged, "past_key_values.0.key");
  CHECK(past == testing::IndexOfStorage(paged, "present.0.key"));
  CHECK(paged.storages[past].persistent);
  bool in_place = false;
  for (const plan::Op& op : paged.ops) {
    const bool reads = std::binary_search(op.reads.begin(), op.reads.end(), past);
    const bool writes = std::binary_search(op.writes.begin(), op.writes.end(), past);
    in_place |= op.type == "ScatterND" && reads && writes;
  }
  CHECK(in_place);
}

TEST_CASE("sizes that do not fit together are unknown tensors with the reason beside") {
  OnnxOptions options;
  std::vector<std::string> notes;
  options.dims = {{"batch_size", 2}, {"seq_len", 32}};  // the model's mask is 8 x 8
  options.notes = &notes;
  const plan::Graph imported = ImportFile("gpt2_past_12layer", options);
  CHECK_FALSE(imported.unknown.empty());
  REQUIRE_FALSE(notes.empty());
  CHECK(notes[0].find("Incompatible dimensions") != std::string::npos);
  CHECK(notes[0].find("Where") != std::string::npos);
}

}  // namespace hmm
