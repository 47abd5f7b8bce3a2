// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx_import.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/annotation.h"
#include "graph/onnx_annotate.h"
#include "graph/onnx_build.h"
#include "graph/onnx_infer.h"
#include "graph/onnx_model.h"
#include "graph/onnx_structure.h"
#include "plan/lifetimes.h"

namespace hmm::graph {
namespace {

// A graph of ours has neither symbols nor another accounting.
absl::Status CheckNoOptions(const OnnxModel& model, const OnnxOptions& options) {
  if (options.plain)
    return BadModel(model.name, "--plain", "a graph of hmmctl's has one accounting");
  if (options.dims.empty()) return absl::OkStatus();
  return BadModel(model.name, absl::StrCat("--dim ", options.dims.begin()->first),
                  "the model has no such dimension; it has: none");
}

absl::StatusOr<plan::Graph> Import(absl::StatusOr<OnnxModel> loaded, const OnnxOptions& options) {
  if (!loaded.ok()) return loaded.status();
  const OnnxModel& model = *loaded;
  HMM_RETURN_IF_ERROR(CheckOnnxModel(model, options));
  if (IsAnnotatedOnnx(*model.proto)) {
    HMM_RETURN_IF_ERROR(UnannotateOnnx(*loaded));
    HMM_RETURN_IF_ERROR(CheckOnnxModel(model, options));
  }
  HMM_RETURN_IF_ERROR(CheckNothingWoven(model.proto->graph().node(), model.name));
  if (HasOnnxStructure(*model.proto)) {
    HMM_RETURN_IF_ERROR(CheckNoOptions(model, options));
    return GraphOfOnnxStructure(*model.proto, model.name, nullptr);
  }
  HMM_ASSIGN_OR_RETURN(const std::unique_ptr<Scope> scope, InferOnnx(model, options));
  plan::Graph graph = options.plain ? BuildPlainGraph(*scope) : BuildGraph(*scope);
  if (graph.name.empty()) graph.name = model.name;
  if (const absl::Status sound = plan::CheckGraph(graph); !sound.ok()) {
    return BadModel(model.name, "graph",
                    std::string(sound.message()));  // sizes that add up beyond 2^62
  }
  return graph;
}

}  // namespace

absl::StatusOr<plan::Graph> ImportOnnx(const std::string& path, const OnnxOptions& options) {
  return Import(LoadOnnxFile(path, options), options);
}

absl::StatusOr<plan::Graph> ImportOnnxBytes(std::string_view bytes, const std::string& name,
                                            const std::string& directory,
                                            const OnnxOptions& options) {
  return Import(LoadOnnxBytes(bytes, name, directory, options), options);
}

}  // namespace hmm::graph
