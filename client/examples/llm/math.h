// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of a transformer, in float32. Every sum has one order that does not depend on how
// many tokens are computed at once: a token's activations are the same bits whether it came in a
// prompt, was decoded, or is recomputed after a cache miss. That is what makes "with and without
// tiering" comparable to the byte.
//
// Pure but for what they write: any thread. Arrays belong to the caller and overlap only where a
// line says so.
#pragma once

#include <cstddef>

namespace llm {

// out[t][r] = sum over c of w[r][c] * x[t][c]; w is [rows][columns], x [tokens][columns].
void MatMul(const float* w, std::size_t rows, std::size_t columns, const float* x,
            std::size_t tokens, float* out);

// out = x / sqrt(mean(x^2) + 1e-5) * weight, all of n floats; out may be x.
void RmsNorm(const float* x, const float* weight, std::size_t n, float* out);

// Turns adjacent pairs of each head by position * 10000^(-2i / head_size).
void Rope(float* heads, std::size_t n, std::size_t head_size, std::size_t position);

// gate = silu(gate) * up.
void SwiGlu(float* gate, const float* up, std::size_t n);

void Add(float* x, const float* y, std::size_t n);

// Index of the first that is infinite or no number; n: none is.
std::size_t FirstNotFinite(const float* x, std::size_t n);

// Attention of one token over its positions, given piece by piece: the softmax's maximum and sum
// are carried along, and what was added up before is scaled down when the maximum grows. So the
// blocks of a KV cache need not be there all at once.
struct Heads {
  std::size_t query = 0;  // heads
  std::size_t kv = 0;     // heads; query / kv of them share one
  std::size_t size = 0;   // floats of a head
};
struct SoftmaxState {  // of one head
  float max = 0;
  float sum = 0;
};
void BeginAttention(const Heads& heads, float* out, SoftmaxState* state);
// Adds `count` positions; keys and values: [count][kv * size].
void Attend(const Heads& heads, const float* query, const float* keys, const float* values,
            std::size_t count, float* out, SoftmaxState* state);
void FinishAttention(const Heads& heads, float* out, const SoftmaxState* state);

}  // namespace llm
