// SPDX-License-Identifier: Apache-2.0
//
// The ONNX importer. Symbols of the model's inputs are given values, so that models get past them.
#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "fuzz/graph_laws.h"
#include "fuzz/message_mutator.h"
#include "fuzz/require.h"
#include "graph/onnx_dims.h"
#include "graph/onnx_import.h"
#include "onnx/onnx_pb.h"
#include "plan/lifetimes.h"

namespace {

using namespace hmm;

// What the importer asks for: it refuses names that the model does not have.
graph::DimBindings SymbolsOf(const onnx::ModelProto& model) {
  constexpr std::array<std::int64_t, 6> kValues = {2, 1, 3, 8, 4, 16};
  std::set<std::string> names, given;
  for (const auto& tensor : model.graph().initializer()) given.insert(tensor.name());
  for (const auto& tensor : model.graph().sparse_initializer()) {
    given.insert(tensor.values().name());
  }
  for (const auto& input : model.graph().input()) {
    if (!given.insert(input.name()).second || !input.type().has_tensor_type()) continue;
    const onnx::TensorShapeProto& shape = input.type().tensor_type().shape();
    for (int d = 0; d < shape.dim_size(); ++d) {
      const onnx::TensorShapeProto::Dimension& dim = shape.dim(d);
      if (dim.has_dim_value()) continue;
      if (dim.dim_param().empty()) names.insert(absl::StrCat(input.name(), ":", d));
      names.merge(graph::DimSymbols(dim.dim_param()));
    }
  }
  graph::DimBindings dims;
  for (const std::string& name : names) dims[name] = kValues[dims.size() % kValues.size()];
  return dims;
}

void Import(std::string_view bytes, const graph::DimBindings& dims, bool plain) {
  std::vector<std::string> notes;
  graph::OnnxOptions options;
  options.dims = dims;
  options.plain = plain;
  options.external_data_required = false;
  options.notes = &notes;
  const absl::StatusOr<plan::Graph> graph =
      graph::ImportOnnxBytes(bytes, "fuzz.onnx", "/nonexistent", options);
  fuzz::Require(notes.size() <= graph::kOnnxNotesMax, "notes are bounded");
  if (!graph.ok()) {
    fuzz::Require(!graph.status().message().empty(), "an error says what it is");
    return;
  }
  fuzz::HoldGraph(*graph, /*writable=*/false);
  fuzz::HoldPlans(*graph);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  graph::DimBindings dims;
  onnx::ModelProto model;
  if (model.ParseFromArray(data, static_cast<int>(size))) dims = SymbolsOf(model);
  Import(bytes, dims, false);
  Import(bytes, dims, true);
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed) {
  onnx::ModelProto model;
  return fuzz::MutateAsMessage(model, /*text_too=*/false, data, size, size_max, seed);
}
