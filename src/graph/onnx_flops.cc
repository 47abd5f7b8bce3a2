// SPDX-License-Identifier: Apache-2.0
//
// Floating point operations from shapes: 2 m n k of a product, and what is made of products. All
// else moves bytes, which is what the roofline goes by then.
#include "absl/container/flat_hash_map.h"
#include "graph/onnx_facts.h"

namespace hmm::graph {
namespace {

double Product(const Dims& dims, std::size_t from = 0) {
  double product = 1;
  for (std::size_t d = from; d < dims.size(); ++d) product *= static_cast<double>(dims[d]);
  return product;
}

using Shape = std::optional<Dims>;
using Rule = double (*)(const NodeView&, const Shape& output);

// Depth: the last axis of the left operand, or the one before where that is transposed.
double MatMul(const NodeView& node, const Shape& output) {
  const Shape a = node.Shape(0);
  if (!a || a->empty() || !output) return 0;
  Dims dims = *a;
  if (node.Int("transBatchA", 0) != 0 && dims.size() > 2) {
    dims = Dims(dims.begin() + 1, dims.end());
    dims.insert(dims.end() - 1, a->front());
  }
  const bool swapped = node.Int("transA", 0) != 0 && dims.size() > 1;
  const auto depth = static_cast<double>(swapped ? dims[dims.size() - 2] : dims.back());
  return 2 * depth * Product(*output);
}

// Every output element sums over the weight's input channels (of a group) and window.
double Conv(const NodeView& node, const Shape& output) {
  const Shape weight = node.Shape(1);
  return weight && output ? 2 * Product(*output) * Product(*weight, 1) : 0;
}
double QLinearConv(const NodeView& node, const Shape& output) {
  const Shape weight = node.Shape(3);
  return weight && output ? 2 * Product(*output) * Product(*weight, 1) : 0;
}
double ConvTranspose(const NodeView& node, const Shape&) {
  const Shape input = node.Shape(0), weight = node.Shape(1);
  return input && weight ? 2 * Product(*input) * Product(*weight, 1) : 0;
}

// Scores and their product with the values: 2 x 2 B N S T H.
double Scores(double batch_heads_head, double queries, double keys) {
  return 4 * batch_heads_head * queries * keys;
}
double Attention(const NodeView& node, const Shape& output) {
  const Shape input = node.Shape(0), weight = node.Shape(1), past = node.Shape(4);
  if (!input || !weight || !output || input->size() != 3 || weight->size() != 2 ||
      output->size() != 3) {
    return 0;
  }
  const auto length = static_cast<double>((*input)[1]);
  const double keys = length + (past && past->size() == 5 ? static_cast<double>((*past)[3]) : 0);
  return 2 * Product(*input) * static_cast<double>((*weight)[1]) +
         Scores(static_cast<double>((*output)[0]) * static_cast<double>((*output)[2]), length,
                keys);
}
double Heads(const NodeView& node, const Shape& output, std::size_t past_input) {
  const Shape query = node.Shape(0), key = node.Shape(1), past = node.Shape(past_input);
  if (!query || query->size() != 3 || !output || output->size() != 3) return 0;
  double keys = static_cast<double>(key && key->size() == 3 ? (*key)[1] : (*query)[1]);
  if (past && past->size() == 4) keys += static_cast<double>((*past)[2]);
  return Scores(static_cast<double>((*output)[0]) * static_cast<double>((*output)[2]),
                static_cast<double>((*query)[1]), keys);
}
double MultiHeadAttention(const NodeView& node, const Shape& output) {
  return Heads(node, output, 6);
}
double GroupQueryAttention(const NodeView& node, const Shape& output) {
  return Heads(node, output, 3);
}

// X [S,B,I], W [D,gates,I], R [D,gates,H]: both products at each step.
double Recurrent(const NodeView& node, const Shape&) {
  const Shape x = node.Shape(0), w = node.Shape(1), r = node.Shape(2);
  if (!x || !w || !r || x->size() != 3) return 0;
  return 2 * static_cast<double>((*x)[0]) * static_cast<double>((*x)[1]) *
         (Product(*w) + Product(*r));
}

const absl::flat_hash_map<std::string, Rule>& Rules() {
  static const auto* rules = new absl::flat_hash_map<std::string, Rule>{
      {"Attention", Attention},
      {"Conv", Conv},
      {"ConvInteger", Conv},
      {"ConvTranspose", ConvTranspose},
      {"DynamicQuantizeMatMul", MatMul},
      {"FusedConv", Conv},
      {"FusedGemm", MatMul},
      {"FusedMatMul", MatMul},
      {"GRU", Recurrent},
      {"Gemm", MatMul},
      {"GroupQueryAttention", GroupQueryAttention},
      {"LSTM", Recurrent},
      {"MatMul", MatMul},
      {"MatMulInteger", MatMul},
      {"MatMulNBits", MatMul},
      {"MultiHeadAttention", MultiHeadAttention},
      {"QLinearConv", QLinearConv},
      {"QLinearMatMul", MatMul},
      {"RNN", Recurrent},
      {"TransposeMatMul", MatMul},
  };
  return *rules;
}

}  // namespace

double NodeFlops(const NodeView& node, const std::optional<Dims>& output0) {
  const auto rule = Rules().find(node.node().op_type());
  return rule != Rules().end() ? rule->second(node, output0) : 0;
}

}  // namespace hmm::graph
