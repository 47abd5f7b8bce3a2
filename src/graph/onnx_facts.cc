// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx_facts.h"

#include <algorithm>
#include <cstring>

#include "graph/onnx_model.h"

namespace hmm::graph {

using onnx::TensorProto;

const Facts* Scope::Find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
    const auto found = scope->facts.find(name);
    if (found != scope->facts.end()) return &found->second;
  }
  return nullptr;
}

std::optional<Dims> StaticShape(const onnx::TypeProto& type) {
  if (!type.has_tensor_type() || !type.tensor_type().has_shape()) return std::nullopt;
  Dims dims;
  for (const auto& dim : type.tensor_type().shape().dim()) {
    if (!dim.has_dim_value()) return std::nullopt;
    dims.push_back(dim.dim_value());
  }
  return dims;
}

int ElementType(const onnx::TypeProto& type) {
  return type.has_tensor_type() ? type.tensor_type().elem_type() : 0;
}

void SetTensorType(onnx::TypeProto& type, int element_type, const Dims& dims) {
  onnx::TypeProto::Tensor& tensor = *type.mutable_tensor_type();
  tensor.set_elem_type(element_type);
  onnx::TensorShapeProto& shape = *tensor.mutable_shape();
  shape.clear_dim();
  for (const std::int64_t dim : dims) shape.add_dim()->set_dim_value(dim);
}

std::shared_ptr<const IntTensor> IntsOf(const TensorProto& tensor) {
  const int type = tensor.data_type();
  const bool wide = type == TensorProto::INT64;
  if (!wide && type != TensorProto::INT32 && type != TensorProto::BOOL) return nullptr;
  auto ints = std::make_shared<IntTensor>();
  ints->dims = DimsOf(tensor);
  const std::optional<std::uint64_t> count = ElementCount(ints->dims);
  if (!count.has_value() || *count > kIntValuesMax) return nullptr;
  ints->values.resize(*count);
  if (tensor.has_raw_data()) {
    const std::size_t size = wide ? 8 : type == TensorProto::INT32 ? 4 : 1;
    if (tensor.raw_data().size() != *count * size) return nullptr;
    for (std::size_t i = 0; i < *count; ++i) {  // the file is little-endian, as we are
      const char* from = tensor.raw_data().data() + i * size;
      std::int32_t narrow = 0;
      if (wide) {
        std::memcpy(&ints->values[i], from, size);
      } else {
        std::memcpy(&narrow, from, size);
        ints->values[i] = narrow;
      }
    }
    return ints;
  }
  const auto entries =
      static_cast<std::size_t>(wide ? tensor.int64_data_size() : tensor.int32_data_size());
  if (entries != *count) return nullptr;
  for (std::size_t i = 0; i < entries; ++i) {
    const int at = static_cast<int>(i);
    ints->values[i] = wide ? tensor.int64_data(at) : tensor.int32_data(at);
  }
  return ints;
}

bool NodeView::HasInput(std::size_t i) const {
  return i < inputs() && !node_.input(static_cast<int>(i)).empty();
}
bool NodeView::HasOutput(std::size_t i) const {
  return i < outputs() && !node_.output(static_cast<int>(i)).empty();
}
const Facts* NodeView::Input(std::size_t i) const {
  return HasInput(i) ? scope_.Find(node_.input(static_cast<int>(i))) : nullptr;
}
std::optional<Dims> NodeView::Shape(std::size_t i) const {
  const Facts* facts = Input(i);
  return facts != nullptr ? StaticShape(facts->type) : std::nullopt;
}
int NodeView::Type(std::size_t i) const {
  const Facts* facts = Input(i);
  return facts != nullptr ? ElementType(facts->type) : 0;
}
const IntTensor* NodeView::Ints(std::size_t i) const {
  const Facts* facts = Input(i);
  return facts != nullptr ? facts->ints.get() : nullptr;
}

const onnx::AttributeProto* NodeView::Attribute(std::string_view name) const {
  for (const auto& attribute : node_.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}
std::int64_t NodeView::Int(std::string_view name, std::int64_t fallback) const {
  const onnx::AttributeProto* attribute = Attribute(name);
  return attribute != nullptr && attribute->has_i() ? attribute->i() : fallback;
}
std::optional<std::vector<std::int64_t>> NodeView::IntList(std::string_view name) const {
  const onnx::AttributeProto* attribute = Attribute(name);
  if (attribute == nullptr) return std::nullopt;
  return std::vector<std::int64_t>(attribute->ints().begin(), attribute->ints().end());
}
std::string NodeView::Text(std::string_view name) const {
  const onnx::AttributeProto* attribute = Attribute(name);
  return attribute != nullptr ? attribute->s() : std::string();
}

std::optional<std::size_t> Axis(std::int64_t axis, std::size_t rank) {
  const auto limit = static_cast<std::int64_t>(rank);
  if (axis < -limit || axis >= limit) return std::nullopt;
  return static_cast<std::size_t>(axis < 0 ? axis + limit : axis);
}

std::optional<Dims> Broadcast(const Dims& a, const Dims& b) {
  Dims out(std::max(a.size(), b.size()), 1);
  for (std::size_t i = 0; i < out.size(); ++i) {  // from the back
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

}  // namespace hmm::graph
