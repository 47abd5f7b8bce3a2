// SPDX-License-Identifier: Apache-2.0
#include "local_kv.h"

#include <hmm/kv_cache.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace llm {

class LocalKv final : public Kv {
 public:
  explicit LocalKv(LocalCache& cache) : cache_(cache) {}
  ~LocalKv() override {
    // The start of a prefix last: it then goes last.
    for (auto key = keys_.rbegin(); key != keys_.rend(); ++key) cache_.Touch(*key);
  }

  std::size_t length() const override { return tokens_.size(); }

  std::size_t Match(absl::Span<const int> tokens) override {
    const std::size_t n = cache_.block_tokens_;
    while (tokens_.size() + n <= tokens.size()) {
      const auto part = tokens.subspan(tokens_.size(), n);
      std::string key = NextKey(part);
      LocalCache::Block block = cache_.Find(key);
      if (block == nullptr) break;
      blocks_.push_back(std::move(block));
      keys_.push_back(std::move(key));
      tokens_.insert(tokens_.end(), part.begin(), part.end());
    }
    cache_.matched_tokens_ += tokens_.size();
    return tokens_.size();
  }

  absl::Status Append(absl::Span<const int> tokens) override {
    appended_.assign(tokens.begin(), tokens.end());
    const std::size_t n = cache_.block_tokens_;
    const std::size_t blocks = (tokens_.size() + tokens.size() + n - 1) / n;
    while (blocks_.size() < blocks) blocks_.push_back(cache_.New());
    return absl::OkStatus();
  }

  float* Writable(std::size_t layer, std::size_t block) override {
    return blocks_[block]->data() + layer * cache_.layer_floats_;
  }

  absl::Status Read(std::size_t layer, std::size_t first,
                    std::vector<const float*>& blocks) override {
    blocks.clear();
    for (std::size_t b = first; b < blocks_.size(); ++b) blocks.push_back(Writable(layer, b));
    return absl::OkStatus();
  }

  void Prefetch(std::size_t) override {}

  absl::Status Commit() override {
    tokens_.insert(tokens_.end(), appended_.begin(), appended_.end());
    appended_.clear();
    const std::size_t n = cache_.block_tokens_;
    while ((keys_.size() + 1) * n <= tokens_.size()) {
      keys_.push_back(NextKey(absl::MakeConstSpan(tokens_).subspan(keys_.size() * n, n)));
      cache_.Put(keys_.back(), blocks_[keys_.size() - 1]);
    }
    return absl::OkStatus();
  }

  absl::Status Suspend() override { return absl::OkStatus(); }
  absl::Status Resume() override { return absl::OkStatus(); }

 private:
  std::string NextKey(absl::Span<const int> tokens) const {
    std::string bytes = keys_.empty() ? std::string() : keys_.back();
    bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int));
    return hmm::KvCache::Digest({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
  }

  LocalCache& cache_;
  std::vector<int> tokens_;
  std::vector<int> appended_;
  std::vector<std::string> keys_;  // of full blocks
  std::vector<LocalCache::Block> blocks_;
};

LocalCache::LocalCache(const ModelShape& shape, std::size_t block_tokens, std::uint64_t bytes_max)
    : shape_(shape),
      block_tokens_(block_tokens),
      layer_floats_(block_tokens * shape.token_bytes() / sizeof(float)),
      blocks_max_(bytes_max == 0 ? std::numeric_limits<std::uint64_t>::max()
                                 : bytes_max / (layer_floats_ * shape.layers * sizeof(float))) {}

std::unique_ptr<Kv> LocalCache::Open() { return std::make_unique<LocalKv>(*this); }

LocalCache::Block LocalCache::New() {
  Shrink(1);
  ++blocks_;
  return {new std::vector<float>(layer_floats_ * shape_.layers), [this](std::vector<float>* block) {
            --blocks_;
            delete block;
          }};
}

void LocalCache::Shrink(std::uint64_t room) {
  for (auto at = recency_.end(); blocks_ + room > blocks_max_ && at != recency_.begin();) {
    --at;
    const auto entry = entries_.find(*at);
    if (entry->second.block.use_count() > 1) continue;  // a sequence has it
    entries_.erase(entry);
    at = recency_.erase(at);
  }
}

void LocalCache::Touch(const std::string& key) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return;
  recency_.splice(recency_.begin(), recency_, entry->second.recency);
}

LocalCache::Block LocalCache::Find(const std::string& key) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return nullptr;
  Touch(key);
  return entry->second.block;
}

void LocalCache::Put(const std::string& key, const Block& block) {
  if (entries_.contains(key)) return;
  recency_.push_front(key);
  entries_.emplace(key, Entry{block, recency_.begin()});
}

}  // namespace llm
