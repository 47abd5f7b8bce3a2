// SPDX-License-Identifier: Apache-2.0
#include "math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

// One binary for all x86-64 machines, each with its widest vectors. Not under a sanitizer, whose
// runtime is not up yet when the choice is made.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LLM_WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LLM_WIDE
#endif

namespace llm {
namespace {

// Partial sums of a dot product: lane l adds the products of columns l, l + kLanes, ...
constexpr std::size_t kLanes = 16;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float)), aligned(4)));

// Adds the lanes up, always by halves.
__attribute__((always_inline)) inline float Total(const Lanes& sums) {
  const auto eight = __builtin_shufflevector(sums, sums, 0, 1, 2, 3, 4, 5, 6, 7) +
                     __builtin_shufflevector(sums, sums, 8, 9, 10, 11, 12, 13, 14, 15);
  const auto four = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) +
                    __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// kRows x kTokens dot products at once, for each weight is then loaded once for all tokens and each
// input once for all rows. The order of each sum is that of one dot product alone.
template <std::size_t kRows, std::size_t kTokens>
__attribute__((always_inline)) inline void Tile(const float* w, std::size_t columns, const float* x,
                                                float* out, std::size_t out_stride) {
  Lanes sums[kRows][kTokens] = {};
  std::size_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    Lanes in[kTokens];
    for (std::size_t t = 0; t < kTokens; ++t) {
      in[t] = *reinterpret_cast<const Lanes*>(x + t * columns + c);
    }
    for (std::size_t r = 0; r < kRows; ++r) {
      const Lanes weights = *reinterpret_cast<const Lanes*>(w + r * columns + c);
      for (std::size_t t = 0; t < kTokens; ++t) sums[r][t] += weights * in[t];
    }
  }
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t t = 0; t < kTokens; ++t) {
      float sum = Total(sums[r][t]);
      for (std::size_t rest = c; rest < columns; ++rest) {
        sum += w[r * columns + rest] * x[t * columns + rest];
      }
      out[t * out_stride + r] = sum;
    }
  }
}

// `rows` of all `rows_total` dot products of kTokens tokens.
template <std::size_t kTokens>
__attribute__((always_inline)) inline void Rows(const float* w, std::size_t rows,
                                                std::size_t columns, const float* x, float* out,
                                                std::size_t rows_total) {
  constexpr std::size_t kRows = 4;
  std::size_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    Tile<kRows, kTokens>(w + r * columns, columns, x, out + r, rows_total);
  }
  for (; r < rows; ++r) Tile<1, kTokens>(w + r * columns, columns, x, out + r, rows_total);
}

}  // namespace

LLM_WIDE void MatMul(const float* w, std::size_t rows, std::size_t columns, const float* x,
                     std::size_t tokens, float* out) {
  // Rows in bands that stay in the cache while all tokens pass over them.
  const std::size_t band = std::max<std::size_t>(4, (std::size_t{1} << 17) / columns / 4 * 4);
  constexpr std::size_t kTokens = 4;
  for (std::size_t first = 0; first < rows; first += band) {
    const std::size_t count = std::min(band, rows - first);
    const float* part = w + first * columns;
    std::size_t t = 0;
    for (; t + kTokens <= tokens; t += kTokens) {
      Rows<kTokens>(part, count, columns, x + t * columns, out + t * rows + first, rows);
    }
    for (; t < tokens; ++t) {
      Rows<1>(part, count, columns, x + t * columns, out + t * rows + first, rows);
    }
  }
}

void RmsNorm(const float* x, const float* weight, std::size_t n, float* out) {
  float squares = 0;
  for (std::size_t i = 0; i < n; ++i) squares += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(n) + 1e-5f);
  for (std::size_t i = 0; i < n; ++i) out[i] = weight[i] * (scale * x[i]);
}

void Rope(float* heads, std::size_t n, std::size_t head_size, std::size_t position) {
  for (std::size_t i = 0; i < head_size; i += 2) {
    const float frequency =
        1.0f / std::pow(10000.0f, static_cast<float>(i) / static_cast<float>(head_size));
    const float angle = static_cast<float>(position) * frequency;
    const float cosine = std::cos(angle);
    const float sine = std::sin(angle);
    for (std::size_t head = 0; head < n; head += head_size) {
      float* pair = heads + head + i;
      const float a = pair[0];
      const float b = pair[1];
      pair[0] = a * cosine - b * sine;
      pair[1] = a * sine + b * cosine;
    }
  }
}

void SwiGlu(float* gate, const float* up, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    gate[i] = gate[i] * (1.0f / (1.0f + std::exp(-gate[i]))) * up[i];
  }
}

void Add(float* x, const float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] += y[i];
}

std::size_t FirstNotFinite(const float* x, std::size_t n) {
  constexpr std::uint32_t kInfinity = 0x7f80'0000;  // without the sign; those beyond are no numbers
  const auto magnitude = [x](std::size_t i) {
    return std::bit_cast<std::uint32_t>(x[i]) & 0x7fff'ffff;
  };
  std::size_t i = 0;
  for (constexpr std::size_t kStep = 1024; i + kStep <= n; i += kStep) {
    std::uint32_t most = 0;
    for (std::size_t k = i; k < i + kStep; ++k) most = std::max(most, magnitude(k));
    if (most >= kInfinity) break;
  }
  while (i < n && magnitude(i) < kInfinity) ++i;
  return i;
}

void BeginAttention(const Heads& heads, float* out, SoftmaxState* state) {
  std::fill_n(out, heads.query * heads.size, 0.0f);
  std::fill_n(state, heads.query, SoftmaxState{-std::numeric_limits<float>::infinity(), 0.0f});
}

LLM_WIDE void Attend(const Heads& heads, const float* query, const float* keys, const float* values,
                     std::size_t count, float* out, SoftmaxState* state) {
  const std::size_t size = heads.size;
  const std::size_t stride = heads.kv * size;
  const std::size_t group = heads.query / heads.kv;
  const float root = 1.0f / std::sqrt(static_cast<float>(size));
  for (std::size_t h = 0; h < heads.query; ++h) {
    const float* q = query + h * size;
    const float* key = keys + h / group * size;
    const float* value = values + h / group * size;
    float* to = out + h * size;
    SoftmaxState& soft = state[h];
    for (std::size_t j = 0; j < count; ++j, key += stride, value += stride) {
      float score = 0;
      Tile<1, 1>(q, size, key, &score, 0);
      score *= root;
      if (score > soft.max) {
        const float shrink = std::exp(soft.max - score);  // 0 at the first
        soft.sum *= shrink;
        for (std::size_t i = 0; i < size; ++i) to[i] *= shrink;
        soft.max = score;
      }
      const float share = std::exp(score - soft.max);
      soft.sum += share;
      for (std::size_t i = 0; i < size; ++i) to[i] += share * value[i];
    }
  }
}

void FinishAttention(const Heads& heads, float* out, const SoftmaxState* state) {
  for (std::size_t h = 0; h < heads.query; ++h) {
    const float scale = 1.0f / state[h].sum;
    for (std::size_t i = 0; i < heads.size; ++i) out[h * heads.size + i] *= scale;
  }
}

}  // namespace llm
