// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx_alias.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "graph/onnx_build.h"
#include "graph/onnx_model.h"

namespace hmm::graph {
namespace {

// What follows "past" or "present" in the names that exporters give: "past_key_values.0.key" and
// "present.0.key" are one cache, as are "past_0" and "present_0". Empty: no such name.
std::string CacheKey(const std::string& name, const char* word) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, word)) return "";
  absl::ConsumePrefix(&rest, "_key_values");
  return rest.empty() ? std::string(".") : std::string(rest);
}

// Lengths and masks have names like these too, but not three axes.
bool LooksLikeCache(const Facts* facts) {
  return facts != nullptr && facts->type.has_tensor_type() &&
         facts->type.tensor_type().shape().dim_size() >= 3;
}

}  // namespace

Aliases::Aliases(const Scope& scope, bool main) : scope_(scope) {
  AddValues(main);
  root_.resize(values_.size());
  for (std::size_t v = 0; v < root_.size(); ++v) root_[v] = v;
  groups_.resize(values_.size());
  persistent_.resize(values_.size(), false);
  JoinViews();
  JoinInPlace();
  if (main) JoinCaches();
}

std::size_t Aliases::IndexOf(const std::string& name) const {
  const auto found = index_.find(name);
  return found != index_.end() ? found->second : kNoPosition;
}

std::size_t Aliases::Root(std::size_t value) const {
  while (root_[value] != value) {
    root_[value] = root_[root_[value]];
    value = root_[value];
  }
  return value;
}

std::vector<std::string> Aliases::Reads(std::size_t position) const {
  const onnx::NodeProto& node = Node(position);
  std::vector<std::string> names = CapturedNames(node);
  names.insert(names.end(), node.input().begin(), node.input().end());
  return names;
}

std::size_t Aliases::Add(const std::string& name) {
  const auto [found, added] = index_.emplace(name, values_.size());
  if (added) {
    Value& value = values_.emplace_back();
    value.name = name;
    const Facts* facts = scope_.Find(name);
    value.bytes = FactsBytes(facts);
  }
  return found->second;
}

void Aliases::AddValues(bool main) {
  for (const auto& tensor : scope_.graph->initializer()) {
    values_[Add(tensor.name())].weight = true;
  }
  for (const auto& sparse : scope_.graph->sparse_initializer()) {
    Value& value = values_[Add(sparse.values().name())];
    value.weight = true;  // elements and where they stand, not the dense tensor
    const auto elements = TensorBytes(sparse.values().data_type(), DimsOf(sparse.values()));
    const auto indices = TensorBytes(sparse.indices().data_type(), DimsOf(sparse.indices()));
    if (elements && indices) value.bytes = *elements + *indices;
  }
  for (const auto& input : scope_.graph->input()) {
    Value& value = values_[Add(input.name())];
    value.input = !value.weight;
    value.kv_cache = main && value.input && !CacheKey(input.name(), "past").empty() &&
                     LooksLikeCache(scope_.Find(input.name()));
  }
  for (std::size_t position = 0; position < scope_.order.size(); ++position) {
    for (const std::string& output : Node(position).output()) {
      if (!output.empty()) values_[Add(output)].made_at = position;
    }
  }
  MarkConstants();
  for (const auto& output : scope_.graph->output()) {
    const std::size_t index = IndexOf(output.name());
    if (index == kNoPosition) continue;  // a subgraph may hand out a value of the graph around
    Value& value = values_[index];
    value.output = true;
    value.kv_cache |= main && !CacheKey(output.name(), "present").empty() &&
                      LooksLikeCache(scope_.Find(output.name()));
    // Training graphs take their parameters as inputs.
    absl::string_view parameter = output.name();
    if (!main || !absl::ConsumeSuffix(&parameter, "_grad")) continue;
    const std::size_t of = IndexOf(std::string(parameter));
    if (of != kNoPosition && values_[of].input) {
      values_[of].input = false;
      values_[of].weight = true;
    }
  }
}

// Results that are there before the run: constants, and weights of a given shape and one value.
void Aliases::MarkConstants() {
  for (std::size_t position = 0; position < scope_.order.size(); ++position) {
    const onnx::NodeProto& node = Node(position);
    if (node.output_size() != 1 || node.output(0).empty()) continue;
    bool constant = node.op_type() == "Constant";
    if (node.op_type() == "ConstantOfShape" && node.input_size() == 1) {
      const std::size_t shape = IndexOf(node.input(0));
      constant = shape != kNoPosition && values_[shape].weight;
    }
    if (constant) values_[IndexOf(node.output(0))].weight = true;
  }
}

void Aliases::JoinViews() {
  for (std::size_t position = 0; position < scope_.order.size(); ++position) {
    const NodeView node(Node(position), scope_);
    if (!IsView(node)) continue;
    const std::size_t from = IndexOf(node.node().input(0));
    const std::size_t to = IndexOf(node.node().output(0));
    if (from == kNoPosition || to == kNoPosition) continue;
    // A view has as many elements as what it views; where its shape is not known, that tells it.
    Value& view = values_[to];
    if (view.bytes.has_value() && values_[from].bytes.has_value() &&
        *view.bytes != *values_[from].bytes) {
      continue;
    }
    if (!view.bytes.has_value()) view.bytes = values_[from].bytes;
    if (!view.bytes.has_value()) continue;
    view.weight = values_[Root(from)].weight;
    root_[to] = Root(from);
  }
  for (std::size_t v = 0; v < values_.size(); ++v) {
    Group& group = groups_[Root(v)];
    group.from_outside |= values_[v].input || values_[v].weight;
    group.output |= values_[v].output;
    if (Root(v) == v) group.first_write = values_[v].made_at;
  }
  for (std::size_t position = 0; position < scope_.order.size(); ++position) {
    const NodeView node(Node(position), scope_);
    if (IsView(node) || ReadsShapeOnly(node)) continue;
    for (const std::string& name : Reads(position)) {
      const std::size_t value = IndexOf(name);
      if (value == kNoPosition) continue;
      Group& group = groups_[Root(value)];
      group.last_read = std::max(group.last_read, position);
      group.read = true;
    }
  }
}

void Aliases::Join(std::size_t root, std::size_t into) {
  const Group& from = groups_[root];
  Group& group = groups_[into];
  group.first_write = std::min(group.first_write, from.first_write);
  if (from.read) group.last_read = std::max(group.last_read, from.last_read);
  group.read |= from.read;
  group.output |= from.output;
  root_[root] = into;
}

// Nothing needs the bytes of `from` after the op at `position`, and they were made in this step.
bool Aliases::MayTake(std::size_t position, std::size_t from, std::size_t to) const {
  const Group& group = groups_[from];
  const auto& bytes = values_[from].bytes;
  return from != to && !group.from_outside && !group.output && group.last_read <= position &&
         bytes.has_value() && *bytes > 0 && bytes == values_[to].bytes;
}

void Aliases::JoinInPlace() {
  for (std::size_t position = 0; position < scope_.order.size(); ++position) {
    const onnx::NodeProto& node = Node(position);
    if (!MayRunInPlace(node.op_type()) || node.output_size() == 0) continue;
    const std::size_t to = IndexOf(node.output(0));
    if (to == kNoPosition || Root(to) != to) continue;
    // ScatterND and ScatterElements write into their first input and no other.
    const int candidates = absl::StartsWith(node.op_type(), "Scatter") ? 1 : node.input_size();
    for (int i = 0; i < candidates; ++i) {
      const std::size_t value = IndexOf(node.input(i));
      if (value == kNoPosition || !MayTake(position, Root(value), to)) continue;
      Join(to, Root(value));
      break;
    }
  }
}

void Aliases::JoinCaches() {
  absl::flat_hash_map<std::string, std::size_t> pasts;
  for (std::size_t v = 0; v < values_.size(); ++v) {
    if (values_[v].kv_cache && values_[v].input) pasts[CacheKey(values_[v].name, "past")] = v;
  }
  for (std::size_t v = 0; v < values_.size(); ++v) {
    if (!values_[v].kv_cache || !values_[v].output) continue;
    const auto past = pasts.find(CacheKey(values_[v].name, "present"));
    if (past != pasts.end()) JoinCache(past->second, v);
  }
}

void Aliases::JoinCache(std::size_t past, std::size_t present) {
  const std::size_t from = Root(past), to = Root(present);
  const auto shape = [&](std::size_t value) {
    const Facts* facts = scope_.Find(values_[value].name);
    return facts != nullptr ? StaticShape(facts->type) : std::nullopt;
  };
  if (!shape(past).has_value() || shape(past) != shape(present)) return;
  if (from != to) {
    // The present may be written over the past once nothing reads the past any more.
    const Group& old = groups_[from];
    const Group& made = groups_[to];
    if (from != past || made.from_outside || made.first_write == kNoPosition) return;
    if (old.output || (old.read && old.last_read > made.first_write)) return;
    if (values_[from].bytes != values_[to].bytes) return;
    Join(to, from);
  }
  persistent_[from] = true;
}

}  // namespace hmm::graph
