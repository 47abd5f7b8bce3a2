// SPDX-License-Identifier: Apache-2.0
#include "hmm_kv.h"

#include <utility>
#include <vector>

namespace llm {
namespace {

class HmmKv final : public Kv {
 public:
  HmmKv(hmm::KvCache& cache, std::string suspend_to)
      : sequence_(cache.Open()), suspend_to_(std::move(suspend_to)) {}

  std::size_t length() const override { return sequence_.length(); }

  std::size_t Match(absl::Span<const int> tokens) override { return sequence_.Match(tokens); }

  absl::Status Append(absl::Span<const int> tokens) override { return sequence_.Append(tokens); }

  float* Writable(std::size_t layer, std::size_t block) override {
    return reinterpret_cast<float*>(sequence_.Writable(layer, block).data());
  }

  absl::Status Read(std::size_t layer, std::size_t first,
                    std::vector<const float*>& blocks) override {
    // The pins of the window before go here, those of this one stay while the model computes.
    const absl::Status status = sequence_.Read(layer, first, pinned_);
    blocks.clear();
    for (const hmm::KvBlock& block : pinned_) {
      blocks.push_back(reinterpret_cast<const float*>(block.data));
    }
    return status;
  }

  void Prefetch(std::size_t layer) override { sequence_.PrefetchLayer(layer); }

  absl::Status Commit() override {
    pinned_.clear();
    return sequence_.Commit();
  }

  absl::Status Suspend() override {
    pinned_.clear();
    const absl::Status done = sequence_.Suspend(suspend_to_);
    // What finds no room there now stays where it is, which costs others room and no text.
    return absl::IsResourceExhausted(done) || absl::IsDeadlineExceeded(done) ? absl::OkStatus()
                                                                             : done;
  }

  absl::Status Resume() override { return sequence_.Resume(); }

 private:
  hmm::KvSequence sequence_;
  std::vector<hmm::KvBlock> pinned_;
  const std::string suspend_to_;
};

}  // namespace

bool IsMiss(const absl::Status& status) { return hmm::KvCache::IsMiss(status); }

std::unique_ptr<Kv> OpenHmmKv(hmm::KvCache& cache, std::string suspend_to) {
  return std::make_unique<HmmKv>(cache, std::move(suspend_to));
}

}  // namespace llm
