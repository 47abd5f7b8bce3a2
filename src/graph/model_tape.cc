// SPDX-License-Identifier: Apache-2.0
#include "graph/model_tape.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "graph/graph_proto.h"
#include "plan/lifetimes.h"

namespace hmm::graph::internal {
namespace {

constexpr Bytes kStorageMax = Bytes{1} << 61;
// fp32 master weight, first and second moment; Rajbhandari et al., "ZeRO", arXiv 1910.02054, 3.1.
constexpr std::uint64_t kAdamBytes = 12;
constexpr double kAdamFlops = 16;  // a parameter

void SortUnique(Ids& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

void Append(Ids& to, const Ids& from) { to.insert(to.end(), from.begin(), from.end()); }

}  // namespace

ModelTape::ModelTape(std::string name, bool train, std::uint64_t weight_dtype_bytes,
                     std::uint64_t gradient_dtype_bytes)
    : train_(train),
      weight_dtype_bytes_(weight_dtype_bytes),
      gradient_dtype_bytes_(gradient_dtype_bytes) {
  graph_.name = std::move(name);
}

plan::StorageIndex ModelTape::Activation(const std::string& name, Bytes bytes, TensorKind kind) {
  if (bytes > kStorageMax) {
    too_large_ = true;
    bytes = 1;
  }
  plan::Storage storage;
  storage.name = name;
  storage.bytes = bytes;
  storage.kind = kind;
  graph_.storages.push_back(std::move(storage));
  return static_cast<plan::StorageIndex>(graph_.storages.size() - 1);
}

plan::StorageIndex ModelTape::Weight(const std::string& name, std::uint64_t parameters) {
  const plan::StorageIndex s =
      Activation(name, Product({parameters, weight_dtype_bytes_}), TensorKind::kWeight);
  storage(s).persistent = true;
  weights_.emplace_back(s, parameters);
  parameters_[s] = parameters;
  return s;
}

std::uint32_t ModelTape::Group(const std::string& name, Ids members, std::uint64_t k) {
  plan::DataDependentGroup group;
  group.name = name;
  group.members = std::move(members);
  group.k = static_cast<std::uint32_t>(k);
  graph_.groups.push_back(std::move(group));
  return static_cast<std::uint32_t>(graph_.groups.size() - 1);
}

void ModelTape::Emit(plan::Op op, Ids reads, Ids writes) {
  SortUnique(reads);
  SortUnique(writes);
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  if (op.workspace > kStorageMax) too_large_ = true;
  graph_.ops.push_back(std::move(op));
}

void ModelTape::Run(Step step) {
  plan::Op op;
  op.name = step.name;
  op.type = step.type;
  op.group = step.group;
  op.flops = step.flops;
  op.workspace = step.workspace;
  Ids reads = step.inputs;
  Append(reads, step.data);
  Append(reads, step.weights);
  Emit(std::move(op), std::move(reads), step.outputs);
  if (train_ && step.has_way_back) tape_.push_back({std::move(step), false});
}

plan::StorageIndex ModelTape::Add(const std::string& name, Ids terms) {
  HMM_CHECK(terms.size() > 1);
  const Bytes bytes = storage(terms[0]).bytes;
  const plan::StorageIndex sum = train_ ? Activation(name, bytes) : terms[0];
  plan::Op op;
  op.name = name;
  op.type = "Add";
  op.flops =
      static_cast<double>(bytes / gradient_dtype_bytes_) * static_cast<double>(terms.size() - 1);
  Emit(std::move(op), terms, {sum});
  if (train_) {
    Step step;
    step.inputs = std::move(terms);
    step.outputs = {sum};
    tape_.push_back({std::move(step), true});
  }
  return sum;
}

plan::StorageIndex ModelTape::Accumulate(plan::StorageIndex s, Ids& reads) {
  const auto found = gradient_.find(s);
  if (found != gradient_.end()) {
    reads.push_back(found->second);
    return found->second;
  }
  const auto parameters = parameters_.find(s);
  const bool weight = parameters != parameters_.end();
  const Bytes bytes =
      weight ? Product({parameters->second, gradient_dtype_bytes_}) : storage(s).bytes;
  const plan::StorageIndex gradient = Activation(
      storage(s).name + ".grad", bytes, weight ? TensorKind::kOther : TensorKind::kActivation);
  gradient_[s] = gradient;
  return gradient;
}

Ids ModelTape::WeightsOf(const Step& step) const {
  Ids weights = step.weights;
  if (step.group.has_value()) Append(weights, graph_.groups[*step.group].members);
  return weights;
}

void ModelTape::Back(const Step& step) {
  plan::Op op;
  op.name = step.name + ".bwd";
  op.type = step.type + "Grad";
  op.group = step.group;
  op.flops = step.back_flops;
  op.workspace = step.workspace;
  Ids reads = step.kept;
  if (step.weights_back) Append(reads, step.weights);
  Append(reads, step.data);
  Ids writes;
  for (const plan::StorageIndex s : step.outputs) {
    const auto found = gradient_.find(s);
    if (found == gradient_.end()) continue;  // nothing that counts depends on it
    reads.push_back(found->second);
  }
  for (const plan::StorageIndex s : step.inputs) writes.push_back(Accumulate(s, reads));
  for (const plan::StorageIndex s : WeightsOf(step)) writes.push_back(Accumulate(s, reads));
  Emit(std::move(op), std::move(reads), std::move(writes));
}

// The gradient of a sum is that of each term: nothing runs, unless a term has one already.
void ModelTape::BackAdd(const Step& step) {
  const plan::StorageIndex gradient = gradient_.at(step.outputs[0]);
  for (const plan::StorageIndex s : step.inputs) {
    // The residual stream passes each Add once, so no term has been met before.
    HMM_CHECK(gradient_.emplace(s, gradient).second);
  }
}

void ModelTape::Backward(plan::StorageIndex seed) {
  HMM_CHECK(train_);
  gradient_[seed] = seed;
  for (auto it = tape_.rbegin(); it != tape_.rend(); ++it) {
    const bool reached =
        std::any_of(it->step.outputs.begin(), it->step.outputs.end(),
                    [this](plan::StorageIndex s) { return gradient_.contains(s); });
    if (!reached) continue;
    it->is_add ? BackAdd(it->step) : Back(it->step);
  }
}

void ModelTape::Adam() {
  const auto last = static_cast<plan::OpIndex>(graph_.ops.size() - 1);
  for (const auto& [weight, parameters] : weights_) {
    const auto gradient = gradient_.find(weight);
    HMM_CHECK(gradient != gradient_.end());
    const std::string name = storage(weight).name;
    const plan::StorageIndex state =
        Activation(name + ".adam", Product({parameters, kAdamBytes}), TensorKind::kOptimizerState);
    storage(state).persistent = true;
    plan::Op op;
    op.name = name + ".step";
    op.type = "Adam";
    op.flops = kAdamFlops * static_cast<double>(parameters);
    op.after = {last};  // gradients are clipped by the norm of all of them
    Emit(std::move(op), {gradient->second, weight, state}, {weight, state});
  }
}

absl::StatusOr<plan::Graph> ModelTape::Finish() && {
  const auto bad = [](const std::string& what) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument, what);
  };
  if (too_large_) return bad("a tensor of this model would exceed 2^61 bytes");
  if (graph_.ops.size() > kOpsMax || graph_.storages.size() > kStoragesMax) {
    return bad(absl::StrCat("the model has ", graph_.ops.size(), " ops and ",
                            graph_.storages.size(), " tensors; the limits are ", kOpsMax, " and ",
                            kStoragesMax));
  }
  HMM_RETURN_IF_ERROR(plan::CheckGraph(graph_));
  return std::move(graph_);
}

}  // namespace hmm::graph::internal
