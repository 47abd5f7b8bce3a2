// SPDX-License-Identifier: Apache-2.0
//
// Graphs written for other tools: as ONNX and MindIR, and with the moves of a plan as explicit ops
// in them. What is written here, graph/read_graph.h reads as the same graph.
//
// A graph without a model behind it becomes ops over tensors of bytes, without data: ONNX of domain
// "hmm.graph", MindIR with a primitive an op type. Tools see its structure and sizes; none can run
// it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/plan_proto.h"
#include "graph/read_graph.h"
#include "plan/graph.h"
#include "plan/plan.h"

namespace hmm::graph {

enum class FileFormat : std::uint8_t { kProto, kOnnx, kMindIr };
// "pb", "onnx", "mindir"; nullopt for another name.
std::optional<FileFormat> FileFormatOf(std::string_view name);
// By what the name ends in: .onnx, .mindir, else kProto.
FileFormat FileFormatOfPath(const std::string& path);

// INVALID_ARGUMENT/BAD_GRAPH if no reader would take the graph back; RESOURCE_EXHAUSTED/TOO_LARGE
// for a storage beyond 256 TiB or a file beyond 2 GiB.
absl::StatusOr<std::string> FormatGraphOnnx(const plan::Graph& graph);
absl::StatusOr<std::string> FormatGraphMindIr(const plan::Graph& graph);

// In the format that is asked for, whatever the name; else by the name, which must have an ending.
// kProto is text where the name ends so (graph_proto.h), else binary.
absl::Status WriteGraph(const plan::Graph& graph, std::optional<FileFormat> asked,
                        const std::string& path);

struct AnnotateRequest {
  // The model that `graph` was read from, for its nodes; written in the other format, or empty: the
  // graph's ops stand as above.
  std::string source;
  ReadOptions options;  // that it was read with
  const plan::Graph& graph;
  const plan::Plan& plan;
};

// INVALID_ARGUMENT/BAD_ARGUMENT for a name that WriteAnnotatedGraph refuses: neither .onnx nor
// .mindir.
absl::Status CheckAnnotatedName(const std::string& path);

// The graph with the plan's moves in it, to `path` (.onnx or .mindir). Data carries the order of
// everything (weave.h), so any runtime of the format can run what it could run before.
//
//   ONNX     functions of the model, hmm.SwapOut, hmm.SwapIn and hmm.Depend, each an Identity
//   MindIR   primitives UpdateToRemote, UpdateToDevice, Detach and Depend
//
// The plan itself lies in the file's metadata (ReadAnnotatedPlan). Read back, the nodes of the
// moves are taken out again. FAILED_PRECONDITION/BAD_GRAPH: as Weave, weights in files of their own
// would not be found from there, or another graph would be read back (nothing is written then);
// CheckAnnotatedName's for another ending. REQUIRES: plan::Validate finds no fault in the
// plan.
absl::Status WriteAnnotatedGraph(const AnnotateRequest& request, const std::string& path);

// The plan in an annotated graph (.onnx, .mindir); of another name, a plan's file (ReadPlanProto).
absl::StatusOr<PlanFile> ReadPlan(const std::string& path, const ReadOptions& options = {});

// Whether the moves in an annotated graph are those of its plan, `file`, as ReadPlan read it; of
// another name, OK. What another program may write anew counts for nothing: metadata, names of
// moves. FAILED_PRECONDITION/BAD_GRAPH: they are not. REQUIRES: `options` are those that the plan's
// graph was read with; plan::Validate finds no fault in the plan.
absl::Status CheckMoves(const std::string& path, const PlanFile& file,
                        const ReadOptions& options = {});

}  // namespace hmm::graph
