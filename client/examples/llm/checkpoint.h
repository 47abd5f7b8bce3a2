// SPDX-License-Identifier: Apache-2.0
//
// A model file in llama2.c's format: seven int32 (dim, hidden_dim, n_layers, n_heads, n_kv_heads,
// vocab_size, seq_len; a negative vocab_size: the classifier is not the embedding), then float32
// arrays, each for all layers in turn. The file is mapped, not read: a page comes in when it is
// first used.
//
// Any thread may read one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace llm {

struct ModelShape {
  std::size_t dim = 0;     // of the residual stream
  std::size_t hidden = 0;  // of the feed-forward network
  std::size_t layers = 0;
  std::size_t heads = 0;     // query heads
  std::size_t kv_heads = 0;  // key and value heads; heads % kv_heads == 0
  std::size_t vocab = 0;
  std::size_t context = 0;  // positions
  bool shared_classifier = true;

  std::size_t head_size() const { return dim / heads; }
  std::size_t kv_dim() const { return head_size() * kv_heads; }
  // Floats of one layer's weights, and of those that belong to no layer.
  std::size_t layer_floats() const;
  std::size_t global_floats() const;
  // Bytes of the KV of one token in one layer: its key, then its value.
  std::size_t token_bytes() const { return 2 * kv_dim() * sizeof(float); }
};

// INVALID_ARGUMENT naming the field and its value, unless the shape is one that a model can have.
absl::Status CheckShape(const ModelShape& shape);

// One layer's weights, row-major, rows = outputs.
struct LayerWeights {
  const float* rms_att = nullptr;  // [dim]
  const float* wq = nullptr;       // [dim][dim]
  const float* wk = nullptr;       // [kv_dim][dim]
  const float* wv = nullptr;       // [kv_dim][dim]
  const float* wo = nullptr;       // [dim][dim]
  const float* rms_ffn = nullptr;  // [dim]
  const float* w1 = nullptr;       // [hidden][dim]
  const float* w2 = nullptr;       // [dim][hidden]
  const float* w3 = nullptr;       // [hidden][dim]
};
// The same, in one piece of layer_floats() floats, in the order above.
LayerWeights LayerAt(const ModelShape& shape, const float* packed);

struct GlobalWeights {
  const float* embedding = nullptr;   // [vocab][dim]
  const float* rms_final = nullptr;   // [dim]
  const float* classifier = nullptr;  // [vocab][dim]
};
// The same, in one piece of global_floats() floats: embedding, rms_final, classifier if apart.
GlobalWeights GlobalsAt(const ModelShape& shape, const float* packed);

// OK: a regular file that is not empty. Else errno's code, or INVALID_ARGUMENT; `what` it is for
// begins the message. A pipe is never opened, for that would wait for its other end.
absl::Status CheckRegularFile(const char* what, const std::string& path);

class Checkpoint {
 public:
  // NOT_FOUND: no such file. INVALID_ARGUMENT: not such a model, truncated, or too long; the
  // message names the file, the field and its value.
  static absl::StatusOr<Checkpoint> Open(const std::string& path);
  Checkpoint(Checkpoint&& other) noexcept;
  Checkpoint& operator=(Checkpoint&&) = delete;
  ~Checkpoint();

  // Reads all weights. INVALID_ARGUMENT names the array, the layer and the element that is infinite
  // or no number: whatever it is multiplied with would be neither.
  absl::Status CheckFinite() const;

  const ModelShape& shape() const { return shape_; }
  LayerWeights layer(std::size_t index) const;
  GlobalWeights globals() const;
  void PackLayer(std::size_t index, float* out) const;  // layer_floats()
  void PackGlobals(float* out) const;                   // global_floats()
  // The whole file.
  absl::Span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Tells this file, as it was when opened, from others under the same path, older ones too: size,
  // inode, and both times, for a copy may bring its mtime along.
  const std::string& file_id() const { return file_id_; }

 private:
  Checkpoint() = default;

  ModelShape shape_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::string path_;
  std::string file_id_;
  // Where each array begins, in floats from the header's end, in the file's order.
  struct Arrays {
    std::size_t embedding, rms_att, wq, wk, wv, wo, rms_ffn, w1, w2, w3, rms_final, classifier;
  };
  Arrays at_{};
  const float* Floats(std::size_t at) const;
};

inline constexpr std::size_t kHeaderInts = 7;

}  // namespace llm
