// SPDX-License-Identifier: Apache-2.0
#include "graph/read_graph.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/file_error.h"
#include "graph/graph_proto.h"
#include "graph/message_file.h"
#include "graph/plan_proto.h"

namespace hmm::graph {
namespace {

enum class Form { kText, kBinary, kCosted, kOnnx, kMindIr, kPlan, kNone };

constexpr std::string_view kOnnxEnding = ".onnx";
constexpr std::string_view kMindIrEnding = ".mindir";
constexpr char kOnnxStart = '\x08';

// MindIR begins with its version, a string such as "0.1.1".
bool BeginsAsMindIr(std::string_view bytes) {
  if (bytes.size() < 4 || bytes[0] != '\n') return false;
  const std::string_view version = bytes.substr(2, static_cast<unsigned char>(bytes[1]));
  return bytes[1] > 0 && version.starts_with("0.") &&
         version.find_first_not_of("0123456789.") == std::string_view::npos;
}

// What is named as a model, and begins as something else. Its own reader would find the file
// damaged somewhere.
absl::Status CheckEnding(std::string_view bytes, const std::string& name) {
  const bool onnx = name.ends_with(kOnnxEnding);
  if (!onnx && !name.ends_with(kMindIrEnding)) return absl::OkStatus();
  const auto is = [&](const char* what, const char* ending) {
    return BadGraph(name, absl::StrCat("is ", what, ", no ", onnx ? "ONNX" : "MindIR",
                                       " model; let its name end in ", ending));
  };
  if (BeginsAs(bytes, kGraphFormat)) return is("a binary hmm.v1.Graph", ".pb");
  if (BeginsAs(bytes, kPlanFormat)) return BadGraph(name, "is a plan, not a graph");
  if (bytes.starts_with("# proto-file: ")) return is("text of hmm.v1", ".pbtxt");
  if (onnx && BeginsAsMindIr(bytes)) return is("a MindIR model", ".mindir");
  if (!onnx && bytes.starts_with(kOnnxStart)) return is("an ONNX model", ".onnx");
  return absl::OkStatus();
}

// The first bytes of a file; none of one that can be read only once, or not at all.
std::string HeadOf(const std::string& path) {
  std::error_code error;
  std::string head(64, '\0');
  if (!std::filesystem::is_regular_file(path, error)) return "";
  std::ifstream in(path, std::ios::binary);
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(in.gcount()));
  return head;
}

// JSON and what our own writers made say what they are, whatever their name; so do models: the
// first field of most ONNX is a small number (ir_version) where ours and MindIR's is a string. Else
// the name decides.
Form FormOf(std::string_view bytes, const std::string& name) {
  if (BeginsAs(bytes, kGraphFormat)) return Form::kBinary;
  if (BeginsAs(bytes, kPlanFormat)) return Form::kPlan;
  if (name.ends_with(kMindIrEnding) || BeginsAsMindIr(bytes)) return Form::kMindIr;
  if (name.ends_with(kOnnxEnding) || bytes.starts_with(kOnnxStart)) return Form::kOnnx;
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
  HMM_RETURN_IF_ERROR(CheckEnding(bytes, name));
  const Form form = FormOf(bytes, name);
  if (form != Form::kOnnx && form != Form::kNone) {
    HMM_RETURN_IF_ERROR(CheckNoDims(name, options));
  }
  switch (form) {
    case Form::kOnnx:
      return ImportOnnxBytes(bytes, name, std::filesystem::path(name).parent_path().string(),
                             options.onnx);
    case Form::kMindIr:
      return ImportMindIrBytes(bytes, name, std::filesystem::path(name).parent_path().string(),
                               options.mindir);
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
                  ".json (costed graph), .onnx or .mindir");
}

absl::StatusOr<plan::Graph> ReadGraph(const std::string& path, const ReadOptions& options) {
  HMM_RETURN_IF_ERROR(CheckEnding(HeadOf(path), path));
  if (path.ends_with(kOnnxEnding)) return ImportOnnx(path, options.onnx);
  if (path.ends_with(kMindIrEnding)) {
    HMM_RETURN_IF_ERROR(CheckNoDims(path, options));
    return ImportMindIr(path, options.mindir);
  }
  HMM_ASSIGN_OR_RETURN(const std::string bytes, ReadFileBytes(path, kBinaryBytesMax));
  return ReadGraphBytes(bytes, path, options);
}

}  // namespace hmm::graph
