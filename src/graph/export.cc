// SPDX-License-Identifier: Apache-2.0
#include "graph/export.h"

#include <filesystem>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/annotation.h"
#include "graph/file_error.h"
#include "graph/graph_proto.h"
#include "graph/message_file.h"
#include "graph/mindir_annotate.h"
#include "graph/mindir_structure.h"
#include "graph/onnx_annotate.h"
#include "graph/onnx_structure.h"

namespace hmm::graph {
namespace {

constexpr std::string_view kModelEndings = ", in .onnx or in .mindir";

bool HasExternalData(const onnx::GraphProto& graph) {
  const auto external = [](const onnx::TensorProto& tensor) {
    return tensor.data_location() == onnx::TensorProto::EXTERNAL;
  };
  for (const auto& tensor : graph.initializer()) {
    if (external(tensor)) return true;
  }
  bool found = false;
  for (const auto& node : graph.node()) {
    for (const auto& attribute : node.attribute()) found |= external(attribute.t());
    ForEachSubgraph(node, [&](const std::string&, const onnx::GraphProto& inner) {
      found |= HasExternalData(inner);
    });
  }
  return found;
}

bool HasExternalData(const mind_ir::GraphProto& graph) {
  for (const auto& tensor : graph.parameter()) {
    if (tensor.has_external_data()) return true;
  }
  return false;
}

std::filesystem::path FolderOf(const std::string& path) {
  std::error_code error;
  return std::filesystem::absolute(path, error).lexically_normal().parent_path();
}

absl::Status Cannot(const std::string& file, const std::string& what) {
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kBadGraph,
               absl::StrCat(file, ": ", what));
}

// Weights in files of their own are named from the model's folder.
absl::Status CheckFolder(const std::string& source, const std::string& path) {
  if (FolderOf(source) == FolderOf(path)) return absl::OkStatus();
  return Cannot(path, absl::StrCat("must lie beside ", source,
                                   ", whose weights are in files of their own there"));
}

absl::StatusOr<std::string> Onnx(const AnnotateRequest& request, const std::string& path) {
  OnnxModel model;
  if (FileFormatOfPath(request.source) == FileFormat::kOnnx) {
    HMM_ASSIGN_OR_RETURN(model, LoadOnnxFile(request.source, request.options.onnx));
    HMM_RETURN_IF_ERROR(CheckOnnxModel(model, request.options.onnx));
    if (IsAnnotatedOnnx(*model.proto)) HMM_RETURN_IF_ERROR(UnannotateOnnx(model));
    if (HasExternalData(model.proto->graph())) {
      HMM_RETURN_IF_ERROR(CheckFolder(request.source, path));
    }
  } else {
    HMM_ASSIGN_OR_RETURN(onnx::ModelProto proto, OnnxOfGraph(request.graph));
    model = {std::make_unique<onnx::ModelProto>(std::move(proto)), path, ""};
  }
  HMM_RETURN_IF_ERROR(AnnotateOnnx(request.graph, request.plan, model));
  return SerializedOnnx(*model.proto);
}

absl::StatusOr<std::string> MindIr(const AnnotateRequest& request, const std::string& path) {
  MindIrModel model;
  const MindIrOptions& options = request.options.mindir;
  if (FileFormatOfPath(request.source) == FileFormat::kMindIr) {
    HMM_ASSIGN_OR_RETURN(model, LoadMindIrFile(request.source, options));
    if (IsAnnotatedMindIr(*model.proto)) HMM_RETURN_IF_ERROR(UnannotateMindIr(model));
    if (model.took_variables) {
      return Cannot(request.source,
                    "its weights are in files of MindSpore 1.x, which a graph of "
                    "another name cannot take; export it with a later version");
    }
    if (HasExternalData(model.proto->graph())) {
      HMM_RETURN_IF_ERROR(CheckFolder(request.source, path));
    }
  } else {
    HMM_ASSIGN_OR_RETURN(mind_ir::ModelProto proto, MindIrOfGraph(request.graph));
    model.proto = std::make_unique<mind_ir::ModelProto>(std::move(proto));
    model.name = path;
  }
  HMM_RETURN_IF_ERROR(AnnotateMindIr(request.graph, request.plan, options, model));
  return SerializedMindIr(*model.proto);
}

absl::Status Edited(const std::string& path, const char* what) {
  return Cannot(path, absl::StrCat("the ", what,
                                   " in it are not those of its plan; it was edited after hmmctl "
                                   "wrote it, or another version wrote it: plan the model anew"));
}

// Takes the moves out, and writes those of the plan in: the same nodes must come of it.
absl::Status CheckOnnxMoves(const std::string& path, const PlanFile& file, ReadOptions options) {
  HMM_ASSIGN_OR_RETURN(OnnxModel model, LoadOnnxFile(path, options.onnx));
  HMM_RETURN_IF_ERROR(CheckOnnxModel(model, options.onnx));
  if (!IsAnnotatedOnnx(*model.proto)) return Edited(path, "nodes");
  const std::vector<std::string> found = NodeBytes(model.proto->graph().node());
  HMM_RETURN_IF_ERROR(UnannotateOnnx(model));
  if (HasOnnxStructure(*model.proto)) {  // it is the other graph that has symbols to bind
    options.onnx.dims.clear();
    options.onnx.plain = false;
  }
  HMM_ASSIGN_OR_RETURN(const plan::Graph graph, ImportOnnx(path, options.onnx));
  if (!CheckIdentity(file.graph, graph).ok()) return Edited(path, "ops and tensors");
  const bool same =
      AnnotateOnnx(graph, file.plan, model).ok() && NodeBytes(model.proto->graph().node()) == found;
  return same ? absl::OkStatus() : Edited(path, "moves");
}

absl::Status CheckMindIrMoves(const std::string& path, const PlanFile& file,
                              const MindIrOptions& options) {
  HMM_ASSIGN_OR_RETURN(MindIrModel model, LoadMindIrFile(path, options));
  if (!IsAnnotatedMindIr(*model.proto)) return Edited(path, "nodes");
  const std::vector<std::string> found = NodeBytes(model.proto->graph().node());
  HMM_RETURN_IF_ERROR(UnannotateMindIr(model));
  HMM_ASSIGN_OR_RETURN(const plan::Graph graph, ImportMindIr(path, options));
  if (!CheckIdentity(file.graph, graph).ok()) return Edited(path, "ops and tensors");
  const bool same = AnnotateMindIr(graph, file.plan, options, model).ok() &&
                    NodeBytes(model.proto->graph().node()) == found;
  return same ? absl::OkStatus() : Edited(path, "moves");
}

}  // namespace

std::optional<FileFormat> FileFormatOf(std::string_view name) {
  if (name == "pb") return FileFormat::kProto;
  if (name == "onnx") return FileFormat::kOnnx;
  if (name == "mindir") return FileFormat::kMindIr;
  return std::nullopt;
}

FileFormat FileFormatOfPath(const std::string& path) {
  if (path.ends_with(".onnx")) return FileFormat::kOnnx;
  return path.ends_with(".mindir") ? FileFormat::kMindIr : FileFormat::kProto;
}

absl::Status WriteGraph(const plan::Graph& graph, std::optional<FileFormat> asked,
                        const std::string& path) {
  const FileFormat format = asked.value_or(FileFormatOfPath(path));
  if (format == FileFormat::kProto) {
    const absl::StatusOr<MessageForm> form = FormOfPath(path, kModelEndings);
    if (!form.ok() && !asked.has_value()) return form.status();
    return WriteGraphProto(graph, form.value_or(MessageForm::kBinary), path);
  }
  const absl::StatusOr<std::string> bytes =
      format == FileFormat::kOnnx ? FormatGraphOnnx(graph) : FormatGraphMindIr(graph);
  if (!bytes.ok()) return Annotate(bytes.status(), path);
  return WriteFileBytes(path, *bytes);
}

absl::Status CheckAnnotatedName(const std::string& path) {
  if (FileFormatOfPath(path) != FileFormat::kProto) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
               absl::StrCat(path, ": the name must end in .onnx or .mindir",
                            FormOfPath(path).ok() ? "; hmm.v1.Graph has no place for moves" : ""));
}

absl::Status WriteAnnotatedGraph(const AnnotateRequest& request, const std::string& path) {
  HMM_RETURN_IF_ERROR(CheckAnnotatedName(path));
  const FileFormat format = FileFormatOfPath(path);
  const absl::StatusOr<std::string> bytes =
      format == FileFormat::kOnnx ? Onnx(request, path) : MindIr(request, path);
  if (!bytes.ok()) return bytes.status();
  // An odd model may not come back as it was; then no file is better than one that lies. Read
  // before it is written, so that what lies there stays.
  ReadOptions options = request.options;
  if (format != FileFormat::kOnnx) options.onnx.dims.clear();  // only ONNX has symbols to bind
  const absl::StatusOr<plan::Graph> back = ReadGraphBytes(*bytes, path, options);
  const absl::Status same =
      back.ok() ? CheckIdentity(IdentityOf(*back), request.graph) : back.status();
  if (same.ok()) return WriteFileBytes(path, *bytes);
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kBadGraph,
               absl::StrCat(path, ": with moves in it the model would not be read back the same: ",
                            std::string(same.message())));
}

absl::StatusOr<PlanFile> ReadPlan(const std::string& path, const ReadOptions& options) {
  std::string encoded;
  switch (FileFormatOfPath(path)) {
    case FileFormat::kProto:
      HMM_RETURN_IF_ERROR(FormOfPath(path, kModelEndings).status());
      return ReadPlanProto(path);
    case FileFormat::kOnnx: {
      const absl::StatusOr<OnnxModel> model = LoadOnnxFile(path, options.onnx);
      if (!model.ok()) return model.status();
      for (const auto& entry : model->proto->metadata_props()) {
        if (entry.key() == kPlanKey) encoded = entry.value();
      }
      break;
    }
    case FileFormat::kMindIr: {
      const absl::StatusOr<MindIrModel> model = LoadMindIrFile(path, options.mindir);
      if (!model.ok()) return model.status();
      const auto found = model->proto->user_info().find(kPlanKey);
      if (found != model->proto->user_info().end()) encoded = found->second;
      break;
    }
  }
  std::string bytes;
  const std::string where = absl::StrCat(path, ": ", kPlanKey);
  if (encoded.empty()) {
    return BadGraph(path, "holds no plan; `hmmctl plan GRAPH --emit-graph` writes one that does");
  }
  if (!absl::Base64Unescape(encoded, &bytes)) return BadGraph(where, "is not base64");
  return ParsePlanBinary(bytes, where);
}

absl::Status CheckMoves(const std::string& path, const PlanFile& file, const ReadOptions& given) {
  ReadOptions options = given;  // whoever has the graph has its weights, this file may lie alone
  options.onnx.external_data_required = false;
  options.mindir.external_data_required = false;
  switch (FileFormatOfPath(path)) {
    case FileFormat::kProto:
      break;
    case FileFormat::kOnnx:
      return CheckOnnxMoves(path, file, options);
    case FileFormat::kMindIr:
      return CheckMindIrMoves(path, file, options.mindir);
  }
  return absl::OkStatus();
}

}  // namespace hmm::graph
