// SPDX-License-Identifier: Apache-2.0
#include "bench/planner_graphs.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "graph/generate.h"
#include "graph/read_graph.h"
#include "plan/roofline.h"
#include "support/gen_graph.h"

namespace hmm::bench {
namespace {

using graph::Phase;
using plan::Graph;
using plan::Op;

Graph Need(absl::StatusOr<Graph> graph) {
  if (graph.ok()) return *std::move(graph);
  std::fprintf(stderr, "%s\n", graph.status().ToString().c_str());
  std::exit(1);
}

Graph Model(const char* preset, Phase phase, std::uint64_t tokens, std::uint64_t context) {
  graph::ModelPreset model = *graph::FindModelPreset(preset);
  model.step.phase = phase;
  model.step.tokens = tokens;
  model.step.context = context;
  return Need(graph::GenerateModel(model.shape, model.step));
}

Graph File(const std::string& path, std::map<std::string, std::int64_t> dims = {}) {
  graph::ReadOptions options;
  options.onnx.dims = std::move(dims);
  return Need(graph::ReadGraph(std::string(HMM_TEST_DATA "/graphs/") + path, options));
}

Graph Bloom() {
  std::map<std::string, std::int64_t> dims;
  for (const char* dim : {"input_ids_dim0", "attention_mask_dim0", "labels_dim0"}) {
    dims[std::string("inputs_") + dim] = 2;
  }
  for (const char* dim : {"attention_mask_dim1", "labels_dim1"}) {
    dims[std::string("inputs_") + dim] = 1024;
  }
  return File("onnx/bloom_3layer_training.onnx", std::move(dims));
}

Graph Random(std::uint64_t seed, std::uint32_t ops) {
  hmm::testing::GraphGenerator gen(seed);
  hmm::testing::GenOptions options;
  options.ops_min = options.ops_max = ops;
  Graph graph = gen.Next(options).graph;
  for (plan::Storage& storage : graph.storages) storage.bytes *= 64 * kKiB;  // for a real link
  for (Op& op : graph.ops) op.workspace *= 64 * kKiB;
  for (Op& op : graph.ops) op.microseconds *= 100;
  return graph;
}

}  // namespace

std::vector<BenchGraph> BenchGraphs(const plan::Machine& machine) {
  std::vector<BenchGraph> graphs;
  graphs.push_back({"llama-8b prefill 8192", Model("llama-8b", Phase::kPrefill, 8192, 0)});
  graphs.push_back({"llama-8b prefill 1024", Model("llama-8b", Phase::kPrefill, 1024, 0)});
  graphs.push_back({"llama-8b decode at 32768", Model("llama-8b", Phase::kDecode, 1, 32768)});
  graphs.push_back({"llama-8b train 4096", Model("llama-8b", Phase::kTrain, 4096, 0)});
  graphs.push_back({"deepseek-v3 prefill 8192", Model("deepseek-v3", Phase::kPrefill, 8192, 0)});
  graphs.push_back({"deepseek-v3 decode at 8192", Model("deepseek-v3", Phase::kDecode, 1, 8192)});
  graphs.push_back({"bloom_3layer_training", Bloom()});
  graphs.push_back({"light_resnet50", File("onnx/light_resnet50.onnx")});
  graphs.push_back({"light_densenet121", File("onnx/light_densenet121.onnx")});
  graphs.push_back(
      {"gpt2_megatron", File("onnx/gpt2_megatron.onnx",
                             {{"batch_size", 2}, {"seq_len", 16}, {"past_seq_len", 32}})});
  graphs.push_back({"gpt2_past_12layer",
                    File("onnx/gpt2_past_12layer.onnx", {{"batch_size", 2}, {"seq_len", 7}})});
  graphs.push_back(
      {"paged_decoder",
       File("onnx/paged_decoder.onnx",
            {{"num_tokens", 8}, {"batch_plus_1", 3}, {"batch", 2}, {"max_blocks", 4}})});
  graphs.push_back({"tiny_gpt2_beamsearch_fp16",
                    File("onnx/tiny_gpt2_beamsearch_fp16.onnx", {{"batch_size", 2},
                                                                 {"sequence_length", 16},
                                                                 {"num_return_sequences", 1},
                                                                 {"max_length", 32},
                                                                 {"seq_len", 1},
                                                                 {"past_seq_len", 31},
                                                                 {"total_seq_len", 32}})});
  graphs.push_back(
      {"tiny_random_gpt2_past",
       File("onnx/tiny_random_gpt2_past.onnx",
            {{"batch_size", 2}, {"seq_len", 1}, {"past_seq_len", 15}, {"total_seq_len", 16}})});
  for (const char* name : {"bert_a72", "linear_a72", "resnet18_a72", "transformer_a72"}) {
    graphs.push_back({name, File(std::string("costed/") + name + ".json")});
  }
  graphs.push_back({"training-2000", hmm::testing::LayeredGraph(2000), false});
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    graphs.push_back({"random-100-" + std::to_string(seed), Random(seed, 100), false});
  }
  graphs.push_back({"random-1000", Random(5, 1000), false});
  for (BenchGraph& bench : graphs) plan::FillDurations(bench.graph, machine);
  return graphs;
}

}  // namespace hmm::bench
