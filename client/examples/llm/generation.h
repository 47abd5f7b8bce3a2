// SPDX-License-Identifier: Apache-2.0
//
// One text being written: its tokens, its KV cache and its sampler, all its own. One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kv.h"
#include "model.h"
#include "sampler.h"

namespace llm {

class Generation {
 public:
  // `chunk`: prompt tokens computed at once. REQUIRES: `prompt` is not empty.
  Generation(std::vector<int> prompt, std::unique_ptr<Kv> kv, std::size_t block_tokens,
             std::size_t chunk, Sampler sampler);

  // The next token, which is then part of tokens(). The first call computes the prompt, but for
  // what of it is cached. After a miss it computes what was lost. RESOURCE_EXHAUSTED when the cache
  // loses blocks faster than they are computed; other errors are the model's (Model::Forward). The
  // text so far stands after an error. `model` is only used during the call.
  absl::StatusOr<int> Next(Model& model);

  const std::vector<int>& tokens() const { return tokens_; }
  std::size_t prompt_size() const { return prompt_size_; }
  std::size_t skipped() const { return skipped_; }        // prompt tokens found in the cache
  std::size_t recomputed() const { return recomputed_; }  // tokens computed again after misses
  Kv& kv() { return *kv_; }

 private:
  // How many of the tokens behind the KV to compute in one step.
  std::size_t StepSize();

  std::vector<int> tokens_;
  const std::size_t prompt_size_;
  std::unique_ptr<Kv> kv_;
  const std::size_t block_tokens_;
  std::size_t chunk_;
  Sampler sampler_;
  std::size_t skipped_ = 0;
  std::size_t recomputed_ = 0;
  bool started_ = false;
  bool recovering_ = false;  // from a miss: later blocks may still be there
};

}  // namespace llm
