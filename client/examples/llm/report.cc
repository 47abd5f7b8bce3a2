// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace llm {
namespace {

double Milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// By name alone nobody knows: hbm may be called gpu0.
std::string KindOf(const TierKinds& kinds, const std::string& tier) {
  const auto at = kinds.find(tier);
  return at == kinds.end() ? tier : at->second;
}

}  // namespace

void Report::Add(const hmm::KvStats& stats, const TierKinds& kinds) {
  for (const hmm::KvStats::Hits& found : stats.hits) hits[KindOf(kinds, found.tier)] += found.count;
  exposed_wait_ms += Milliseconds(stats.wait);
  moved_bytes += stats.brought_bytes + stats.prefetched_bytes;
}

void Report::Add(const WeightStats& stats, const TierKinds& kinds) {
  for (const auto& [tier, count] : stats.hits) hits[KindOf(kinds, tier)] += count;
  exposed_wait_ms += Milliseconds(stats.wait);
  moved_bytes += stats.brought_bytes;
  loaded_bytes += stats.loaded_bytes;
}

std::string ReportAsJson(const Report& r) {
  const auto hit = [&](const char* kind) {
    const auto at = r.hits.find(kind);
    return at == r.hits.end() ? 0 : at->second;
  };
  return absl::StrFormat(
      "{\"tokens\": %d, \"tokens_per_s\": %.2f, \"ttft_ms\": %.2f, \"prefill_tokens_skipped\": %d, "
      "\"hits\": {\"hbm\": %d, \"ddr\": %d, \"flash\": %d}, \"exposed_wait_ms\": %.2f, "
      "\"moved_bytes\": %d, \"recomputed_tokens\": %d, \"start_ms\": %.2f, \"loaded_bytes\": %d}\n",
      r.tokens, r.tokens_per_s(), r.ttft_ms, r.prefill_tokens_skipped, hit("hbm"), hit("ddr"),
      hit("flash"), r.exposed_wait_ms, r.moved_bytes, r.recomputed_tokens, r.start_ms,
      r.loaded_bytes);
}

std::string ReportAsText(const Report& r) {
  std::string hits;
  for (const auto& [kind, count] : r.hits) absl::StrAppend(&hits, "  ", kind, " ", count);
  std::string text =
      absl::StrFormat("%d tokens, %.1f a second; first after %.1f ms, %d prompt tokens skipped\n",
                      r.tokens, r.tokens_per_s(), r.ttft_ms, r.prefill_tokens_skipped);
  if (!hits.empty()) {
    absl::StrAppendFormat(&text, "tensors read, by where they were:%s\n", hits);
    absl::StrAppendFormat(
        &text, "waited for tiers %.1f ms; brought up %.1f MiB; computed again %d\n",
        r.exposed_wait_ms, static_cast<double>(r.moved_bytes) / (1 << 20), r.recomputed_tokens);
  }
  if (r.loaded_bytes > 0) {
    absl::StrAppendFormat(&text, "loaded %.1f MiB of weights in %.1f ms\n",
                          static_cast<double>(r.loaded_bytes) / (1 << 20), r.start_ms);
  }
  return text;
}

}  // namespace llm
