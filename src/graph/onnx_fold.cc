// SPDX-License-Identifier: Apache-2.0
//
// Values of shape tensors: what the chains of Shape, Gather, Concat, ... between two Reshapes come
// to. (The library's data propagation is not used: version 1.12 crashes on real training graphs.)
#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "graph/onnx_facts.h"
#include "graph/onnx_model.h"

namespace hmm::graph {
namespace {

using Result = std::shared_ptr<const IntTensor>;
using Values = std::vector<std::int64_t>;

Result Make(Dims dims, Values values) {
  const std::optional<std::uint64_t> count = ElementCount(dims);
  if (!count.has_value() || *count != values.size() || *count > kIntValuesMax) return nullptr;
  auto made = std::make_shared<IntTensor>();
  made->dims = std::move(dims);
  made->values = std::move(values);
  return made;
}

Result MakeVector(Values values) {
  Dims dims = {static_cast<std::int64_t>(values.size())};
  return Make(std::move(dims), std::move(values));
}

// Product of dims [from, to).
std::size_t Span(const Dims& dims, std::size_t from, std::size_t to) {
  std::size_t product = 1;
  for (std::size_t d = from; d < to; ++d) product *= static_cast<std::size_t>(dims[d]);
  return product;
}

bool IsIntType(int type) {
  return type == onnx::TensorProto::INT64 || type == onnx::TensorProto::INT32 ||
         type == onnx::TensorProto::BOOL;
}

Result FoldConstant(const NodeView& node, const onnx::TypeProto&) {
  if (const auto* value = node.Attribute("value"); value != nullptr && value->has_t()) {
    return IntsOf(value->t());
  }
  if (const auto* value = node.Attribute("value_int"); value != nullptr) {
    return Make({}, {value->i()});
  }
  const auto list = node.IntList("value_ints");
  if (!list.has_value()) return nullptr;
  return MakeVector(*list);
}

Result FoldShape(const NodeView& node, const onnx::TypeProto&) {
  const std::optional<Dims> shape = node.Shape(0);
  if (!shape.has_value()) return nullptr;
  const auto rank = static_cast<std::int64_t>(shape->size());
  const auto clamp = [rank](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const std::int64_t begin = clamp(std::max(node.Int("start", 0), -rank));
  const std::int64_t end = clamp(std::max(node.Int("end", rank), -rank));
  Values values;
  if (begin < end) values.assign(shape->begin() + begin, shape->begin() + end);
  return MakeVector(std::move(values));
}

Result FoldSize(const NodeView& node, const onnx::TypeProto&) {
  const std::optional<Dims> shape = node.Shape(0);
  const auto count = shape.has_value() ? ElementCount(*shape) : std::nullopt;
  return count.has_value() ? Make({}, {static_cast<std::int64_t>(*count)}) : nullptr;
}

// Same elements in the shape that inference found: Reshape, Squeeze, Unsqueeze, Identity, Cast.
Result FoldView(const NodeView& node, const onnx::TypeProto& output) {
  const IntTensor* in = node.Ints(0);
  const std::optional<Dims> dims = StaticShape(output);
  if (in == nullptr || !dims.has_value()) return nullptr;
  Values values = in->values;
  if (ElementType(output) == onnx::TensorProto::BOOL) {
    for (std::int64_t& value : values) value = value != 0 ? 1 : 0;
  } else if (ElementType(output) == onnx::TensorProto::INT32) {
    for (const std::int64_t value : values) {
      if (value != static_cast<std::int32_t>(value)) return nullptr;
    }
  }
  return Make(*dims, std::move(values));
}

Result FoldGather(const NodeView& node, const onnx::TypeProto&) {
  const IntTensor* data = node.Ints(0);
  const IntTensor* indices = node.Ints(1);
  if (data == nullptr || indices == nullptr) return nullptr;
  const std::optional<std::size_t> axis = Axis(node.Int("axis", 0), data->dims.size());
  if (!axis.has_value()) return nullptr;
  const std::size_t outer = Span(data->dims, 0, *axis);
  const std::size_t inner = Span(data->dims, *axis + 1, data->dims.size());
  const auto along = static_cast<std::size_t>(data->dims[*axis]);
  if (outer * inner > kIntValuesMax / std::max<std::size_t>(1, indices->values.size())) {
    return nullptr;
  }
  Values values;
  for (std::size_t o = 0; o < outer; ++o) {
    for (const std::int64_t index : indices->values) {
      const std::optional<std::size_t> at = Axis(index, along);
      if (!at.has_value()) return nullptr;
      const auto from = static_cast<std::ptrdiff_t>((o * along + *at) * inner);
      values.insert(values.end(), data->values.begin() + from,
                    data->values.begin() + from + static_cast<std::ptrdiff_t>(inner));
    }
  }
  Dims dims(data->dims.begin(), data->dims.begin() + static_cast<std::ptrdiff_t>(*axis));
  dims.insert(dims.end(), indices->dims.begin(), indices->dims.end());
  dims.insert(dims.end(), data->dims.begin() + static_cast<std::ptrdiff_t>(*axis) + 1,
              data->dims.end());
  return Make(std::move(dims), std::move(values));
}

Result FoldConcat(const NodeView& node, const onnx::TypeProto&) {
  Values values;
  for (std::size_t i = 0; i < node.inputs(); ++i) {
    const IntTensor* in = node.Ints(i);
    if (in == nullptr || in->dims.size() != 1) return nullptr;
    if (values.size() + in->values.size() > kIntValuesMax) return nullptr;
    values.insert(values.end(), in->values.begin(), in->values.end());
  }
  return MakeVector(std::move(values));
}

// One axis of a vector; starts, ends, axes, steps as inputs or (before version 10) attributes.
Result FoldSlice(const NodeView& node, const onnx::TypeProto&) {
  const IntTensor* data = node.Ints(0);
  if (data == nullptr || data->dims.size() != 1) return nullptr;
  const auto one = [&](std::size_t input, const char* attribute,
                       std::int64_t fallback) -> std::optional<std::int64_t> {
    if (node.HasInput(input)) {
      const IntTensor* in = node.Ints(input);
      if (in == nullptr || in->values.size() != 1) return std::nullopt;
      return in->values[0];
    }
    const auto list = node.IntList(attribute);
    if (!list.has_value()) return fallback;
    if (list->size() != 1) return std::nullopt;
    return (*list)[0];
  };
  const auto size = static_cast<std::int64_t>(data->values.size());
  const auto start = one(1, "starts", 0), end = one(2, "ends", size);
  const auto axis = one(3, "axes", 0), step = one(4, "steps", 1);
  if (!start || !end || !axis || !step || *step == 0 || !Axis(*axis, 1)) return nullptr;
  const bool back = *step < 0;
  const auto place = [&](std::int64_t at) {
    if (at < 0) at = std::max(at, -size - 1) + size;
    return back ? std::clamp<std::int64_t>(at, -1, size - 1)
                : std::clamp<std::int64_t>(at, 0, size);
  };
  const std::int64_t stride = std::clamp<std::int64_t>(*step, -size - 1, size + 1);
  Values values;
  for (std::int64_t at = place(*start); back ? at > place(*end) : at < place(*end); at += stride) {
    values.push_back(data->values[static_cast<std::size_t>(at)]);
  }
  return MakeVector(std::move(values));
}

// What `a op b` comes to; false: undefined or beyond 64 bits.
bool Apply(const std::string& op, std::int64_t a, std::int64_t b, std::int64_t& out) {
  if (op == "Add") return !__builtin_add_overflow(a, b, &out);
  if (op == "Sub") return !__builtin_sub_overflow(a, b, &out);
  if (op == "Mul") return !__builtin_mul_overflow(a, b, &out);
  if (op == "Div" || op == "Mod") {
    if (b == 0 || (b == -1 && a == std::numeric_limits<std::int64_t>::min())) return false;
    out = op == "Div" ? a / b : a % b;
    if (op == "Mod" && out != 0 && (out < 0) != (b < 0)) out += b;  // sign of the divisor
    return true;
  }
  if (op == "Equal") return out = a == b, true;
  if (op == "Less") return out = a < b, true;
  if (op == "LessOrEqual") return out = a <= b, true;
  if (op == "Greater") return out = a > b, true;
  if (op == "GreaterOrEqual") return out = a >= b, true;
  if (op == "And") return out = a != 0 && b != 0, true;
  if (op == "Or") return out = a != 0 || b != 0, true;
  if (op == "Max") return out = std::max(a, b), true;
  if (op == "Min") return out = std::min(a, b), true;
  return false;
}

// Index into a tensor of `dims` of the element that broadcasts to `at` of `out`.
std::size_t BroadcastIndex(const Dims& dims, const Dims& out, std::size_t at) {
  std::size_t index = 0, stride = 1;
  for (std::size_t d = 0; d < out.size(); ++d) {  // from the back
    const auto extent = static_cast<std::size_t>(out[out.size() - 1 - d]);
    const std::size_t here = at % extent;
    at /= extent;
    if (d >= dims.size()) continue;
    const auto own = static_cast<std::size_t>(dims[dims.size() - 1 - d]);
    if (own != 1) index += here * stride;
    stride *= own;
  }
  return index;
}

Result FoldBinary(const NodeView& node, const onnx::TypeProto&) {
  const IntTensor* a = node.Ints(0);
  const IntTensor* b = node.Ints(1);
  if (a == nullptr || b == nullptr || node.inputs() != 2) return nullptr;
  if (node.node().op_type() == "Mod" && node.Int("fmod", 0) != 0) return nullptr;
  const std::optional<Dims> dims = Broadcast(a->dims, b->dims);
  const auto count = dims.has_value() ? ElementCount(*dims) : std::nullopt;
  if (!count.has_value() || *count > kIntValuesMax) return nullptr;
  Values values(*count);
  for (std::size_t i = 0; i < *count; ++i) {
    if (!Apply(node.node().op_type(), a->values[BroadcastIndex(a->dims, *dims, i)],
               b->values[BroadcastIndex(b->dims, *dims, i)], values[i])) {
      return nullptr;
    }
  }
  return Make(*dims, std::move(values));
}

Result FoldWhere(const NodeView& node, const onnx::TypeProto&) {
  const IntTensor* in[3] = {node.Ints(0), node.Ints(1), node.Ints(2)};
  if (in[0] == nullptr || in[1] == nullptr || in[2] == nullptr) return nullptr;
  std::optional<Dims> dims = Broadcast(in[0]->dims, in[1]->dims);
  if (dims.has_value()) dims = Broadcast(*dims, in[2]->dims);
  const auto count = dims.has_value() ? ElementCount(*dims) : std::nullopt;
  if (!count.has_value() || *count > kIntValuesMax) return nullptr;
  Values values(*count);
  for (std::size_t i = 0; i < *count; ++i) {
    const bool first = in[0]->values[BroadcastIndex(in[0]->dims, *dims, i)] != 0;
    const IntTensor& from = first ? *in[1] : *in[2];
    values[i] = from.values[BroadcastIndex(from.dims, *dims, i)];
  }
  return Make(*dims, std::move(values));
}

Result FoldUnary(const NodeView& node, const onnx::TypeProto&) {
  const IntTensor* in = node.Ints(0);
  if (in == nullptr) return nullptr;
  Values values = in->values;
  for (std::int64_t& value : values) {
    if (value == std::numeric_limits<std::int64_t>::min()) return nullptr;
    if (node.node().op_type() == "Not") {
      value = value == 0 ? 1 : 0;
    } else if (node.node().op_type() == "Neg" || value < 0) {  // else Abs
      value = -value;
    }
  }
  return Make(in->dims, std::move(values));
}

// Over all elements of a vector, as products and sums of dims are written.
Result FoldReduce(const NodeView& node, const onnx::TypeProto& output) {
  const IntTensor* in = node.Ints(0);
  const std::optional<Dims> dims = StaticShape(output);
  if (in == nullptr || in->dims.size() != 1 || in->values.empty() || !dims.has_value() ||
      ElementCount(*dims) != 1) {
    return nullptr;
  }
  const std::string& type = node.node().op_type();
  const std::string op = type == "ReduceProd"  ? "Mul"
                         : type == "ReduceSum" ? "Add"
                         : type == "ReduceMax" ? "Max"
                                               : "Min";
  std::int64_t total = in->values[0];
  for (std::size_t i = 1; i < in->values.size(); ++i) {
    if (!Apply(op, total, in->values[i], total)) return nullptr;
  }
  return Make(*dims, {total});
}

Result FoldRange(const NodeView& node, const onnx::TypeProto&) {
  std::int64_t bound[3] = {};
  for (std::size_t i = 0; i < 3; ++i) {
    const IntTensor* in = node.Ints(i);
    if (in == nullptr || in->values.size() != 1) return nullptr;
    bound[i] = in->values[0];
  }
  const auto [start, limit, delta] = bound;
  if (delta == 0) return nullptr;
  Values values;
  for (std::int64_t at = start; delta > 0 ? at < limit : at > limit;) {
    if (values.size() == kIntValuesMax) return nullptr;
    values.push_back(at);
    if (__builtin_add_overflow(at, delta, &at)) break;
  }
  return MakeVector(std::move(values));
}

// ConstantOfShape, Expand: one element over a shape that inference found.
Result FoldFill(const NodeView& node, const onnx::TypeProto& output) {
  const std::optional<Dims> dims = StaticShape(output);
  const auto count = dims.has_value() ? ElementCount(*dims) : std::nullopt;
  if (!count.has_value() || *count > kIntValuesMax) return nullptr;
  std::int64_t value = 0;
  if (node.node().op_type() == "Expand") {
    const IntTensor* in = node.Ints(0);
    if (in == nullptr || in->values.size() != 1) return nullptr;
    value = in->values[0];
  } else if (const auto* attribute = node.Attribute("value"); attribute != nullptr) {
    const Result ints = IntsOf(attribute->t());
    if (ints == nullptr || ints->values.size() != 1) return nullptr;
    value = ints->values[0];
  }
  return Make(*dims, Values(*count, value));
}

// Axes along which input `which` was broadcast against the other: what its gradient sums over.
Result FoldBroadcastAxes(const NodeView& node, std::size_t which) {
  const IntTensor* own = node.Ints(which);
  const IntTensor* other = node.Ints(1 - which);
  if (own == nullptr || other == nullptr) return nullptr;
  const std::size_t rank = std::max(own->values.size(), other->values.size());
  const auto dim = [rank](const IntTensor& shape, std::size_t axis) -> std::int64_t {
    const std::size_t missing = rank - shape.values.size();
    return axis < missing ? 0 : shape.values[axis - missing];
  };
  Values axes;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const std::int64_t a = dim(*own, axis);
    if (a == 0 || (a == 1 && dim(*other, axis) > 1)) {
      axes.push_back(static_cast<std::int64_t>(axis));
    }
  }
  return MakeVector(std::move(axes));
}

using Fold = Result (*)(const NodeView&, const onnx::TypeProto&);
const absl::flat_hash_map<std::string, Fold>& Folds() {
  static const auto* folds = new absl::flat_hash_map<std::string, Fold>{
      {"Constant", FoldConstant},
      {"Shape", FoldShape},
      {"Size", FoldSize},
      {"Reshape", FoldView},
      {"Squeeze", FoldView},
      {"Unsqueeze", FoldView},
      {"Identity", FoldView},
      {"Cast", FoldView},
      {"Gather", FoldGather},
      {"Concat", FoldConcat},
      {"ConcatTraining", FoldConcat},
      {"Slice", FoldSlice},
      {"Add", FoldBinary},
      {"Sub", FoldBinary},
      {"Mul", FoldBinary},
      {"Div", FoldBinary},
      {"Mod", FoldBinary},
      {"Equal", FoldBinary},
      {"Less", FoldBinary},
      {"LessOrEqual", FoldBinary},
      {"Greater", FoldBinary},
      {"GreaterOrEqual", FoldBinary},
      {"And", FoldBinary},
      {"Or", FoldBinary},
      {"Max", FoldBinary},
      {"Min", FoldBinary},
      {"Where", FoldWhere},
      {"Not", FoldUnary},
      {"Neg", FoldUnary},
      {"Abs", FoldUnary},
      {"ReduceProd", FoldReduce},
      {"ReduceSum", FoldReduce},
      {"ReduceMax", FoldReduce},
      {"ReduceMin", FoldReduce},
      {"Range", FoldRange},
      {"ConstantOfShape", FoldFill},
      {"Expand", FoldFill},
  };
  return *folds;
}

}  // namespace

std::shared_ptr<const IntTensor> FoldInts(const NodeView& node, std::size_t index,
                                          const onnx::TypeProto& output) {
  if (node.node().op_type() == "BroadcastGradientArgs" && index < 2) {
    return FoldBroadcastAxes(node, index);
  }
  if (index != 0) return nullptr;
  if (!IsIntType(ElementType(output)) && node.node().op_type() != "Constant") return nullptr;
  const auto found = Folds().find(node.node().op_type());
  return found != Folds().end() ? found->second(node, output) : nullptr;
}

}  // namespace hmm::graph
