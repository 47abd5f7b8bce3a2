// SPDX-License-Identifier: Apache-2.0
//
// From a file to a parsed model. A file is walked once before it is parsed: protobuf spends over a
// hundred bytes on a record of two, so records are counted while they are still bytes.
#include "graph/mindir_model.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/external_file.h"
#include "graph/file_error.h"

namespace hmm::graph {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using mind_ir::AttributeProto;
using mind_ir::GraphProto;
using mind_ir::TensorProto;

constexpr int kMessageDepthMax = 100;
constexpr int kRankMax = 64;
constexpr std::size_t kVariableFilesMax = 100'000;
constexpr std::int64_t kElementsMax = static_cast<std::int64_t>(kMindIrBytesMax);
constexpr std::string_view kGraphSuffix = "_graph.mindir";

// The first four bytes of an encrypted file, and the cipher they stand for.
struct Cipher {
  std::uint32_t magic;
  const char* name;
};
constexpr std::array<Cipher, 3> kCiphers = {
    {{0x7F3A5ED8, "AES-GCM"}, {0x7F3A5ED9, "AES-CBC"}, {0x7F3A5EDA, "SM4-CBC"}}};

absl::Status CheckBytes(std::string_view bytes, const std::string& name,
                        const MindIrOptions& options) {
  if (bytes.empty()) return BadMindIr(name, "file", "is empty; a model was expected");
  if (bytes.size() > options.file_bytes_max) {
    return Error(
        absl::StatusCode::kResourceExhausted, Reason::kBadGraph,
        absl::StrCat(name, ": file: ", bytes.size(), " bytes, at most ", options.file_bytes_max,
                     " can be read; export the weights to files of their own"));
  }
  std::uint32_t magic = 0;
  if (bytes.size() < sizeof(magic)) return absl::OkStatus();
  std::memcpy(&magic, bytes.data(), sizeof(magic));  // little-endian, as we are
  for (const Cipher& cipher : kCiphers) {
    if (magic != cipher.magic) continue;
    return BadMindIr(name, "file",
                     absl::StrCat("is encrypted (", cipher.name,
                                  "), which is not read here; export it without enc_key"));
  }
  return absl::OkStatus();
}

// Counts the records of a message of ours: everything with a length but packed numbers. Depth and
// lengths are bounded here too, so that a broken file is refused before anything is built of it.
class RecordCount {
 public:
  RecordCount(std::string_view bytes, std::size_t records_max)
      : in_(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<int>(bytes.size())),
        records_max_(records_max) {}

  enum class Outcome { kFine, kBroken, kTooMany };
  Outcome Run(const Descriptor& type) {
    const bool whole = Walk(type, 0);
    return records_ > records_max_ ? Outcome::kTooMany : whole ? Outcome::kFine : Outcome::kBroken;
  }

 private:
  bool Walk(const Descriptor& type, int depth) {
    if (depth > kMessageDepthMax) return false;
    for (;;) {
      const std::uint32_t tag = in_.ReadTagNoLastTag();
      if (tag == 0) return in_.BytesUntilLimit() <= 0;
      const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      const bool delimited =
          WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
      if (!delimited) {
        // Numbers that are not packed, dims for one, take no more than they do in the file.
        if (!WireFormatLite::SkipField(&in_, tag)) return false;
        continue;
      }
      std::uint32_t length = 0;
      if (!in_.ReadVarint32(&length)) return false;
      const bool packed = field != nullptr && field->is_packable();
      if (!packed && ++records_ > records_max_) return false;
      if (field == nullptr || field->message_type() == nullptr) {
        if (length > kIntMax || !in_.Skip(static_cast<int>(length))) return false;
        continue;
      }
      if (length > kIntMax) return false;
      const CodedInputStream::Limit outer = in_.PushLimit(static_cast<int>(length));
      if (in_.BytesUntilLimit() != static_cast<int>(length)) return false;
      if (!Walk(*field->message_type(), depth + 1)) return false;
      in_.PopLimit(outer);
    }
  }

  static constexpr std::uint32_t kIntMax = 0x7FFFFFFF;
  CodedInputStream in_;
  std::size_t records_max_;
  std::size_t records_ = 0;
};

template <typename Message>
absl::Status Parse(std::string_view bytes, const std::string& name, const MindIrOptions& options,
                   Message& message) {
  switch (RecordCount(bytes, options.records_max).Run(*Message::descriptor())) {
    case RecordCount::Outcome::kTooMany:
      return Error(absl::StatusCode::kResourceExhausted, Reason::kBadGraph,
                   absl::StrCat(name, ": file: more than ", options.records_max,
                                " records, the limit here"));
    case RecordCount::Outcome::kBroken:
      return BadMindIr(name, "file", "is no MindIR, or is cut short");
    case RecordCount::Outcome::kFine:
      break;
  }
  google::protobuf::io::ArrayInputStream input(bytes.data(), static_cast<int>(bytes.size()));
  CodedInputStream coded(&input);
  coded.SetRecursionLimit(kMessageDepthMax);
  if (!message.ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage()) {
    return BadMindIr(name, "file", "is no MindIR, or is cut short");
  }
  return absl::OkStatus();
}

class Checker {
 public:
  Checker(const MindIrModel& model, const MindIrOptions& options)
      : model_(model), files_(model.directory, options.external_data_required) {}

  absl::Status Run() {
    HMM_RETURN_IF_ERROR(CheckGraph(model_.proto->graph()));
    for (const GraphProto& graph : model_.proto->functions()) {
      HMM_RETURN_IF_ERROR(CheckGraph(graph));
    }
    for (const auto& primitive : model_.proto->primitives()) {
      const std::string where = absl::StrCat("primitive ", Shown(primitive.name()));
      for (const AttributeProto& attribute : primitive.attribute()) {
        HMM_RETURN_IF_ERROR(CheckAttribute(attribute, where));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Bad(const std::string& where, std::string_view what) const {
    return BadMindIr(model_.name, where, what);
  }

  absl::Status CheckTensor(const TensorProto& tensor, const std::string& where) {
    if (tensor.dims_size() > kRankMax) {
      return Bad(where, absl::StrCat("dims: ", tensor.dims_size(), " of them, at most ", kRankMax));
    }
    if (!MindIrElementBits(tensor.data_type()).has_value()) {
      return Bad(where, absl::StrCat("data_type ", tensor.data_type(), " is not known"));
    }
    bool known = true;
    std::int64_t product = 1;
    for (int d = 0; d < tensor.dims_size(); ++d) {
      const std::int64_t dim = tensor.dims(d);
      if (dim < -2) return Bad(where, absl::StrCat("dims[", d, "] is ", dim, ", negative"));
      known = known && dim >= 0;
      if (dim <= 0) continue;
      if (dim > kElementsMax / product) return Bad(where, "dims: their product is too large");
      product *= dim;
    }
    return known && tensor.compression_type() == 0 ? CheckData(tensor, where) : absl::OkStatus();
  }

  absl::Status CheckData(const TensorProto& tensor, const std::string& where) {
    const Bytes bytes = MindIrTensorBytes(tensor).value_or(0);
    if (tensor.has_raw_data() && bytes > 0 && !tensor.raw_data().empty() &&
        tensor.raw_data().size() != bytes) {
      return Bad(where, absl::StrCat("raw_data: ", tensor.raw_data().size(),
                                     " bytes, its shape needs ", bytes));
    }
    if (!tensor.has_external_data()) return absl::OkStatus();
    const mind_ir::ExternalDataProto& data = tensor.external_data();
    if (data.offset() < 0 || data.length() < 0) {
      return Bad(where, "external_data: offset and length must not be negative");
    }
    if (data.has_length() && static_cast<Bytes>(data.length()) != bytes) {
      return Bad(where, absl::StrCat("external_data.length: ", data.length(),
                                     " bytes, its shape needs ", bytes));
    }
    return files_.CheckRange(data.location(), static_cast<Bytes>(data.offset()), bytes,
                             absl::StrCat(model_.name, ": ", where));
  }

  absl::Status CheckAttribute(const AttributeProto& attribute, const std::string& where) {
    if (attribute.has_t()) HMM_RETURN_IF_ERROR(CheckTensor(attribute.t(), where));
    for (const TensorProto& tensor : attribute.tensors()) {
      HMM_RETURN_IF_ERROR(CheckTensor(tensor, where));
    }
    for (const AttributeProto& value : attribute.values()) {
      HMM_RETURN_IF_ERROR(CheckAttribute(value, where));
    }
    return absl::OkStatus();
  }

  absl::Status CheckGraph(const GraphProto& graph) {
    const std::string at = absl::StrCat("graph ", Shown(graph.name()), ": ");
    for (const TensorProto& tensor : graph.parameter()) {
      HMM_RETURN_IF_ERROR(
          CheckTensor(tensor, absl::StrCat(at, "parameter ", Shown(tensor.name()))));
    }
    for (const auto& map : graph.map_parameter()) {
      const std::string where = absl::StrCat(at, "map_parameter ", Shown(map.name()));
      for (const TensorProto* part :
           {&map.key_tensor(), &map.value_tensor(), &map.status_tensor()}) {
        HMM_RETURN_IF_ERROR(CheckTensor(*part, where));
      }
    }
    for (const auto* values : {&graph.input(), &graph.output()}) {
      for (const auto& value : *values) {
        const std::string where = absl::StrCat(at, "value ", Shown(value.name()));
        for (const TensorProto& tensor : value.tensor()) {
          HMM_RETURN_IF_ERROR(CheckTensor(tensor, where));
        }
      }
    }
    for (int n = 0; n < graph.node_size(); ++n) {
      for (const AttributeProto& attribute : graph.node(n).attribute()) {
        HMM_RETURN_IF_ERROR(CheckAttribute(attribute, MindIrNodePlace(graph.node(n), n, graph)));
      }
    }
    return absl::OkStatus();
  }

  const MindIrModel& model_;
  ExternalFiles files_;
};

// MindSpore before external_data: every file of X_variables is a graph with parameters.
absl::Status TakeVariables(const std::string& path, const MindIrOptions& options,
                           MindIrModel& model) {
  namespace fs = std::filesystem;
  GraphProto& top = *model.proto->mutable_graph();
  if (!path.ends_with(kGraphSuffix) || top.parameter_size() > 0) return absl::OkStatus();
  const fs::path folder = path.substr(0, path.size() - kGraphSuffix.size()) + "_variables";
  std::error_code error;
  if (!fs::is_directory(folder, error)) return absl::OkStatus();
  std::vector<std::string> files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (files.size() >= kVariableFilesMax) {
      return BadMindIr(path, folder.string(),
                       absl::StrCat("more than ", kVariableFilesMax, " files"));
    }
    if (entry->is_regular_file(error)) files.push_back(entry->path().string());
  }
  if (error) return BadMindIr(path, folder.string(), error.message());
  std::sort(files.begin(), files.end());
  model.took_variables = !files.empty();
  for (const std::string& file : files) {
    const absl::StatusOr<std::string> bytes = ReadFileBytes(file, options.file_bytes_max);
    if (!bytes.ok()) return bytes.status();
    HMM_RETURN_IF_ERROR(CheckBytes(*bytes, file, options));
    GraphProto part;
    HMM_RETURN_IF_ERROR(Parse(*bytes, file, options, part));
    for (TensorProto& tensor : *part.mutable_parameter()) {
      // Only sizes are wanted from here on, and the weights together may be beyond any memory.
      const bool whole = tensor.compression_type() != 0 || tensor.raw_data().empty() ||
                         tensor.raw_data().size() == MindIrTensorBytes(tensor).value_or(0);
      if (!whole) {
        return BadMindIr(file, absl::StrCat("parameter ", Shown(tensor.name())),
                         absl::StrCat("raw_data: ", tensor.raw_data().size(),
                                      " bytes, which its shape does not need"));
      }
      tensor.clear_raw_data();
      top.add_parameter()->Swap(&tensor);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BadMindIr(const std::string& file, std::string_view where, std::string_view what) {
  return BadGraph(absl::StrCat(file, ": ", std::string(where)), what);
}

std::string MindIrNodePlace(const mind_ir::NodeProto& node, int index, const GraphProto& graph) {
  const std::string& name = node.output_size() > 0 ? node.output(0) : node.name();
  return absl::StrCat("node ", Shown(name), " (", Shown(node.op_type()), ", #", index, " of graph ",
                      Shown(graph.name()), ")");
}

std::optional<int> MindIrElementBits(int data_type) {
  // By TensorProto.DataType, from UNDEFINED on.
  constexpr std::array<int, 19> kBits = {0,  32, 8,  8,  16, 16,  32, 64, 0, 8,
                                         16, 64, 32, 64, 64, 128, 16, 64, 4};
  if (data_type < 0 || static_cast<std::size_t>(data_type) >= kBits.size()) return std::nullopt;
  return kBits[static_cast<std::size_t>(data_type)];
}

std::optional<Bytes> MindIrTensorBytes(const TensorProto& tensor) {
  const int bits = MindIrElementBits(tensor.data_type()).value_or(0);
  if (bits == 0) return std::nullopt;
  std::uint64_t count = 1;
  bool zero = false;
  for (const std::int64_t dim : tensor.dims()) {
    if (dim < 0) return std::nullopt;
    zero = zero || dim == 0;
    if (dim == 0) continue;
    if (static_cast<std::uint64_t>(dim) > static_cast<std::uint64_t>(kElementsMax) / count) {
      return std::nullopt;
    }
    count *= static_cast<std::uint64_t>(dim);
  }
  if (zero) return 0;
  return bits >= 8 ? count * static_cast<Bytes>(bits / 8) : (count + 1) / 2;
}

absl::StatusOr<MindIrModel> LoadMindIrBytes(std::string_view bytes, const std::string& name,
                                            const std::string& directory,
                                            const MindIrOptions& options) {
  HMM_RETURN_IF_ERROR(CheckBytes(bytes, name, options));
  MindIrModel model{std::make_unique<mind_ir::ModelProto>(), name, directory};
  HMM_RETURN_IF_ERROR(Parse(bytes, name, options, *model.proto));
  if (!model.proto->has_graph() || !model.proto->has_ir_version()) {
    return BadMindIr(name, model.proto->has_graph() ? "ir_version" : "graph",
                     "missing; the file is no MindIR, or is cut short");
  }
  HMM_RETURN_IF_ERROR(TakeVariables(name, options, model));
  HMM_RETURN_IF_ERROR(Checker(model, options).Run());
  return model;
}

absl::StatusOr<MindIrModel> LoadMindIrFile(const std::string& path, const MindIrOptions& options) {
  HMM_ASSIGN_OR_RETURN(const std::string bytes, ReadFileBytes(path, options.file_bytes_max));
  return LoadMindIrBytes(bytes, path, std::filesystem::path(path).parent_path().string(), options);
}

}  // namespace hmm::graph
