// SPDX-License-Identifier: Apache-2.0
//
// The KV cache of one sequence, as the model sees it. Two kinds: LocalKv (this process's memory)
// and HmmKv (hmm::KvCache); both give the model the same blocks in the same order, so that what it
// computes is the same to the bit.
//
//   block b of layer l holds the tokens [b * block_tokens, (b + 1) * block_tokens):
//   floats  keys[block_tokens][kv_dim], then values[block_tokens][kv_dim]
//
// One step:  Append(tokens) -> for each layer: write at Writable, Read all blocks -> Commit
//
// A miss (IsMiss) is no failure: length() has shrunk, and the tokens from there on are computed
// again. One thread.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace llm {

class Kv {
 public:
  virtual ~Kv() = default;

  // Tokens whose KV is here and committed.
  virtual std::size_t length() const = 0;
  // Takes over what is cached of a prompt's beginning, in whole blocks. REQUIRES: nothing appended.
  virtual std::size_t Match(absl::Span<const int> tokens) = 0;
  // Room for these behind length(). Without a Commit the next Append takes their place.
  virtual absl::Status Append(absl::Span<const int> tokens) = 0;
  // Where the KV of the block that was appended to goes. Valid until Commit.
  virtual float* Writable(std::size_t layer, std::size_t block) = 0;
  // Some blocks of a layer from `first` on, at least one; valid until the next Read or Commit.
  virtual absl::Status Read(std::size_t layer, std::size_t first,
                            std::vector<const float*>& blocks) = 0;
  // A hint that this layer is read next.
  virtual void Prefetch(std::size_t layer) = 0;
  // The KV of what was appended is written.
  virtual absl::Status Commit() = 0;

  // Between steps: lets the whole sequence leave the fastest tier; and back again. A miss as above.
  virtual absl::Status Suspend() = 0;
  virtual absl::Status Resume() = 0;
};

// Cached KV is gone: length() says from where on to compute again.
bool IsMiss(const absl::Status& status);

}  // namespace llm
