// SPDX-License-Identifier: Apache-2.0
//
// Picks the next token from logits: the likeliest, or by chance from a seed. A value; one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace llm {

class Sampler {
 public:
  // Temperature 0: always the likeliest token. The same seed picks the same tokens.
  Sampler(float temperature, std::uint64_t seed)
      : temperature_(temperature), state_(seed * 2 + 1) {}
  // REQUIRES: `logits` is not empty.
  int Pick(absl::Span<const float> logits);

 private:
  float Uniform();  // [0, 1)

  float temperature_;
  std::uint64_t state_;
  std::vector<float> shares_;
};

}  // namespace llm
