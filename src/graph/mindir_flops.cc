// SPDX-License-Identifier: Apache-2.0
//
// Work of the ops that a step's time goes into. A product of [m, k] and [k, n] is 2 m k n.
#include <array>
#include <string_view>

#include "graph/mindir_flat.h"

namespace hmm::graph {
namespace {

using mind_ir::AttributeProto;
using mind_ir::TensorProto;

double Elements(const TensorProto& tensor) {
  double count = 1;
  for (const std::int64_t dim : tensor.dims()) count *= dim < 0 ? 0 : static_cast<double>(dim);
  return count;
}

// Files of 1.x have the attributes at the node, later ones at the primitive.
bool IsSet(const MindIrCall& call, std::string_view name) {
  const auto set = [name](const auto& attributes) {
    for (const AttributeProto& attribute : attributes) {
      if (attribute.name() == name) return attribute.i() != 0;
    }
    return false;
  };
  return set(call.node->attribute()) ||
         (call.primitive != nullptr && set(call.primitive->attribute()));
}

}  // namespace

double MindIrFlops(const MindIrCall& call, const TensorProto* a, const TensorProto* b,
                   const TensorProto* output) {
  if (a == nullptr || b == nullptr || output == nullptr) return 0;
  constexpr std::array<std::string_view, 6> kProducts = {
      "MatMul", "BatchMatMul", "MatMulExt", "MatMulV2", "Dense", "BatchMatMulV2"};
  for (const std::string_view product : kProducts) {
    if (call.type != product) continue;
    const bool turned = IsSet(call, "transpose_a") || IsSet(call, "transpose_x1");
    const int axis = a->dims_size() - (turned ? 2 : 1);
    if (axis < 0 || a->dims(axis) < 0) return 0;
    return 2 * Elements(*output) * static_cast<double>(a->dims(axis));
  }
  const bool convolution = call.type == "Conv2D" || call.type == "Conv3D";
  if (!convolution || b->dims_size() == 0 || b->dims(0) < 1) return 0;
  return 2 * Elements(*output) * Elements(*b) / static_cast<double>(b->dims(0));
}

}  // namespace hmm::graph
