// SPDX-License-Identifier: Apache-2.0
//
// Builds a model's graph op by op, and from what was built the way back: gradients in reverse, then
// Adam. Internal to generate*.cc. Thread-compatible.
//
//   forward    x --norm--> h --qkv--> q k v ...        kept: what the way back reads again
//   backward   gx <-norm.bwd- gh <-qkv.bwd- gq gk gv   each reads the gradients of the outputs,
//   what
//                                                      was kept and the weights; writes gradients
// A storage that two ops read gets one gradient: the first op on the way back makes it, the others
// add to it in place.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/graph.h"

namespace hmm::graph::internal {

// Stays at the top instead of overflowing; no storage may be as large.
constexpr std::uint64_t Product(std::initializer_list<std::uint64_t> factors) {
  std::uint64_t product = 1;
  for (const std::uint64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) {
      return std::numeric_limits<std::uint64_t>::max();
    }
  }
  return product;
}

using Ids = std::vector<plan::StorageIndex>;

// An op on the way there, and what the way back needs of it.
struct Step {
  std::string name;
  std::string type;
  Ids inputs = {};   // read; their gradients are wanted
  Ids data = {};     // read; they have none (token ids, the cache)
  Ids weights = {};  // read, there and (but for weights_back) back
  Ids outputs = {};  // written; what is among the inputs as well is changed in place
  Ids kept = {};     // read again on the way back
  std::optional<std::uint32_t> group = {};
  double flops = 0;
  double back_flops = 0;
  Bytes workspace = 0;
  bool weights_back = true;  // the way back reads the weights too
  bool has_way_back = true;
};

class ModelTape {
 public:
  ModelTape(std::string name, bool train, std::uint64_t weight_dtype_bytes,
            std::uint64_t gradient_dtype_bytes);

  bool train() const { return train_; }
  plan::Storage& storage(plan::StorageIndex s) { return graph_.storages[s]; }

  plan::StorageIndex Weight(const std::string& name, std::uint64_t parameters);
  plan::StorageIndex Activation(const std::string& name, Bytes bytes,
                                TensorKind kind = TensorKind::kActivation);
  std::uint32_t Group(const std::string& name, Ids members, std::uint64_t k);

  void Run(Step step);
  // sum = all of them added; the sum's gradient is theirs. Without training, the first becomes the
  // sum in place. Returns the sum.
  plan::StorageIndex Add(const std::string& name, Ids terms);

  // From `seed`, whose gradient has been written in its place, back to the weights.
  void Backward(plan::StorageIndex seed);
  // A step of Adam for each weight: bf16/fp8 weights with a master copy and two moments in fp32.
  void Adam();

  // INVALID_ARGUMENT/BAD_ARGUMENT if a size or a count exceeds what a graph may have.
  absl::StatusOr<plan::Graph> Finish() &&;

 private:
  struct Taped {
    Step step;
    bool is_add = false;
  };

  void Emit(plan::Op op, Ids reads, Ids writes);
  void Back(const Step& step);
  void BackAdd(const Step& step);
  // The gradient of `s`; made now if there is none yet, else also to be read.
  plan::StorageIndex Accumulate(plan::StorageIndex s, Ids& reads);
  Ids WeightsOf(const Step& step) const;

  plan::Graph graph_;
  bool train_;
  std::uint64_t weight_dtype_bytes_;
  std::uint64_t gradient_dtype_bytes_;
  bool too_large_ = false;
  std::vector<Taped> tape_;
  std::vector<std::pair<plan::StorageIndex, std::uint64_t>> weights_;  // and their parameters
  std::unordered_map<plan::StorageIndex, std::uint64_t> parameters_;
  std::unordered_map<plan::StorageIndex, plan::StorageIndex> gradient_;
};

}  // namespace hmm::graph::internal
