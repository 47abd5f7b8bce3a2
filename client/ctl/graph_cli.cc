// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "client/ctl/cli_parts.h"
#include "client/ctl/plan_cli.h"

namespace hmm::ctl {
namespace {

CLI::App* AddGraphVerb(CLI::App* parent, const std::string& name, const std::string& text,
                       Verb verb, Command* command) {
  CLI::App* app = AddVerb(parent, name, text, verb, command);
  app->add_option("--out", command->plan.out, "Also write the graph: .pb, .pbtxt, .onnx or .mindir")
      ->check(NotEmpty)
      ->type_name("FILE");
  OneOf(app->add_option("--format", command->plan.out_format,
                        "Format of the file that --out names, whatever its name"),
        "pb|onnx|mindir");
  return app;
}

// The parser takes "-3" for a very large number.
std::string NotNegative(const std::string& text) {
  return text.rfind("-", 0) == 0 ? "'" + text + "' is not a whole number from 0 on" : "";
}

void AddModel(CLI::App* graph, const std::string& name, const std::string& text, bool moe,
              Command* command) {
  ModelArgs* args = &command->model;
  CLI::App* app = AddGraphVerb(graph, name, text, Verb::kGraphModel, command);
  app->callback([command, moe] {
    command->verb = Verb::kGraphModel;
    command->model.moe = moe;
  });
  const auto add = [app](const std::string& flag, std::optional<std::uint64_t>& value,
                         const std::string& what) {
    app->add_option(flag, value, what)->check(NotNegative)->type_name("N");
  };
  app->add_option(
      "--preset", args->preset,
      moe ? "deepseek-v3; further options change it" : "llama-8b; further options change it");
  add("--layers", args->layers, "Layers");
  add("--hidden", args->hidden, "Width of the residual stream");
  add("--heads", args->heads, "Heads of queries");
  add("--kv-heads", args->kv_heads, "Heads of keys and values (default: as many as of queries)");
  add("--head-dim", args->head_dim, "Width of a head (default: hidden / heads)");
  add("--ffn", args->ffn, "Inner width of a dense FFN");
  add("--vocab", args->vocab, absl::StrCat("Tokens there are (default ", kDefaultVocab, ")"));
  if (moe) {
    add("--experts", args->experts, "Routed experts of a layer");
    add("--top-k", args->top_k, "Of them, for a token");
    add("--expert-ffn", args->expert_ffn, "Inner width of an expert (default: that of --ffn)");
    add("--shared-experts", args->shared_experts, "Experts that every token passes");
    add("--dense-layers", args->dense_layers, "First layers that have a dense FFN instead");
  }
  app->add_option("--phase", args->phase, "prefill (default), decode or train")->type_name("PHASE");
  add("--batch", args->batch, "Sequences (default 1)");
  add("--tokens", args->tokens,
      absl::StrCat("New ones of each sequence (default ", kDefaultTokens, "; decode: 1)"));
  add("--context", args->context,
      absl::StrCat("Earlier ones of each, in the cache (default 0; decode: ", kDefaultContext,
                   ")"));
  add("--dtype-bytes", args->dtype_bytes,
      "Of an element of weights, activations and KV (default 2, or the preset's)");
}

}  // namespace

void AddGraph(CLI::App* app, Command* command) {
  CLI::App* graph = app->add_subcommand(
      "graph", "Graphs of models: made from a few numbers, or read from a file");
  graph->fallthrough();
  graph->require_subcommand(1);
  AddModel(graph, "llama", "A dense decoder: prefill, decode or a training step", false, command);
  AddModel(graph, "moe", "The same with a mixture of experts", true, command);
  AddGraphInput(AddGraphVerb(graph, "show", "What a graph amounts to", Verb::kGraphShow, command),
                command);
}

}  // namespace hmm::ctl
