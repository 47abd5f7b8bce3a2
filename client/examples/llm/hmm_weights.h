// SPDX-License-Identifier: Apache-2.0
//
// Weights as tensors of hmmd, one a layer and one for what belongs to no layer: sealed under the
// model's digest, so that every process of the tenant uses the same bytes and only the first reads
// the checkpoint. Layers are streamed: while one computes, the next is on its way to HBM.
//
// One thread.
#pragma once

#include <hmm/client.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint.h"
#include "weights.h"

namespace llm {

using TierKinds = std::map<std::string, std::string>;  // by the tiers' names: hbm, ddr or flash

struct WeightStats {
  std::map<std::string, std::uint64_t> hits;  // layers used, by the tier they were found in
  std::chrono::nanoseconds wait{0};           // for layers that were not there
  // Came up for us, each time once: waited for, or there when used after a hint.
  std::uint64_t brought_bytes = 0;
  std::uint64_t loaded_bytes = 0;  // from the checkpoint
};

class HmmWeights final : public WeightSource {
 public:
  // Attaches to the weights under `digest`, and loads those that are not there from the checkpoint.
  // `client` and `checkpoint` must outlive it. `tier`: where layers have to be to compute; empty:
  // the session's HBM is asked for, and any mapped tier will do.
  static absl::StatusOr<std::unique_ptr<HmmWeights>> Open(hmm::Client& client,
                                                          const Checkpoint& checkpoint,
                                                          const std::string& digest,
                                                          const std::string& tier);

  absl::StatusOr<LayerWeights> Layer(std::size_t index) override;
  GlobalWeights Globals() override;
  const WeightStats& stats() const { return stats_; }

 private:
  HmmWeights(hmm::Client& client, const Checkpoint& checkpoint, std::string digest,
             std::string tier);
  // The tensor is the key's, or new from the checkpoint. `piece`: a layer, or layers() for globals.
  absl::StatusOr<hmm::Held> FindOrLoad(std::size_t piece);
  absl::StatusOr<hmm::Pin> Get(std::size_t piece);
  // A layer is about to be used. REQUIRES: `pin` is of it.
  void Count(std::size_t piece, const hmm::Pin& pin);
  bool Usable(const hmm::Pin& pin) const { return tier_.empty() || pin.tier() == tier_; }

  hmm::Client& client_;
  const Checkpoint& checkpoint_;
  const ModelShape shape_;
  const std::string digest_;
  const std::string tier_;
  std::vector<hmm::Tensor> pieces_;  // layers, then globals
  std::vector<bool> hinted_;         // by piece: while it was not usable, and not used since
  hmm::Pin layer_;                   // of the layer that computes
  hmm::Pin globals_;
  bool checked_ = false;  // that the checkpoint's are numbers
  WeightStats stats_;
};

}  // namespace llm
