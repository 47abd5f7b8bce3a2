// SPDX-License-Identifier: Apache-2.0
#include "args.h"

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"

namespace llm {
namespace {

constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

// The parser takes "-3" for a very large number, and what is too large for the largest.
std::string WholeNumber(const std::string& text) {
  std::uint64_t value = 0;
  return absl::SimpleAtoi(text, &value)
             ? ""
             : "'" + text + "' is not a whole number from 0 to 18446744073709551615";
}

// And a unit, as in "16MiB": before CLI::AsSizeValue.
CLI::Validator Size() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        const std::size_t digits = text.find_last_not_of(kLetters) + 1;
        return WholeNumber(text.substr(0, digits)).empty()
                   ? ""
                   : "'" + text + "' is not a size from 0 to 18446744073709551615";
      },
      "");
}

const std::map<std::string, KvKind> kKvKinds = {{"local", KvKind::kLocal}, {"hmm", KvKind::kHmm}};
const std::map<std::string, StatsKind> kStatsKinds = {
    {"none", StatsKind::kNone}, {"text", StatsKind::kText}, {"json", StatsKind::kJson}};

template <typename Kind>
std::string NameOf(const std::map<std::string, Kind>& kinds, Kind kind) {
  for (const auto& [name, value] : kinds) {
    if (value == kind) return name;
  }
  return "";
}

// By name. CLI::CheckedTransformer also shows, and takes, the numbers behind them.
template <typename Kind>
CLI::Validator OneOf(const std::map<std::string, Kind>& kinds) {
  std::string names;
  for (const auto& [name, kind] : kinds) names += (names.empty() ? "" : "|") + name;
  return CLI::Validator(
      [kinds, names](std::string& text) -> std::string {
        const auto found = kinds.find(text);
        if (found == kinds.end()) return "'" + text + "' is not " + names;
        text = std::to_string(static_cast<int>(found->second));
        return "";
      },
      names);
}

// As an option shows it: the largest unit that divides it.
std::string SizeText(std::uint64_t bytes) {
  for (const auto& [shift, unit] :
       {std::pair(30, "GiB"), std::pair(20, "MiB"), std::pair(10, "KiB")}) {
    if (bytes != 0 && bytes % (std::uint64_t{1} << shift) == 0) {
      return std::to_string(bytes >> shift) + unit;
    }
  }
  return std::to_string(bytes);
}

// CLI::Range lets "nan" pass.
std::string Temperature(const std::string& text) {
  float value = 0;
  const bool number = CLI::detail::lexical_cast(text, value);
  return number && value >= 0 && value <= 100 ? "" : "'" + text + "' is not 0 to 100";
}

}  // namespace

std::optional<Args> ParseArgs(int argc, char** argv, int* exit_code) {
  Args args;
  CLI::App app("Writes text with a Llama-architecture model whose KV cache lies in hmmd.",
               "hmm-llm");
  app.add_option("MODEL", args.model, "Model file, in llama2.c's format")->required();
  app.add_option("--make-model", args.make_model,
                 "Write MODEL with random weights (from --seed) and end: "
                 "layers,dim,heads,kv_heads,vocab[,context]");

  CLI::App* text = app.add_option_group("Text");
  text->add_option("-t,--tokenizer", args.tokenizer,
                   "Tokenizer file; without, bytes go in and token numbers come out");
  text->add_option("-p,--prompt", args.prompt, "What the text begins with");
  text->add_option("-n,--steps", args.steps,
                   "Positions to compute, the prompt's included; default: the model's context")
      ->check(WholeNumber);
  text->add_option("--temperature", args.temperature, "0: the likeliest token, always")
      ->capture_default_str()
      ->check(Temperature);
  text->add_option("--seed", args.seed, "Of sampling, and of --make-model")
      ->capture_default_str()
      ->check(WholeNumber);
  text->add_option("--sequences", args.sequences,
                   "Write so many texts in turns, with seeds from --seed")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  text->add_option("--turn", args.turn, "Tokens of one turn")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));

  CLI::App* cache = app.add_option_group("KV cache");
  cache->add_option("--kv", args.kv, "Where it lies: in hmmd, or in this process alone")
      ->default_str(NameOf(kKvKinds, args.kv))
      ->transform(OneOf(kKvKinds));
  cache->add_option("--kv-budget", args.kv_budget, "local: most bytes of it; 0: no limit")
      ->default_str(SizeText(args.kv_budget))
      ->check(WholeNumber)
      ->transform(CLI::AsSizeValue(false))
      ->transform(Size());
  cache->add_option(
      "--kv-tier", args.kv_tier,
      "hmm: bring blocks to this tier to read them; without, read them where they are");
  cache->add_option("--block-tokens", args.block_tokens, "Tokens of a block")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  cache->add_option("--window", args.window, "Bytes pinned at a time")
      ->default_str(SizeText(args.window))
      ->check(WholeNumber)
      ->transform(CLI::AsSizeValue(false))
      ->transform(Size());
  cache->add_option("--salt", args.salt, "Shares prefixes only with the same salt");
  cache->add_option("--suspend-to", args.suspend_to,
                    "Tier that sequences are moved to between their turns");
  cache->add_option("--chunk", args.chunk, "Prompt tokens computed at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));

  CLI::App* weights = app.add_option_group("Weights");
  weights->add_flag("--offload-weights", args.offload_weights,
                    "Keep the weights in hmmd and stream them layer by layer");
  weights->add_option("--weight-tier", args.weight_tier,
                      "Load layers into this tier, and bring them there to compute; without, HBM, "
                      "and computed in any mapped tier");

  text->add_flag("--serve", args.serve, "Take requests from standard input, a line each (serve.h)");

  CLI::App* daemon = app.add_option_group("Daemon and output");
  daemon->add_option("--dir", args.dir, "Directory of hmmd; default $HMM_DIR, else /run/hmm");
  daemon->add_option("--device", args.device, "HBM tier to work on; default: the first");
  daemon->add_option("--stats", args.stats, "Figures on standard error at the end")
      ->default_str(NameOf(kStatsKinds, args.stats))
      ->transform(OneOf(kStatsKinds));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error) == 0 ? 0 : 2;
    return std::nullopt;
  }
  return args;
}

}  // namespace llm
