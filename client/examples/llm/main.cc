// SPDX-License-Identifier: Apache-2.0
//
// hmm-llm: writes text with a small Llama model whose KV cache, and with --offload-weights its
// weights, lie in hmmd. Text goes to standard output, figures and errors to standard error. Exit
// code 0: done, 1: failed, 2: wrong usage.
#include <hmm/client.h>
#include <hmm/kv_cache.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "args.h"
#include "checkpoint.h"
#include "engine.h"
#include "generation.h"
#include "make_model.h"
#include "report.h"
#include "serve.h"
#include "tokenizer.h"

namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

absl::StatusOr<std::vector<int>> MakePrompt(const llm::Args& args, const llm::ModelShape& shape,
                                            const llm::Tokenizer& tokenizer) {
  const auto too_long = [&](std::size_t tokens) {
    return absl::InvalidArgumentError(absl::StrCat("the prompt has ", tokens,
                                                   " tokens, the model's "
                                                   "context (seq_len) is ",
                                                   shape.context));
  };
  std::vector<int> prompt = tokenizer.Encode(args.prompt);
  if (prompt.size() >= shape.context) return too_long(prompt.size());
  return prompt;
}

// Writes what each token adds; the first token, BOS, adds nothing.
class Writer {
 public:
  explicit Writer(const llm::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void Write(const std::vector<int>& tokens) {
    for (; written_ < tokens.size(); ++written_) {
      const std::string piece = tokenizer_.Decode(tokens[written_ - 1], tokens[written_]);
      std::fwrite(piece.data(), 1, piece.size(), stdout);
    }
    std::fflush(stdout);
  }

 private:
  const llm::Tokenizer& tokenizer_;
  std::size_t written_ = 1;
};

// One text of several.
struct Text {
  llm::Generation generation;
  bool done = false;
};

// Lets `text` write until it ends or its turn does. Ends of text are not part of it.
absl::Status TakeTurn(Text& text, llm::Model& model, std::size_t turn, std::size_t steps,
                      Writer* writer, const std::function<void()>& on_token) {
  for (std::size_t i = 0; i < turn && !text.done; ++i) {
    // `steps` positions are computed; the last one still names a token.
    if (text.generation.tokens().size() > steps) {
      text.done = true;
      break;
    }
    const absl::StatusOr<int> token = text.generation.Next(model);
    if (!token.ok()) return token.status();
    if (*token == llm::kBos || *token == llm::kEos) {
      text.done = true;
      break;
    }
    on_token();
    if (writer != nullptr) writer->Write(text.generation.tokens());
  }
  return absl::OkStatus();
}

// One text is written as it comes; several take turns, and all but the one whose turn it is are
// suspended.
absl::Status WriteTexts(const llm::Args& args, llm::Engine& engine, const llm::Tokenizer& tokenizer,
                        std::size_t steps, const std::function<void()>& on_token,
                        std::vector<Text>& texts) {
  const bool alone = texts.size() == 1;
  Writer writer(tokenizer);
  if (alone) writer.Write(texts[0].generation.tokens());
  for (bool more = true; more;) {
    more = false;
    for (Text& text : texts) {
      if (text.done) continue;
      llm::Kv& kv = text.generation.kv();
      if (!alone && kv.length() > 0) {
        if (const absl::Status back = kv.Resume(); !back.ok() && !llm::IsMiss(back)) return back;
      }
      const absl::Status turn =
          TakeTurn(text, *engine.model, args.turn, steps, alone ? &writer : nullptr, on_token);
      if (!turn.ok()) return turn;
      more = more || !text.done;
      if (alone) continue;
      if (const absl::Status away = kv.Suspend(); !away.ok() && !llm::IsMiss(away)) return away;
    }
  }
  for (Text& text : texts) {
    if (!alone) Writer(tokenizer).Write(text.generation.tokens());
    std::fputs("\n", stdout);
  }
  return absl::OkStatus();
}

absl::Status Generate(const llm::Args& args, const llm::Checkpoint& checkpoint, llm::Engine& engine,
                      const llm::Tokenizer& tokenizer, const std::vector<int>& prompt,
                      llm::Report& report) {
  const llm::ModelShape& shape = checkpoint.shape();
  const std::size_t steps = args.steps == 0 ? shape.context : std::min(args.steps, shape.context);

  const auto begin = Clock::now();
  auto first = begin;
  const auto on_token = [&] {
    if (report.tokens++ == 0) {
      first = Clock::now();
      report.ttft_ms = MillisecondsSince(begin);
    }
    report.seconds = std::chrono::duration<double>(Clock::now() - first).count();
  };
  std::vector<Text> texts;
  for (std::size_t i = 0; i < args.sequences; ++i) {
    texts.push_back({llm::Generation(prompt, engine.OpenKv(args), args.block_tokens, args.chunk,
                                     llm::Sampler(args.temperature, args.seed + i))});
  }
  const absl::Status written = WriteTexts(args, engine, tokenizer, steps, on_token, texts);
  for (const Text& text : texts) {  // what a run that failed did counts too
    report.prefill_tokens_skipped += text.generation.skipped();
    report.recomputed_tokens += text.generation.recomputed();
  }
  return written;
}

absl::Status Run(const llm::Args& args) {
  if (!args.make_model.empty()) {
    const auto shape = llm::ParseModelSpec(args.make_model);
    if (!shape.ok()) return shape.status();
    return llm::MakeModel(*shape, args.seed, args.model);
  }
  const auto checkpoint = llm::Checkpoint::Open(args.model);
  if (!checkpoint.ok()) return checkpoint.status();
  const std::size_t vocab = checkpoint->shape().vocab;
  const auto tokenizer = args.tokenizer.empty()
                             ? absl::StatusOr<llm::Tokenizer>(llm::Tokenizer::Numbers(vocab))
                             : llm::Tokenizer::Open(args.tokenizer, vocab);
  if (!tokenizer.ok()) return tokenizer.status();
  const auto prompt = args.serve ? absl::StatusOr<std::vector<int>>(std::vector<int>())
                                 : MakePrompt(args, checkpoint->shape(), *tokenizer);
  if (!prompt.ok()) return prompt.status();

  llm::Report report;
  const auto begin = Clock::now();
  absl::StatusOr<llm::Engine> engine = llm::MakeEngine(args, *checkpoint);
  if (!engine.ok()) return engine.status();
  report.start_ms = MillisecondsSince(begin);
  if (args.serve) return llm::Serve(args, checkpoint->shape(), *engine, report.start_ms);
  const absl::Status done = Generate(args, *checkpoint, *engine, *tokenizer, *prompt, report);
  // A run that computed nothing has no figures, only its error.
  if (!done.ok() && report.tokens == 0 && report.recomputed_tokens == 0) {
    return engine->NameTiers(done);
  }
  if (engine->hmm_cache != nullptr) {
    report.Add(engine->hmm_cache->stats(), engine->tier_kinds);
  }
  if (engine->hmm_weights != nullptr) {
    report.Add(engine->hmm_weights->stats(), engine->tier_kinds);
  }
  if (args.stats == llm::StatsKind::kJson) std::fputs(llm::ReportAsJson(report).c_str(), stderr);
  if (args.stats == llm::StatsKind::kText) std::fputs(llm::ReportAsText(report).c_str(), stderr);
  return engine->NameTiers(done);
}

}  // namespace

int main(int argc, char** argv) {
  int exit_code = 0;
  const std::optional<llm::Args> args = llm::ParseArgs(argc, argv, &exit_code);
  if (!args) return exit_code;
  absl::Status status = Run(*args);
  // Text that went nowhere was not written.
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    status.Update(absl::ErrnoToStatus(errno != 0 ? errno : EIO, "standard output"));
  }
  if (status.ok()) return 0;
  // The daemon's reason says more than the code; what it never saw has only that.
  std::string type = hmm::ReasonOfStatus(status);
  if (type.empty()) type = absl::StatusCodeToString(status.code());
  std::fprintf(stderr, "hmm-llm: %s: %s\n", type.c_str(), std::string(status.message()).c_str());
  return 1;
}
