// SPDX-License-Identifier: Apache-2.0
#include "graph/read_graph.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/file_error.h"
#include "graph/graph_proto.h"
#include "graph/message_file.h"
#include "graph/plan_proto.h"

namespace hmm::graph {
namespace {

enum class Form { kText, kBinary, kCosted, kOnnx, kPlan, kNone };

constexpr std::string_view kOnnxEnding = ".onnx";

// JSON and what our own writers made say what they are, whatever their name; so do most ONNX
// models, whose first field is a small number (ir_version) where ours have a string. Else the name
// decides.
Form FormOf(std::string_view bytes, const std::string& name) {
  if (BeginsAs(bytes, kGraphFormat)) return Form::kBinary;
  if (BeginsAs(bytes, kPlanFormat)) return Form::kPlan;
  if (name.ends_with(kOnnxEnding) || bytes.starts_with('\x08')) return Form::kOnnx;
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && bytes[first] == '{') return Form::kCosted;
  if (name.ends_with(".json")) return Form::kCosted;
  const absl::StatusOr<MessageForm> form = FormOfPath(name);
  if (!form.ok()) return Form::kNone;
  return *form == MessageForm::kText ? Form::kText : Form::kBinary;
}

absl::Status CheckNoDims(const std::string& name, const ReadOptions& options) {
  if (options.onnx.dims.empty()) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
               absl::StrCat("dims: ", name, " is no ONNX model and has no dimension ",
                            Shown(options.onnx.dims.begin()->first)));
}

}  // namespace

absl::StatusOr<plan::Graph> ReadGraphBytes(std::string_view bytes, const std::string& name,
                                           const ReadOptions& options) {
  const Form form = FormOf(bytes, name);
  if (form != Form::kOnnx && form != Form::kNone) {
    HMM_RETURN_IF_ERROR(CheckNoDims(name, options));
  }
  switch (form) {
    case Form::kOnnx:
      return ImportOnnxBytes(bytes, name, std::filesystem::path(name).parent_path().string(),
                             options.onnx);
    case Form::kText:
      return ParseGraphText(bytes, name);
    case Form::kBinary:
      return ParseGraphBinary(bytes, name);
    case Form::kCosted:
      return ParseCostedGraph(bytes, name, options.costed);
    case Form::kPlan:
      return BadGraph(name, "is a plan, not a graph");
    case Form::kNone:
      break;
  }
  return BadGraph(name,
                  "is no graph that can be told by its content; name it .pbtxt, .txtpb or "
                  ".textproto (hmm.v1.Graph, text), .pb or .binpb (hmm.v1.Graph, binary) or "
                  ".json (costed graph) or .onnx");
}

absl::StatusOr<plan::Graph> ReadGraph(const std::string& path, const ReadOptions& options) {
  if (path.ends_with(kOnnxEnding)) return ImportOnnx(path, options.onnx);
  HMM_ASSIGN_OR_RETURN(const std::string bytes, ReadFileBytes(path, kBinaryBytesMax));
  return ReadGraphBytes(bytes, path, options);
}

}  // namespace hmm::graph
