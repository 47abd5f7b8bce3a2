// SPDX-License-Identifier: Apache-2.0
//
// A binary file is walked once before it is parsed: protobuf itself says only "no" and not where,
// keeps fields that it does not know, and spends over a hundred bytes on a record of two.
#include "graph/message_file.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/wire_format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "base/utf8.h"
#include "graph/file_error.h"

namespace hmm::graph {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::internal::WireFormat;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

absl::Status TooLarge(const std::string& file, const std::string& what) {
  return Error(absl::StatusCode::kResourceExhausted, Reason::kTooLarge,
               absl::StrCat(file, ": ", what));
}

constexpr std::size_t kFieldsMax = 32;  // of one message of ours

class WireScan {
 public:
  WireScan(std::string_view bytes, const std::string& file)
      : bytes_(bytes),
        file_(file),
        in_(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<int>(bytes.size())) {}

  absl::Status Run(const Descriptor& type) {
    root_ = &type;
    return Walk(type);
  }

 private:
  struct Step {
    const FieldDescriptor* field;
    std::uint32_t index;  // of a repeated one
  };

  absl::Status Bad(const std::string& what) const {
    std::string where(root_->name());
    for (const Step& step : path_) {
      absl::StrAppend(&where, ".", step.field->name());
      if (step.field->is_repeated()) absl::StrAppend(&where, "[", step.index, "]");
    }
    return BadGraph(absl::StrCat(file_, ": ", where, " (byte ", in_.CurrentPosition(), ")"), what);
  }

  absl::Status Walk(const Descriptor& type) {
    std::array<std::uint32_t, kFieldsMax> seen = {};
    HMM_CHECK(static_cast<std::size_t>(type.field_count()) <= seen.size());
    for (;;) {
      const std::uint32_t tag = in_.ReadTagNoLastTag();
      if (tag == 0) {
        if (in_.BytesUntilLimit() == 0 || AtEnd()) return absl::OkStatus();
        return Bad("no field begins like this: the file is damaged or no such message");
      }
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      const FieldDescriptor* field = type.FindFieldByNumber(number);
      if (field == nullptr) {
        return Bad(absl::StrCat("field ", number, " is unknown: no ", type.full_name(),
                                ", or one of a newer version"));
      }
      path_.push_back({field, seen[static_cast<std::size_t>(field->index())]++});
      HMM_RETURN_IF_ERROR(Value(*field, WireFormatLite::GetTagWireType(tag)));
      path_.pop_back();
    }
  }

  bool AtEnd() const { return static_cast<std::size_t>(in_.CurrentPosition()) == bytes_.size(); }

  absl::Status Value(const FieldDescriptor& field, WireFormatLite::WireType wire) {
    const auto wants = WireFormat::WireTypeForFieldType(field.type());
    const bool packed = field.is_packable() && field.is_repeated() &&
                        wire == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    if (wire != wants && !packed) return Bad("is not encoded as a field of its type");
    std::uint64_t value = 0;
    std::uint32_t word = 0;
    bool whole = false;
    switch (wire) {
      case WireFormatLite::WIRETYPE_VARINT:
        whole = in_.ReadVarint64(&value);
        break;
      case WireFormatLite::WIRETYPE_FIXED64:
        whole = in_.ReadLittleEndian64(&value);
        break;
      case WireFormatLite::WIRETYPE_FIXED32:
        whole = in_.ReadLittleEndian32(&word);
        break;
      default:
        return Delimited(field);
    }
    return whole ? absl::OkStatus() : Bad("the file is cut short");
  }

  // Bytes up to the end of the message that is being walked.
  std::size_t Left() const {
    const std::size_t left = bytes_.size() - static_cast<std::size_t>(in_.CurrentPosition());
    const int limit = in_.BytesUntilLimit();  // -1: none
    return limit < 0 ? left : std::min(left, static_cast<std::size_t>(limit));
  }

  absl::Status Delimited(const FieldDescriptor& field) {
    std::uint32_t length = 0;
    if (!in_.ReadVarint32(&length) || length > Left()) {
      return Bad("longer than what is left: the file is cut short or damaged");
    }
    if (!field.is_packable() && ++records_ > kRecordsMax) {
      return TooLarge(file_, absl::StrCat("more than ", kRecordsMax, " records, the limit here"));
    }
    if (field.message_type() != nullptr) {
      const CodedInputStream::Limit outer = in_.PushLimit(static_cast<int>(length));
      HMM_RETURN_IF_ERROR(Walk(*field.message_type()));
      in_.PopLimit(outer);
      return absl::OkStatus();
    }
    const auto at = static_cast<std::size_t>(in_.CurrentPosition());
    if (field.type() == FieldDescriptor::TYPE_STRING && !IsUtf8(bytes_.substr(at, length))) {
      return Bad("is not UTF-8");
    }
    return in_.Skip(static_cast<int>(length)) ? absl::OkStatus() : Bad("the file is cut short");
  }

  std::string_view bytes_;
  const std::string& file_;
  CodedInputStream in_;
  const Descriptor* root_ = nullptr;
  std::vector<Step> path_;
  std::size_t records_ = 0;
};

// Keeps the first error: those after it follow from it.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;
    text_ = absl::StrCat(line + 1, ":", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

constexpr std::array<std::string_view, 3> kTextEndings = {".pbtxt", ".txtpb", ".textproto"};
constexpr std::array<std::string_view, 2> kBinaryEndings = {".pb", ".binpb"};

}  // namespace

absl::StatusOr<MessageForm> FormOfPath(const std::string& path, std::string_view others) {
  const auto ends = [&path](std::string_view ending) { return path.ends_with(ending); };
  if (std::any_of(kTextEndings.begin(), kTextEndings.end(), ends)) return MessageForm::kText;
  if (std::any_of(kBinaryEndings.begin(), kBinaryEndings.end(), ends)) return MessageForm::kBinary;
  return BadGraph(path,
                  absl::StrCat("the name must end in .pbtxt, .txtpb or .textproto (text) or in .pb "
                               "or .binpb (binary)",
                               std::string(others)));
}

bool BeginsAs(std::string_view bytes, std::string_view format) {
  return bytes.size() > 2 + format.size() && bytes[0] == '\n' &&
         static_cast<std::size_t>(bytes[1]) == format.size() && bytes.substr(2).starts_with(format);
}

absl::Status ParseMessageText(std::string_view text, const std::string& file, Message& message) {
  if (text.size() > kTextBytesMax) {
    return TooLarge(file, absl::StrCat("text larger than ", FormatBytes(kTextBytesMax),
                                       ", the limit here; use the binary form (.pb)"));
  }
  google::protobuf::io::ArrayInputStream in(text.data(), static_cast<int>(text.size()));
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.Parse(&in, &message)) {
    const bool said = !error.text().empty();
    return BadGraph(said ? absl::StrCat(file, ":", error.text()) : file,
                    absl::StrCat("not the text form of ", message.GetDescriptor()->full_name()));
  }
  return absl::OkStatus();
}

absl::Status ParseMessageBinary(std::string_view bytes, const std::string& file, Message& message) {
  if (bytes.size() > kBinaryBytesMax) {
    return TooLarge(file,
                    absl::StrCat("larger than ", FormatBytes(kBinaryBytesMax), ", the limit here"));
  }
  if (bytes.empty()) return BadGraph(file, "the file is empty");
  HMM_RETURN_IF_ERROR(WireScan(bytes, file).Run(*message.GetDescriptor()));
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return BadGraph(file, absl::StrCat("not a binary ", message.GetDescriptor()->full_name()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FormatMessageText(const Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  std::string body;
  const Descriptor& type = *message.GetDescriptor();
  if (!printer.PrintToString(message, &body) || body.size() > kTextBytesMax - kKiB) {
    return TooLarge(type.full_name(), "too large for the text form; use the binary form (.pb)");
  }
  return absl::StrCat("# proto-file: ", type.file()->name(),
                      "\n# proto-message: ", type.full_name(), "\n\n", body);
}

absl::StatusOr<std::string> FormatMessageBinary(const Message& message) {
  if (message.ByteSizeLong() > kBinaryBytesMax) {
    return TooLarge(message.GetDescriptor()->full_name(),
                    absl::StrCat("its binary form exceeds ", FormatBytes(kBinaryBytesMax)));
  }
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream out(&bytes);
    google::protobuf::io::CodedOutputStream coded(&out);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

}  // namespace hmm::graph
