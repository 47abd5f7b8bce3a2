// SPDX-License-Identifier: Apache-2.0
//
// The architecture, layer by layer. A matrix product of [m, k] and [k, n] is 2 m k n FLOPs, and
// twice that on the way back; causal attention counts the pairs that the mask leaves.
#include "graph/generate.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/model_tape.h"

namespace hmm::graph {
namespace {

using internal::Ids;
using internal::ModelTape;
using internal::Product;
using internal::Step;
using plan::StorageIndex;

constexpr double kNormFlops = 4, kRopeFlops = 3, kSwigluFlops = 5;  // an element
constexpr double kBackAttention = 2.5;  // of the way there: five products in place of two
constexpr std::uint64_t kExpertsOfAllLayersMax = 1 << 21;
constexpr std::uint64_t kTokenIdBytes = 4, kStatisticBytes = 4;

double Real(std::uint64_t n) { return static_cast<double>(n); }

class Model {
 public:
  Model(const ModelShape& shape, const StepShape& step)
      : s_(shape),
        t_(step),
        tape_(absl::StrCat(shape.name, "-", std::string(PhaseName(step.phase))),
              step.phase == Phase::kTrain, step.weight_dtype_bytes, step.activation_dtype_bytes),
        rows_(Product({step.batch, step.tokens})),
        dim_(shape.head_dim == 0 && shape.heads > 0 ? shape.hidden / shape.heads : shape.head_dim),
        expert_ffn_(shape.expert_ffn == 0 ? shape.ffn : shape.expert_ffn) {}

  absl::StatusOr<plan::Graph> Build() && {
    const StorageIndex ids = tape_.Activation("token_ids", Product({rows_, kTokenIdBytes}));
    tape_.storage(ids).input = true;
    const StorageIndex table = tape_.Weight("embedding", Product({s_.vocab, s_.hidden}));
    StorageIndex x = Activation("embedded", rows_, s_.hidden);
    tape_.Run({.name = "embed",
               .type = "Gather",
               .data = {ids},
               .weights = {table},
               .outputs = {x},
               .flops = Real(rows_) * Real(s_.hidden),
               .back_flops = Real(rows_) * Real(s_.hidden),
               .weights_back = false});
    for (std::uint64_t layer = 0; layer < s_.layers; ++layer) {
      prefix_ = absl::StrCat("layers.", layer, ".");
      const StorageIndex h = Norm(Name("attn.norm"), x, rows_, s_.hidden);
      const StorageIndex o = s_.kv_rank > 0 ? Latent(h) : Grouped(h);
      x = tape_.Add(Name("attn.add"), {x, o});
      const StorageIndex h2 = Norm(Name("ffn.norm"), x, rows_, s_.hidden);
      const bool moe = s_.experts > 0 && layer >= s_.dense_layers;
      Ids terms = {x};
      if (moe) {
        Experts(h2, terms);
      } else {
        terms.push_back(Ffn("ffn", h2, s_.ffn));
      }
      x = tape_.Add(Name("ffn.add"), std::move(terms));
    }
    Head(x, table);
    return std::move(tape_).Finish();
  }

 private:
  std::string Name(std::string_view name) const { return absl::StrCat(prefix_, std::string(name)); }

  StorageIndex Activation(const std::string& name, std::uint64_t rows, std::uint64_t width) {
    return tape_.Activation(name, Product({rows, width, t_.activation_dtype_bytes}));
  }

  // Pure and cheap, from what is kept anyway: worth running again.
  StorageIndex Cheap(StorageIndex s) {
    tape_.storage(s).recomputable = true;
    return s;
  }

  StorageIndex Norm(const std::string& name, StorageIndex x, std::uint64_t rows,
                    std::uint64_t width) {
    const StorageIndex weight = tape_.Weight(name + ".weight", width);
    const StorageIndex out = Cheap(Activation(name, rows, width));
    const double flops = kNormFlops * Real(rows) * Real(width);
    tape_.Run({.name = name + ".op",
               .type = "RMSNorm",
               .inputs = {x},
               .weights = {weight},
               .outputs = {out},
               .kept = {x},
               .flops = flops,
               .back_flops = 2 * flops});
    return out;
  }

  // outputs = x times the weights.
  void Linear(const std::string& name, StorageIndex x, Ids weights, Ids outputs, std::uint64_t rows,
              std::uint64_t parameters) {
    const double flops = 2 * Real(rows) * Real(parameters);
    tape_.Run({.name = name + ".op",
               .type = "MatMul",
               .inputs = {x},
               .weights = std::move(weights),
               .outputs = std::move(outputs),
               .kept = {x},
               .flops = flops,
               .back_flops = 2 * flops});
  }

  StorageIndex Project(const std::string& name, StorageIndex x, std::uint64_t rows,
                       std::uint64_t from, std::uint64_t to) {
    const StorageIndex weight = tape_.Weight(name + ".weight", Product({from, to}));
    const StorageIndex out = Activation(name, rows, to);
    Linear(name, x, {weight}, {out}, rows, Product({from, to}));
    return out;
  }

  void Rope(Ids in_place, std::uint64_t width) {
    const double flops = kRopeFlops * Real(rows_) * Real(width);
    Ids outputs = in_place;
    tape_.Run({.name = Name("attn.rope"),
               .type = "RoPE",
               .inputs = std::move(in_place),
               .outputs = std::move(outputs),
               .flops = flops,
               .back_flops = flops});
  }

  // Pairs of a query and a key that it sees, over all sequences.
  double Pairs() const {
    return Real(t_.batch) *
           (Real(t_.tokens) * Real(t_.context) + Real(t_.tokens) * (Real(t_.tokens) + 1) / 2);
  }

  // The cache of the tokens before this step, into `data` if there are any.
  void Past(std::uint64_t width, Ids& data) {
    if (t_.context == 0) return;
    const StorageIndex past =
        tape_.Activation(Name("kv.past"), Product({t_.batch, t_.context, width, t_.kv_dtype_bytes}),
                         TensorKind::kKvCache);
    tape_.storage(past).persistent = true;
    data.push_back(past);
  }

  StorageIndex NewCache(std::uint64_t width) {
    const StorageIndex cache = tape_.Activation(
        Name("kv.new"), Product({rows_, width, t_.kv_dtype_bytes}), TensorKind::kKvCache);
    tape_.storage(cache).output = true;
    return cache;
  }

  // Attention proper. `flops`: a pair's, of one head. Keeps the softmax's statistics in training.
  StorageIndex Attend(Ids inputs, Ids data, Ids weights, std::uint64_t width, double flops,
                      double more_flops) {
    const StorageIndex out = Activation(Name("attn"), rows_, Product({s_.heads, width}));
    const Bytes statistics = Product({rows_, s_.heads, kStatisticBytes});
    Step step{.name = Name("attn.op"),
              .type = "Attention",
              .inputs = std::move(inputs),
              .data = std::move(data),
              .weights = std::move(weights),
              .outputs = {out}};
    step.flops = Pairs() * Real(s_.heads) * flops + more_flops;
    step.back_flops = kBackAttention * step.flops;
    if (tape_.train()) {
      step.outputs.push_back(tape_.Activation(Name("attn.lse"), statistics));
      step.kept = step.inputs;
      step.kept.insert(step.kept.end(), step.outputs.begin(), step.outputs.end());
    } else {
      step.workspace = statistics;
    }
    tape_.Run(std::move(step));
    return Project(Name("attn.out"), out, rows_, Product({s_.heads, width}), s_.hidden);
  }

  // Grouped-query attention.
  StorageIndex Grouped(StorageIndex h) {
    const std::uint64_t q_width = s_.heads * dim_, kv_width = s_.kv_heads * dim_;
    const Ids weights = {tape_.Weight(Name("attn.q.weight"), Product({s_.hidden, q_width})),
                         tape_.Weight(Name("attn.k.weight"), Product({s_.hidden, kv_width})),
                         tape_.Weight(Name("attn.v.weight"), Product({s_.hidden, kv_width}))};
    const StorageIndex q = Activation(Name("attn.q"), rows_, q_width);
    const StorageIndex k = Activation(Name("attn.k"), rows_, kv_width);
    const StorageIndex v = Activation(Name("attn.v"), rows_, kv_width);
    Linear(Name("attn.qkv"), h, weights, {q, k, v}, rows_,
           Product({s_.hidden, q_width + 2 * kv_width}));
    Rope({q, k}, q_width + kv_width);
    const double flops = 4 * Real(dim_);
    if (tape_.train()) return Attend({q, k, v}, {}, {}, dim_, flops, 0);
    const StorageIndex cache = NewCache(2 * kv_width);
    tape_.Run({.name = Name("kv.append"),
               .type = "KvAppend",
               .inputs = {k, v},
               .outputs = {cache},
               .flops = 2 * Real(rows_) * Real(kv_width)});
    Ids data = {cache};
    Past(2 * kv_width, data);
    return Attend({q}, std::move(data), {}, dim_, flops, 0);
  }

  // Multi-head latent attention: the cache holds a compressed key-value and one key with position.
  // Decoding works on the cache as it is (its up-projection absorbed into query and output);
  // prefill and training expand it.
  StorageIndex Latent(StorageIndex h) {
    const std::uint64_t head = s_.nope_dim + s_.rope_dim, latent = s_.kv_rank + s_.rope_dim;
    const std::uint64_t up = s_.heads * (s_.nope_dim + s_.v_dim);
    const StorageIndex down = Project(Name("attn.q_down"), h, rows_, s_.hidden, s_.q_rank);
    const StorageIndex normed = Norm(Name("attn.q_norm"), down, rows_, s_.q_rank);
    const StorageIndex q = Project(Name("attn.q"), normed, rows_, s_.q_rank, s_.heads * head);
    const StorageIndex kv_down = Project(Name("attn.kv_down"), h, rows_, s_.hidden, latent);
    const StorageIndex kv_norm = tape_.Weight(Name("attn.kv_norm.weight"), s_.kv_rank);
    const StorageIndex cache =
        tape_.train() ? Activation(Name("kv"), rows_, latent) : NewCache(latent);
    const double norm_flops = kNormFlops * Real(rows_) * Real(latent);
    tape_.Run({.name = Name("kv.append"),
               .type = "KvAppend",
               .inputs = {kv_down},
               .weights = {kv_norm},
               .outputs = {cache},
               .kept = {kv_down},
               .flops = norm_flops,
               .back_flops = 2 * norm_flops});
    Rope({q, cache}, s_.heads * s_.rope_dim + s_.rope_dim);
    const StorageIndex up_weight =
        tape_.Weight(Name("attn.kv_up.weight"), Product({s_.kv_rank, up}));
    Ids past;
    Past(latent, past);
    if (t_.phase == Phase::kDecode) {
      past.push_back(cache);
      return Attend({q}, std::move(past), {up_weight}, s_.v_dim,
                    2 * Real(latent) + 2 * Real(s_.kv_rank),
                    2 * Real(rows_) * Real(s_.kv_rank) * Real(up));
    }
    const std::uint64_t keys = Product({t_.batch, t_.context + t_.tokens});
    const StorageIndex expanded = Activation(Name("attn.kv"), keys, up);
    const double flops = 2 * Real(keys) * Real(s_.kv_rank) * Real(up);
    tape_.Run({.name = Name("attn.kv_up.op"),
               .type = "MatMul",
               .inputs = {cache},
               .data = past,
               .weights = {up_weight},
               .outputs = {expanded},
               .kept = {cache},
               .flops = flops,
               .back_flops = 2 * flops});
    return Attend({q, expanded, cache}, std::move(past), {}, s_.v_dim,
                  2 * Real(head) + 2 * Real(s_.v_dim), 0);
  }

  StorageIndex Ffn(std::string_view name, StorageIndex h, std::uint64_t width) {
    const std::string at = Name(name);
    const std::uint64_t matrix = Product({s_.hidden, width});
    const Ids weights = {tape_.Weight(at + ".gate.weight", matrix),
                         tape_.Weight(at + ".up.weight", matrix)};
    const StorageIndex inner = Activation(at + ".gate_up", rows_, 2 * width);
    Linear(at + ".gate_up", h, weights, {inner}, rows_, Product({2, matrix}));
    const StorageIndex act = Cheap(Activation(at + ".act", rows_, width));
    const double flops = kSwigluFlops * Real(rows_) * Real(width);
    tape_.Run({.name = at + ".act.op",
               .type = "SwiGLU",
               .inputs = {inner},
               .outputs = {act},
               .kept = {inner},
               .flops = flops,
               .back_flops = 2 * flops});
    return Project(at + ".down", act, rows_, width, s_.hidden);
  }

  // Appends to `terms` what the routed and the shared experts give.
  void Experts(StorageIndex h, Ids& terms) {
    const std::uint64_t routed = Product({rows_, s_.top_k});
    const StorageIndex routes = Project(Name("router"), h, rows_, s_.hidden, s_.experts);
    const StorageIndex sent = Activation(Name("experts.in"), routed, s_.hidden);
    const double copy = Real(routed) * Real(s_.hidden);
    tape_.Run({.name = Name("experts.dispatch"),
               .type = "Dispatch",
               .inputs = {h},
               .data = {routes},
               .outputs = {sent},
               .flops = copy,
               .back_flops = copy});
    Ids members;
    for (std::uint64_t e = 0; e < s_.experts; ++e) {
      members.push_back(tape_.Weight(Name(absl::StrCat("experts.", e, ".weight")),
                                     Product({3, s_.hidden, expert_ffn_})));
    }
    const StorageIndex got = Activation(Name("experts.out"), routed, s_.hidden);
    Step step{.name = Name("experts.op"),
              .type = "Experts",
              .inputs = {sent},
              .outputs = {got},
              .kept = {sent}};
    step.group = tape_.Group(Name("experts"), std::move(members), std::min(s_.experts, routed));
    step.flops = 6 * Real(routed) * Real(s_.hidden) * Real(expert_ffn_);
    step.back_flops = 2 * step.flops;
    // Gate, up and their product.
    const Bytes inner = Product({routed, 3, expert_ffn_, t_.activation_dtype_bytes});
    if (tape_.train()) {
      step.outputs.push_back(tape_.Activation(Name("experts.inner"), inner));
      step.kept.push_back(step.outputs.back());
    } else {
      step.workspace = inner;
    }
    tape_.Run(std::move(step));
    const StorageIndex sum = Activation(Name("experts.sum"), rows_, s_.hidden);
    tape_.Run({.name = Name("experts.combine"),
               .type = "Combine",
               .inputs = {got, routes},
               .outputs = {sum},
               .kept = {got, routes},
               .flops = 2 * copy,
               .back_flops = 4 * copy});
    terms.push_back(sum);
    if (s_.shared_experts > 0) {
      terms.push_back(Ffn("shared", h, s_.shared_experts * expert_ffn_));
    }
  }

  void Head(StorageIndex x, StorageIndex table) {
    prefix_.clear();
    // Prefill needs the last token of each sequence alone.
    const std::uint64_t rows = t_.phase == Phase::kPrefill ? t_.batch : rows_;
    const StorageIndex normed = Norm("norm", x, rows, s_.hidden);
    const StorageIndex weight =
        s_.tied_embedding ? table : tape_.Weight("head.weight", Product({s_.vocab, s_.hidden}));
    const StorageIndex logits = Activation("logits", rows, s_.vocab);
    Linear("head", normed, {weight}, {logits}, rows, Product({s_.vocab, s_.hidden}));
    if (!tape_.train()) {
      tape_.storage(logits).output = true;
      return;
    }
    const StorageIndex labels = tape_.Activation("labels", Product({rows, kTokenIdBytes}));
    tape_.storage(labels).input = true;
    const StorageIndex loss = tape_.Activation("loss", kStatisticBytes);
    tape_.storage(loss).output = true;
    // Writes the gradient over the logits, as fused cross entropies do.
    tape_.Run({.name = "loss.op",
               .type = "CrossEntropy",
               .inputs = {logits},
               .data = {labels},
               .outputs = {loss, logits},
               .flops = 5 * Real(rows) * Real(s_.vocab),
               .has_way_back = false});
    tape_.Backward(logits);
    tape_.Adam();
  }

  const ModelShape& s_;
  const StepShape& t_;
  ModelTape tape_;
  std::string prefix_;
  std::uint64_t rows_;  // tokens of all sequences
  std::uint64_t dim_;
  std::uint64_t expert_ffn_;
};

absl::Status Bad(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument, what);
}

}  // namespace

absl::StatusOr<plan::Graph> GenerateModel(const ModelShape& shape, const StepShape& step) {
  HMM_RETURN_IF_ERROR(CheckModel(shape));
  HMM_RETURN_IF_ERROR(CheckStep(step));
  if (Product({shape.layers, shape.experts}) > kExpertsOfAllLayersMax) {
    return Bad(absl::StrCat("experts: ", shape.experts, " in each of ", shape.layers,
                            " layers are more tensors than a graph may have"));
  }
  return Model(shape, step).Build();
}

absl::StatusOr<plan::Graph> GenerateLlama(const ModelShape& shape, const StepShape& step) {
  if (shape.experts > 0) return Bad("experts: a llama has none; generate a moe");
  return GenerateModel(shape, step);
}

absl::StatusOr<plan::Graph> GenerateMoe(const ModelShape& shape, const StepShape& step) {
  if (shape.experts == 0) return Bad("experts: a moe has at least 1; generate a llama");
  return GenerateModel(shape, step);
}

}  // namespace hmm::graph
