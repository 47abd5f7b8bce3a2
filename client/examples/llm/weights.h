// SPDX-License-Identifier: Apache-2.0
//
// Where the weights come from while the model runs, layer by layer. The source owns what it shows;
// one thread.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "checkpoint.h"

namespace llm {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Valid until the next Layer of this source. Errors: of what holds the weights; none from a file.
  // REQUIRES: `index` is a layer of the model.
  virtual absl::StatusOr<LayerWeights> Layer(std::size_t index) = 0;
  // Valid as long as the source.
  virtual GlobalWeights Globals() = 0;
};

// Straight from the mapped checkpoint, which must outlive it.
class FileWeights final : public WeightSource {
 public:
  explicit FileWeights(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  absl::StatusOr<LayerWeights> Layer(std::size_t index) override {
    return checkpoint_.layer(index);
  }
  GlobalWeights Globals() override { return checkpoint_.globals(); }

 private:
  const Checkpoint& checkpoint_;
};

}  // namespace llm
