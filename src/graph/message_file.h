// SPDX-License-Identifier: Apache-2.0
//
// Messages of hmm.v1 as files: text (.pbtxt, .txtpb, .textproto) and binary (.pb, .binpb). Shared
// by the forms of graphs and plans. Every error names the file and, where there is one, line and
// column or byte and field. Thread-compatible.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.h"

namespace hmm::graph {

// Past these a file is refused before memory is spent on it. A record takes some ten times its
// bytes once it is read, so text, which is for people, has the lower limit.
inline constexpr Bytes kTextBytesMax = 64 * kMiB;
inline constexpr Bytes kBinaryBytesMax = kGiB;
inline constexpr std::size_t kRecordsMax = 16'000'000;  // messages and strings of one binary file

enum class MessageForm { kText, kBinary };
// By what the file's name ends in; INVALID_ARGUMENT/BAD_GRAPH names the endings there are, and
// `others` behind them.
absl::StatusOr<MessageForm> FormOfPath(const std::string& path, std::string_view others = "");

// Whether `bytes` begin as the binary form of the message whose field 1 is `format`.
bool BeginsAs(std::string_view bytes, std::string_view format);

// INVALID_ARGUMENT/BAD_GRAPH: not this message, cut short, a field that it does not have, a value
// out of its type's range, text that is not UTF-8. RESOURCE_EXHAUSTED/TOO_LARGE past the limits.
absl::Status ParseMessageText(std::string_view text, const std::string& file,
                              google::protobuf::Message& message);
absl::Status ParseMessageBinary(std::string_view bytes, const std::string& file,
                                google::protobuf::Message& message);

// The binary form is the same for the same message. RESOURCE_EXHAUSTED/TOO_LARGE if the result
// could not be read back. REQUIRES: all strings are UTF-8.
absl::StatusOr<std::string> FormatMessageText(const google::protobuf::Message& message);
absl::StatusOr<std::string> FormatMessageBinary(const google::protobuf::Message& message);

}  // namespace hmm::graph
