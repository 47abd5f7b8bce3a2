// SPDX-License-Identifier: Apache-2.0
//
// A Llama-architecture decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU,
// float32, one thread.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint.h"
#include "kv.h"
#include "math.h"
#include "weights.h"

namespace llm {

class Model {
 public:
  // `weights` must outlive it.
  Model(const ModelShape& shape, std::size_t block_tokens, WeightSource& weights);

  // Computes `tokens`, which follow kv.length() earlier ones, and commits their KV. Returns the
  // logits of the last one, valid until the next call. IsMiss(status): see kv.h.
  absl::StatusOr<absl::Span<const float>> Forward(absl::Span<const int> tokens, Kv& kv);

 private:
  absl::Status Attention(const LayerWeights& w, std::size_t layer, std::size_t first,
                         std::size_t count, Kv& kv);
  absl::Status AttendBlocks(std::size_t layer, std::size_t first, std::size_t count, Kv& kv);
  void FeedForward(const LayerWeights& w, std::size_t count);
  void Resize(std::size_t count);

  const ModelShape shape_;
  const Heads heads_;
  const std::size_t block_tokens_;
  WeightSource& weights_;
  // Activations, [tokens][...].
  std::vector<float> x_, normed_, query_, key_, value_, attended_, hidden_, gate_;
  std::vector<SoftmaxState> softmax_;
  std::vector<float> logits_;
  std::vector<const float*> blocks_;
};

}  // namespace llm
