// SPDX-License-Identifier: Apache-2.0
//
// A KV cache in this process's own memory: what the example compares hmm::KvCache with. Full blocks
// stay cached for later prompts, the least recently used go when the cache is larger than it may
// be. Blocks of sequences that run are never dropped.
//
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint.h"
#include "kv.h"

namespace llm {

class LocalCache {
 public:
  // bytes_max 0: no limit.
  LocalCache(const ModelShape& shape, std::size_t block_tokens, std::uint64_t bytes_max);
  std::unique_ptr<Kv> Open();  // must not outlive this

  std::size_t block_tokens() const { return block_tokens_; }
  std::uint64_t matched_tokens() const { return matched_tokens_; }

 private:
  friend class LocalKv;
  // Of all layers, one behind the other.
  using Block = std::shared_ptr<std::vector<float>>;
  struct Entry {
    Block block;
    std::list<std::string>::iterator recency;
  };

  Block New();
  Block Find(const std::string& key);  // and it is the most recent then; null: not here
  void Put(const std::string& key, const Block& block);
  void Touch(const std::string& key);
  void Shrink(std::uint64_t room);  // to have `room` bytes more

  const ModelShape shape_;
  const std::size_t block_tokens_;
  const std::size_t layer_floats_;
  const std::uint64_t blocks_max_;
  std::map<std::string, Entry> entries_;
  std::list<std::string> recency_;  // most recent first
  std::uint64_t blocks_ = 0;        // cached or in use
  std::uint64_t matched_tokens_ = 0;
};

}  // namespace llm
