// SPDX-License-Identifier: Apache-2.0
#include "serve.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "generation.h"

namespace llm {
namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

void Answer(const std::string& line) {
  std::fputs(line.c_str(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

// A JSON string; what is not ASCII is not kept.
std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c >= ' ' && c <= '~' ? c : '?';
  }
  return out + "\"";
}

void AnswerError(const std::string& id, const absl::Status& status) {
  std::string type = hmm::ReasonOfStatus(status);
  if (type.empty()) type = absl::StatusCodeToString(status.code());
  Answer(absl::StrFormat("{\"id\": %s, \"error\": %s}", Quoted(id),
                         Quoted(absl::StrCat(type, ": ", status.message()))));
}

struct Request {
  std::string id;
  std::size_t count = 0;
  std::vector<int> prompt;
};

absl::StatusOr<std::size_t> ParseNumber(const std::string& word, std::size_t below) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value >= below) {
    return absl::InvalidArgumentError(absl::StrCat("\"", word, "\" is no number below ", below));
  }
  return value;
}

absl::StatusOr<Request> ParseRequest(const std::vector<std::string>& words,
                                     const ModelShape& shape) {
  Request request;
  if (words.size() < 4) return absl::InvalidArgumentError("generate wants ID COUNT TOKEN ...");
  request.id = words[1];
  const auto count = ParseNumber(words[2], shape.context);
  if (!count.ok()) return count.status();
  request.count = *count;
  for (std::size_t i = 3; i < words.size(); ++i) {
    const auto token = ParseNumber(words[i], shape.vocab);
    if (!token.ok()) return token.status();
    request.prompt.push_back(static_cast<int>(*token));
  }
  if (request.prompt.size() + request.count > shape.context) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt's ", request.prompt.size(), " tokens and the ", request.count,
                     " asked for are more than the model's context (seq_len), ", shape.context));
  }
  return request;
}

// What the engine has waited for tiers so far: for the cache, and for weights.
double WaitedMs(const Engine& engine) {
  std::chrono::nanoseconds waited{0};
  if (engine.hmm_cache != nullptr) waited += engine.hmm_cache->stats().wait;
  if (engine.hmm_weights != nullptr) waited += engine.hmm_weights->stats().wait;
  return std::chrono::duration<double, std::milli>(waited).count();
}

absl::Status Generate(const Request& request, Engine& engine, Generation& text) {
  const auto begin = Clock::now();
  const double waited = WaitedMs(engine);
  double ttft_ms = 0;
  for (std::size_t i = 0; i < request.count; ++i) {
    const absl::StatusOr<int> token = text.Next(*engine.model);
    if (!token.ok()) return token.status();
    if (i == 0) ttft_ms = MillisecondsSince(begin);
  }
  const auto fresh = absl::MakeConstSpan(text.tokens()).subspan(request.prompt.size());
  Answer(absl::StrFormat(
      "{\"id\": %s, \"ttft_ms\": %.2f, \"ms\": %.2f, \"prompt\": %d, \"skipped\": %d, "
      "\"recomputed\": %d, \"exposed_wait_ms\": %.2f, \"tokens\": [%s]}",
      Quoted(request.id), ttft_ms, MillisecondsSince(begin), request.prompt.size(), text.skipped(),
      text.recomputed(), WaitedMs(engine) - waited, absl::StrJoin(fresh, ", ")));
  return absl::OkStatus();
}

absl::Status Continue(const std::string& word, const ModelShape& shape, Engine& engine,
                      Generation& text) {
  const auto begin = Clock::now();
  const std::size_t first = text.tokens().size();
  const auto count = ParseNumber(word, shape.context - std::min(shape.context, first) + 1);
  if (!count.ok()) return count.status();
  for (std::size_t i = 0; i < *count; ++i) {
    if (const auto token = text.Next(*engine.model); !token.ok()) return token.status();
  }
  Answer(absl::StrFormat("{\"done\": \"continue\", \"ms\": %.2f, \"tokens\": [%s]}",
                         MillisecondsSince(begin),
                         absl::StrJoin(absl::MakeConstSpan(text.tokens()).subspan(first), ", ")));
  return absl::OkStatus();
}

absl::Status Sleep(bool suspend, Generation& text) {
  const auto begin = Clock::now();
  const absl::Status done = suspend ? text.kv().Suspend() : text.kv().Resume();
  if (!done.ok() && !IsMiss(done)) return done;
  Answer(absl::StrFormat("{\"done\": \"%s\", \"ms\": %.2f, \"length\": %d}",
                         suspend ? "suspend" : "resume", MillisecondsSince(begin),
                         text.kv().length()));
  return absl::OkStatus();
}

}  // namespace

absl::Status Serve(const Args& args, const ModelShape& shape, Engine& engine, double start_ms) {
  Answer(absl::StrFormat(
      "{\"ready\": true, \"start_ms\": %.2f, \"loaded_bytes\": %d}", start_ms,
      engine.hmm_weights != nullptr ? engine.hmm_weights->stats().loaded_bytes : 0));
  std::optional<Generation> text;
  for (std::string line; std::getline(std::cin, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.empty()) continue;
    const std::string& verb = words[0];
    if (verb == "generate") {
      text.reset();  // its blocks stay cached
      const absl::StatusOr<Request> request = ParseRequest(words, shape);
      if (!request.ok()) {
        AnswerError(words.size() > 1 ? words[1] : "", request.status());
        continue;
      }
      text.emplace(request->prompt, engine.OpenKv(args), args.block_tokens, args.chunk,
                   Sampler(args.temperature, args.seed));
      const absl::Status done = Generate(*request, engine, *text);
      if (!done.ok()) AnswerError(request->id, engine.NameTiers(done));
    } else if ((verb == "suspend" || verb == "resume") && text.has_value()) {
      const absl::Status done = Sleep(verb == "suspend", *text);
      if (!done.ok()) AnswerError(verb, done);
    } else if (verb == "continue" && words.size() == 2 && text.has_value()) {
      const absl::Status done = Continue(words[1], shape, engine, *text);
      if (!done.ok()) AnswerError(verb, engine.NameTiers(done));
    } else {
      AnswerError(verb, absl::InvalidArgumentError(
                            "wants generate, or continue COUNT, suspend and resume after it"));
    }
  }
  return absl::OkStatus();
}

}  // namespace llm
