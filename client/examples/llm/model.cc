// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <algorithm>
#include <cstring>

namespace llm {

Model::Model(const ModelShape& shape, std::size_t block_tokens, WeightSource& weights)
    : shape_(shape),
      heads_{shape.heads, shape.kv_heads, shape.head_size()},
      block_tokens_(block_tokens),
      weights_(weights),
      logits_(shape.vocab) {}

void Model::Resize(std::size_t count) {
  x_.resize(count * shape_.dim);
  normed_.resize(count * shape_.dim);
  query_.resize(count * shape_.dim);
  key_.resize(count * shape_.kv_dim());
  value_.resize(count * shape_.kv_dim());
  attended_.resize(count * shape_.dim);
  hidden_.resize(count * shape_.hidden);
  gate_.resize(count * shape_.hidden);
  softmax_.resize(count * shape_.heads);
}

absl::StatusOr<absl::Span<const float>> Model::Forward(absl::Span<const int> tokens, Kv& kv) {
  const std::size_t count = tokens.size();
  const std::size_t first = kv.length();
  if (const absl::Status room = kv.Append(tokens); !room.ok()) return room;
  if (kv.length() != first) return absl::InternalError("Append moved the sequence's end");
  Resize(count);
  const GlobalWeights globals = weights_.Globals();
  for (std::size_t t = 0; t < count; ++t) {
    std::memcpy(&x_[t * shape_.dim],
                globals.embedding + static_cast<std::size_t>(tokens[t]) * shape_.dim,
                shape_.dim * sizeof(float));
  }
  for (std::size_t layer = 0; layer < shape_.layers; ++layer) {
    const absl::StatusOr<LayerWeights> weights = weights_.Layer(layer);
    if (!weights.ok()) return weights.status();
    // While this layer computes, the next one's blocks come up.
    if (layer + 1 < shape_.layers) kv.Prefetch(layer + 1);
    if (const absl::Status done = Attention(*weights, layer, first, count, kv); !done.ok()) {
      return done;
    }
    FeedForward(*weights, count);
  }
  if (const absl::Status committed = kv.Commit(); !committed.ok()) return committed;

  const float* last = &x_[(count - 1) * shape_.dim];
  RmsNorm(last, globals.rms_final, shape_.dim, normed_.data());
  MatMul(globals.classifier, shape_.vocab, shape_.dim, normed_.data(), 1, logits_.data());
  return absl::Span<const float>(logits_);
}

absl::Status Model::Attention(const LayerWeights& w, std::size_t layer, std::size_t first,
                              std::size_t count, Kv& kv) {
  const std::size_t dim = shape_.dim;
  const std::size_t kv_dim = shape_.kv_dim();
  for (std::size_t t = 0; t < count; ++t) {
    RmsNorm(&x_[t * dim], w.rms_att, dim, &normed_[t * dim]);
  }
  MatMul(w.wq, dim, dim, normed_.data(), count, query_.data());
  MatMul(w.wk, kv_dim, dim, normed_.data(), count, key_.data());
  MatMul(w.wv, kv_dim, dim, normed_.data(), count, value_.data());

  // Keys and values go to their places in the cache, where attention then reads them.
  for (std::size_t t = 0; t < count; ++t) {
    const std::size_t position = first + t;
    Rope(&query_[t * dim], dim, heads_.size, position);
    Rope(&key_[t * kv_dim], kv_dim, heads_.size, position);
    float* block = kv.Writable(layer, position / block_tokens_);
    float* slot = block + position % block_tokens_ * kv_dim;
    std::memcpy(slot, &key_[t * kv_dim], kv_dim * sizeof(float));
    std::memcpy(slot + block_tokens_ * kv_dim, &value_[t * kv_dim], kv_dim * sizeof(float));
  }
  if (const absl::Status read = AttendBlocks(layer, first, count, kv); !read.ok()) return read;
  MatMul(w.wo, dim, dim, attended_.data(), count, normed_.data());
  Add(x_.data(), normed_.data(), count * dim);
  return absl::OkStatus();
}

absl::Status Model::AttendBlocks(std::size_t layer, std::size_t first, std::size_t count, Kv& kv) {
  const std::size_t dim = shape_.dim;
  for (std::size_t t = 0; t < count; ++t) {
    BeginAttention(heads_, &attended_[t * dim], &softmax_[t * heads_.query]);
  }
  const std::size_t blocks = (first + count + block_tokens_ - 1) / block_tokens_;
  for (std::size_t block = 0; block < blocks; block += blocks_.size()) {
    if (const absl::Status read = kv.Read(layer, block, blocks_); !read.ok()) return read;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const float* keys = blocks_[i];
      const float* values = keys + block_tokens_ * shape_.kv_dim();
      const std::size_t start = (block + i) * block_tokens_;
      for (std::size_t t = 0; t < count; ++t) {
        if (first + t < start) continue;  // a token does not see those after it
        const std::size_t seen = std::min(block_tokens_, first + t + 1 - start);
        Attend(heads_, &query_[t * dim], keys, values, seen, &attended_[t * dim],
               &softmax_[t * heads_.query]);
      }
    }
  }
  for (std::size_t t = 0; t < count; ++t) {
    FinishAttention(heads_, &attended_[t * dim], &softmax_[t * heads_.query]);
  }
  return absl::OkStatus();
}

void Model::FeedForward(const LayerWeights& w, std::size_t count) {
  const std::size_t dim = shape_.dim;
  for (std::size_t t = 0; t < count; ++t) {
    RmsNorm(&x_[t * dim], w.rms_ffn, dim, &normed_[t * dim]);
  }
  MatMul(w.w1, shape_.hidden, dim, normed_.data(), count, gate_.data());
  MatMul(w.w3, shape_.hidden, dim, normed_.data(), count, hidden_.data());
  SwiGlu(gate_.data(), hidden_.data(), count * shape_.hidden);
  MatMul(w.w2, dim, shape_.hidden, gate_.data(), count, normed_.data());
  Add(x_.data(), normed_.data(), count * dim);
}

}  // namespace llm
