// SPDX-License-Identifier: Apache-2.0
//
// From a file or bytes to a parsed model.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "graph/onnx_model.h"

namespace hmm::graph {
namespace {

// Protobuf's own default is 100 levels of messages; a subgraph takes three.
constexpr int kMessageDepthMax = 100;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status CheckFileSize(const std::string& name, Bytes bytes, const OnnxOptions& options) {
  if (bytes == 0) return BadModel(name, "file", "is empty; a model was expected");
  if (bytes > options.file_bytes_max) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kBadGraph,
                 absl::StrCat(name, ": file: ", bytes, " bytes, at most ", options.file_bytes_max,
                              " can be read; store the weights as external data"));
  }
  return absl::OkStatus();
}

absl::StatusOr<OnnxModel> Parse(google::protobuf::io::ZeroCopyInputStream& input,
                                const std::string& name, const std::string& directory) {
  OnnxModel model{std::make_unique<onnx::ModelProto>(), name, directory};
  google::protobuf::io::CodedInputStream coded(&input);
  coded.SetTotalBytesLimit(std::numeric_limits<int>::max());
  coded.SetRecursionLimit(kMessageDepthMax);
  if (!model.proto->ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage()) {
    return BadModel(name, "file", "is no ONNX model, or is cut short");
  }
  if (!model.proto->has_graph() || !model.proto->has_ir_version()) {
    return BadModel(name, model.proto->has_graph() ? "ir_version" : "graph",
                    "missing; the file is no ONNX model, or is cut short");
  }
  if (model.proto->ir_version() < 1) {
    return BadModel(name, "ir_version", absl::StrCat(model.proto->ir_version(), " is no version"));
  }
  if (model.proto->opset_import().empty() && model.proto->ir_version() >= 3) {
    return BadModel(name, "opset_import", "missing; the file is malformed, or is cut short");
  }
  return model;
}

}  // namespace

absl::StatusOr<OnnxModel> LoadOnnxFile(const std::string& path, const OnnxOptions& options) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat stat = {};
  if (file.get() < 0 || fstat(file.get(), &stat) != 0) return PosixError(path, errno);
  if (!S_ISREG(stat.st_mode)) return BadModel(path, "file", "is no regular file");
  HMM_RETURN_IF_ERROR(CheckFileSize(path, static_cast<Bytes>(stat.st_size), options));
  google::protobuf::io::FileInputStream input(file.get());
  absl::StatusOr<OnnxModel> model =
      Parse(input, path, std::filesystem::path(path).parent_path().string());
  if (input.GetErrno() != 0) return PosixError(path, input.GetErrno());
  return model;
}

absl::StatusOr<OnnxModel> LoadOnnxBytes(std::string_view bytes, const std::string& name,
                                        const std::string& directory, const OnnxOptions& options) {
  HMM_RETURN_IF_ERROR(CheckFileSize(name, bytes.size(), options));
  if (bytes.size() > std::numeric_limits<int>::max()) {
    return BadModel(name, "file", "is larger than 2 GiB");
  }
  google::protobuf::io::ArrayInputStream input(bytes.data(), static_cast<int>(bytes.size()));
  return Parse(input, name, directory);
}

}  // namespace hmm::graph
