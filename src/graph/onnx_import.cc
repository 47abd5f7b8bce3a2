// SPDX-License-Identifier: Apache-2.0
#include "graph/onnx_import.h"

#include <utility>

#include "base/status.h"
#include "graph/onnx_build.h"
#include "graph/onnx_infer.h"
#include "graph/onnx_model.h"
#include "plan/lifetimes.h"

namespace hmm::graph {
namespace {

absl::StatusOr<plan::Graph> Import(const absl::StatusOr<OnnxModel>& loaded,
                                   const OnnxOptions& options) {
  if (!loaded.ok()) return loaded.status();
  const OnnxModel& model = *loaded;
  HMM_RETURN_IF_ERROR(CheckOnnxModel(model, options));
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
