// SPDX-License-Identifier: Apache-2.0
#include "sampler.h"

#include <algorithm>
#include <cmath>

namespace llm {

int Sampler::Pick(absl::Span<const float> logits) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (temperature_ <= 0) return static_cast<int>(best - logits.begin());
  shares_.resize(logits.size());
  float sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    shares_[i] = std::exp((logits[i] - *best) / temperature_);
    sum += shares_[i];
  }
  float left = Uniform() * sum;
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    left -= shares_[i];
    if (left < 0) return static_cast<int>(i);
  }
  return static_cast<int>(best - logits.begin());  // rounding
}

float Sampler::Uniform() {
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  const std::uint64_t bits = (state_ * 0x2545F4914F6CDD1DULL) >> 40;
  return static_cast<float>(bits) / static_cast<float>(1u << 24);
}

}  // namespace llm
