// SPDX-License-Identifier: Apache-2.0
#include "generation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace llm {
namespace {

// In one token. More of them means that the cache loses blocks faster than they can be computed.
constexpr int kMissesMax = 256;

}  // namespace

Generation::Generation(std::vector<int> prompt, std::unique_ptr<Kv> kv, std::size_t block_tokens,
                       std::size_t chunk, Sampler sampler)
    : tokens_(std::move(prompt)),
      prompt_size_(tokens_.size()),
      kv_(std::move(kv)),
      block_tokens_(block_tokens),
      chunk_(chunk),
      sampler_(sampler) {}

std::size_t Generation::StepSize() {
  // The last token is always computed, for its logits.
  const auto cachable = [&] {
    return absl::MakeConstSpan(tokens_).subspan(kv_->length(), tokens_.size() - 1 - kv_->length());
  };
  if (!started_) {
    started_ = true;
    skipped_ = kv_->Match(cachable());
  } else if (recovering_ && kv_->length() % block_tokens_ == 0) {
    kv_->Match(cachable());
  }
  const std::size_t left = tokens_.size() - kv_->length();
  // After a miss block by block, for the next one may be found again.
  const std::size_t most = recovering_ ? block_tokens_ - kv_->length() % block_tokens_ : chunk_;
  return std::min(left, most);
}

absl::StatusOr<int> Generation::Next(Model& model) {
  int misses = 0;
  absl::Span<const float> logits;
  while (kv_->length() < tokens_.size()) {
    const std::size_t count = StepSize();
    const std::size_t first = kv_->length();
    const auto result = model.Forward(absl::MakeConstSpan(tokens_).subspan(first, count), *kv_);
    if (result.ok()) {
      logits = *result;
      if (recovering_) recomputed_ += count;
      continue;
    }
    if (absl::IsResourceExhausted(result.status()) && chunk_ > block_tokens_) {
      chunk_ = std::max(block_tokens_, chunk_ / 2);  // no room for so much at once
      continue;
    }
    if (!IsMiss(result.status())) return result.status();
    if (++misses > kMissesMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the KV cache lost blocks ", misses,
                       " times in one token: there is too little room for ", tokens_.size(),
                       " tokens; look with `hmmctl status` for a tier that is offline or full of "
                       "pins, give the tiers more capacity, or write fewer (-n, --sequences) (",
                       result.status().message(), ")"));
    }
    recovering_ = true;
  }
  recovering_ = false;
  tokens_.push_back(sampler_.Pick(logits));
  return tokens_.back();
}

}  // namespace llm
