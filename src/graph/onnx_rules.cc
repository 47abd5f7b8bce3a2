// SPDX-License-Identifier: Apache-2.0
//
// Shapes that the library does not infer: com.microsoft and other custom domains, training ops, and
// ops of later ONNX versions than the library's 17.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "graph/onnx_facts.h"
#include "graph/onnx_model.h"

namespace hmm::graph {
namespace {

using onnx::TensorProto;
using onnx::TypeProto;

// The outputs of one node while a rule fills them.
class Outputs {
 public:
  Outputs(const NodeView& node, std::vector<TypeProto>& types) : node_(node), types_(types) {}

  // Keeps what is whole already. A shape or type that is not known is left as it is.
  void Set(std::size_t index, int element_type, const std::optional<Dims>& dims) {
    if (!node_.HasOutput(index) || index >= types_.size() || !dims.has_value()) return;
    TypeProto& type = types_[index];
    if (StaticShape(type).has_value() && ElementType(type) != 0) return;
    const int known = ElementType(type);
    if (!ElementCount(*dims).has_value()) return;
    SetTensorType(type, known != 0 ? known : element_type, *dims);
  }
  void SameAs(std::size_t output, std::size_t input) {
    Set(output, node_.Type(input), node_.Shape(input));
  }

 private:
  const NodeView& node_;
  std::vector<TypeProto>& types_;
};

using Rule = void (*)(const NodeView&, Outputs&);

void SameAsFirst(const NodeView&, Outputs& out) { out.SameAs(0, 0); }
void SameAsSecond(const NodeView&, Outputs& out) { out.SameAs(0, 1); }
void Pairwise(const NodeView& node, Outputs& out) {
  for (std::size_t i = 0; i < node.outputs(); ++i) out.SameAs(i, i);
}

// Mean and inverse deviation keep a 1 for every axis from `axis` on.
std::optional<Dims> Statistics(const NodeView& node) {
  std::optional<Dims> dims = node.Shape(0);
  if (!dims.has_value()) return std::nullopt;
  const auto axis = Axis(node.Int("axis", -1), dims->size());
  if (!axis.has_value()) return std::nullopt;
  std::fill(dims->begin() + static_cast<std::ptrdiff_t>(*axis), dims->end(), 1);
  return dims;
}
void LayerNorm(const NodeView& node, Outputs& out) {
  out.SameAs(0, 0);
  const int stash = static_cast<int>(node.Int("stash_type", TensorProto::FLOAT));
  out.Set(1, stash, Statistics(node));
  out.Set(2, stash, Statistics(node));
}
void SkipLayerNorm(const NodeView& node, Outputs& out) {
  LayerNorm(node, out);
  out.SameAs(3, 0);
}
void LayerNormGrad(const NodeView&, Outputs& out) {
  out.SameAs(0, 1);
  out.SameAs(1, 2);
  out.SameAs(2, 2);
}

void EmbedLayerNorm(const NodeView& node, Outputs& out) {
  const auto ids = node.Shape(0), words = node.Shape(2);
  if (!ids || !words || ids->size() != 2 || words->size() != 2) return;
  const Dims hidden = {(*ids)[0], (*ids)[1], (*words)[1]};
  out.Set(0, node.Type(2), hidden);
  out.Set(1, TensorProto::INT32, Dims{(*ids)[0]});
  out.Set(2, node.Type(2), hidden);
}

// com.microsoft.Attention: input [B,S,in], weight [in, q+k+v], past [2,B,N,P,H].
void Attention(const NodeView& node, Outputs& out) {
  const auto input = node.Shape(0), weight = node.Shape(1);
  const std::int64_t heads = node.Int("num_heads", 0);
  if (!absl::StartsWith(node.node().domain(), "com.microsoft") || !input || !weight ||
      input->size() != 3 || weight->size() != 2 || heads <= 0) {
    return;
  }
  const auto sizes = node.IntList("qkv_hidden_sizes");
  const std::int64_t hidden = sizes && sizes->size() == 3 ? (*sizes)[2] : (*weight)[1] / 3;
  out.Set(0, node.Type(0), Dims{(*input)[0], (*input)[1], hidden});
  const auto past = node.Shape(4);
  if (node.HasInput(4) && (!past || past->size() != 5)) return;
  if (past && node.Int("past_present_share_buffer", 0) != 0) {
    out.SameAs(1, 4);
    return;
  }
  const std::int64_t before = past ? (*past)[3] : 0;
  out.Set(1, node.Type(0), Dims{2, (*input)[0], heads, before + (*input)[1], hidden / heads});
}

// query [B,S,N*H], key [B,L,N*H], value [B,L,N*Hv]; past key and value [B,N,P,H] at 6 and 7.
void MultiHeadAttention(const NodeView& node, Outputs& out) {
  const auto query = node.Shape(0), key = node.Shape(1), value = node.Shape(2);
  const std::int64_t heads = node.Int("num_heads", 0);
  if (!query || query->size() != 3 || !value || value->size() != 3 || heads <= 0) {
    if (query && query->size() == 3 && !node.HasInput(1)) out.SameAs(0, 0);
    return;
  }
  out.Set(0, node.Type(0), Dims{(*query)[0], (*query)[1], (*value)[2]});
  const auto past = node.Shape(6);
  if (!key || key->size() != 3 || (node.HasInput(6) && (!past || past->size() != 4))) return;
  const std::int64_t length = (past ? (*past)[2] : 0) + (*key)[1];
  out.Set(1, node.Type(0), Dims{(*query)[0], heads, length, (*key)[2] / heads});
  out.Set(2, node.Type(0), Dims{(*query)[0], heads, length, (*value)[2] / heads});
}

// query [B,S,N*H] (all of q, k, v where key is absent); past key and value [B,Nkv,P,H] at 3 and 4;
// the total length, where it is known, at 6.
void GroupQueryAttention(const NodeView& node, Outputs& out) {
  const auto query = node.Shape(0), past = node.Shape(3);
  const std::int64_t heads = node.Int("num_heads", 0), kv_heads = node.Int("kv_num_heads", 0);
  if (!query || query->size() != 3 || heads <= 0 || kv_heads <= 0 || heads > kDimMax ||
      kv_heads > kDimMax) {
    return;
  }
  const bool packed = !node.HasInput(1);
  const std::int64_t head = (*query)[2] / (packed ? heads + 2 * kv_heads : heads);
  out.Set(0, node.Type(0), Dims{(*query)[0], (*query)[1], head * heads});
  if (node.HasInput(3) && (!past || past->size() != 4)) return;
  std::int64_t length = (past ? (*past)[2] : 0) + (*query)[1];
  const IntTensor* total = node.Ints(6);
  if (total != nullptr && total->values.size() == 1) {
    length = std::max(past ? (*past)[2] : 0, total->values[0]);
  }
  for (const std::size_t output : {1u, 2u}) {
    out.Set(output, node.Type(0), Dims{(*query)[0], kv_heads, length, head});
  }
}

// MatMul with either operand's last two axes swapped, or its first axis moved to the last but one.
void FusedMatMul(const NodeView& node, Outputs& out) {
  auto a = node.Shape(0), b = node.Shape(1);
  if (!a || !b || a->size() < 2 || b->size() < 2) return;
  const auto lay = [&](Dims& dims, const char* batch, const char* swap) {
    if (node.Int(batch, 0) != 0) std::rotate(dims.begin(), dims.begin() + 1, dims.end() - 1);
    if (node.Int(swap, 0) != 0) std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  };
  lay(*a, "transBatchA", "transA");
  lay(*b, "transBatchB", "transB");
  const std::int64_t rows = (*a)[a->size() - 2], columns = b->back();
  std::optional<Dims> dims =
      Broadcast(Dims(a->begin(), a->end() - 2), Dims(b->begin(), b->end() - 2));
  if (!dims || a->back() != (*b)[b->size() - 2]) return;
  dims->push_back(rows);
  dims->push_back(columns);
  out.Set(0, node.Type(0), dims);
}

// Weights quantized to a few bits: [.., K] times [K, N], both sizes as attributes.
void MatMulNBits(const NodeView& node, Outputs& out) {
  std::optional<Dims> dims = node.Shape(0);
  if (!dims || dims->empty()) return;
  dims->back() = node.Int("N", -1);
  out.Set(0, node.Type(0), dims);
}

void ConcatTraining(const NodeView& node, Outputs& out) {
  out.Set(1, TensorProto::INT64, Dims{static_cast<std::int64_t>(node.inputs())});
  std::optional<Dims> dims = node.Shape(0);
  if (!dims) return;
  const auto axis = Axis(node.Int("axis", 0), dims->size());
  if (!axis) return;
  std::int64_t& along = (*dims)[*axis];
  for (std::size_t i = 1; i < node.inputs(); ++i) {
    const auto next = node.Shape(i);
    if (!next || next->size() != dims->size() || along > kDimMax) return;
    along += (*next)[*axis];
  }
  out.Set(0, node.Type(0), dims);
}

void BroadcastGradientArgs(const NodeView& node, Outputs& out) {
  TypeProto ignored;
  for (std::size_t i = 0; i < node.outputs(); ++i) {
    if (const auto axes = FoldInts(node, i, ignored)) out.Set(i, TensorProto::INT64, axes->dims);
  }
}

// The shape of what was sliced or gathered from is itself an input.
void ShapeInput(const NodeView& node, Outputs& out, std::size_t shape, std::size_t like) {
  const IntTensor* ints = node.Ints(shape);
  if (ints != nullptr) out.Set(0, node.Type(like), ints->values);
}
void SliceGrad(const NodeView& node, Outputs& out) { ShapeInput(node, out, 1, 0); }
void GatherGrad(const NodeView& node, Outputs& out) { ShapeInput(node, out, 0, 2); }

void CrossEntropy(const NodeView& node, Outputs& out) {
  const int type = static_cast<int>(node.Int("output_type", node.Type(0)));
  const bool each = node.Text("reduction") == "none";
  out.Set(0, type, each ? node.Shape(1) : std::optional<Dims>(Dims{}));
  out.SameAs(1, 0);
}

void Aten(const NodeView& node, Outputs& out) {
  const std::string op = node.Text("operator");
  const auto table = node.Shape(0);
  if (op == "embedding" && table && table->size() == 2) {
    std::optional<Dims> dims = node.Shape(1);
    if (dims) dims->push_back((*table)[1]);
    out.Set(0, node.Type(0), dims);
  }
}

// Since 18 the axes of every reduction are an input; the library knows them as an attribute.
void Reduce(const NodeView& node, Outputs& out) {
  const auto shape = node.Shape(0);
  const IntTensor* axes = node.Ints(1);
  if (!shape || (node.HasInput(1) && axes == nullptr)) return;
  std::vector<bool> drop(shape->size(), axes == nullptr || axes->values.empty());
  if ((axes == nullptr || axes->values.empty()) && node.Int("noop_with_empty_axes", 0) != 0) {
    drop.assign(shape->size(), false);
  }
  for (std::size_t i = 0; axes != nullptr && i < axes->values.size(); ++i) {
    const auto axis = Axis(axes->values[i], shape->size());
    if (!axis.has_value()) return;
    drop[*axis] = true;
  }
  Dims dims;
  for (std::size_t d = 0; d < shape->size(); ++d) {
    if (!drop[d]) dims.push_back((*shape)[d]);
    if (drop[d] && node.Int("keepdims", 1) != 0) dims.push_back(1);
  }
  out.Set(0, node.Type(0), dims);
}

// Since 18 a Split may say only how many parts it makes; the last takes what is left.
void Split(const NodeView& node, Outputs& out) {
  const auto shape = node.Shape(0);
  const auto parts = static_cast<std::int64_t>(node.outputs());
  if (!shape || parts == 0 || node.HasInput(1) || node.IntList("split").has_value()) return;
  const auto axis = Axis(node.Int("axis", 0), shape->size());
  if (!axis.has_value()) return;
  const std::int64_t whole = (*shape)[*axis], each = (whole + parts - 1) / parts;
  for (std::int64_t part = 0; part < parts; ++part) {
    Dims dims = *shape;
    dims[*axis] = std::clamp<std::int64_t>(whole - part * each, 0, each);
    out.Set(static_cast<std::size_t>(part), node.Type(0), dims);
  }
}

// Defined as functions of others, for which the library infers nothing.
void Compare(const NodeView& node, Outputs& out) {
  const auto a = node.Shape(0), b = node.Shape(1);
  if (a && b) out.Set(0, TensorProto::BOOL, Broadcast(*a, *b));
}

// Without axes every 1 goes. (The library tells nothing then.)
void Squeeze(const NodeView& node, Outputs& out) {
  std::optional<Dims> dims = node.Shape(0);
  if (!dims || node.HasInput(1) || node.IntList("axes").has_value()) return;
  dims->erase(std::remove(dims->begin(), dims->end(), 1), dims->end());
  out.Set(0, node.Type(0), dims);
}

// BeamSearch and its like: input_ids [B,S], max_length; beams and sequences a search: 3, 4.
void Search(const NodeView& node, Outputs& out) {
  const auto ids = node.Shape(0);
  const IntTensor* length = node.Ints(1);
  const IntTensor* kept = node.Ints(4);
  const bool beams = node.node().op_type() == "BeamSearch";
  if (!ids || ids->empty() || length == nullptr || length->values.size() != 1) return;
  if (beams && (kept == nullptr || kept->values.size() != 1)) return;
  out.Set(0, TensorProto::INT32,
          beams ? Dims{(*ids)[0], kept->values[0], length->values[0]}
                : Dims{(*ids)[0], length->values[0]});
}

const absl::flat_hash_map<std::string, Rule>& Rules() {
  static const auto* rules = [] {
    auto* map = new absl::flat_hash_map<std::string, Rule>{
        {"Attention", Attention},
        {"ATen", Aten},
        {"BeamSearch", Search},
        {"BroadcastGradientArgs", BroadcastGradientArgs},
        {"ConcatTraining", ConcatTraining},
        {"EmbedLayerNormalization", EmbedLayerNorm},
        {"FusedMatMul", FusedMatMul},
        {"GatherGrad", GatherGrad},
        {"GreaterOrEqual", Compare},
        {"GreedySearch", Search},
        {"GroupQueryAttention", GroupQueryAttention},
        {"LayerNormalization", LayerNorm},
        {"LayerNormalizationGrad", LayerNormGrad},
        {"LessOrEqual", Compare},
        {"MatMulNBits", MatMulNBits},
        {"MultiHeadAttention", MultiHeadAttention},
        {"Sampling", Search},
        {"SimplifiedLayerNormalization", LayerNorm},
        {"SimplifiedLayerNormalizationGrad", LayerNormGrad},
        {"SkipLayerNormalization", SkipLayerNorm},
        {"SkipSimplifiedLayerNormalization", SkipLayerNorm},
        {"SliceGrad", SliceGrad},
        {"SoftmaxCrossEntropyLossInternal", CrossEntropy},
        {"SoftmaxCrossEntropyLossInternalGrad", SameAsSecond},
        {"Split", Split},
        {"Squeeze", Squeeze},
        {"TransposeMatMul", FusedMatMul},
        {"YieldOp", Pairwise},
    };
    for (const char* same : {"BiasAdd",
                             "BiasFastGelu",
                             "BiasFastGeluGrad_dX",
                             "BiasGelu",
                             "BiasGeluGrad_dX",
                             "BiasSoftmax",
                             "DropoutGrad",
                             "FastGelu",
                             "FastGeluGrad",
                             "Gelu",
                             "GeluGrad",
                             "GroupNorm",
                             "GroupNormalization",
                             "LogSoftmaxGrad",
                             "LogSoftmaxGrad_13",
                             "MeanVarianceNormalization",
                             "MemcpyFromHost",
                             "MemcpyToHost",
                             "Mish",
                             "QuickGelu",
                             "QuickGeluGrad",
                             "RMSNormalization",
                             "ReluGrad",
                             "RotaryEmbedding",
                             "SigmoidGrad",
                             "Silu",
                             "SoftmaxGrad",
                             "SoftmaxGrad_13",
                             "Swish",
                             "TanhGrad"}) {
      map->emplace(same, SameAsFirst);
    }
    for (const char* reduce :
         {"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
          "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"}) {
      map->emplace(reduce, Reduce);
    }
    return map;
  }();
  return *rules;
}

}  // namespace

void InferByRule(const NodeView& node, std::vector<TypeProto>& outputs) {
  const auto rule = Rules().find(node.node().op_type());
  if (rule == Rules().end()) return;
  Outputs out(node, outputs);
  rule->second(node, out);
}

}  // namespace hmm::graph
