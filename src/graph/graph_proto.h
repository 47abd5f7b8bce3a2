// SPDX-License-Identifier: Apache-2.0
//
// plan::Graph as hmm.v1.Graph (proto/hmm/v1/graph.proto), as bytes and as files. What is read is
// checked in full: a graph that comes back is OK to CheckGraph, and its names are unique. A graph
// that passes these checks comes back from either form the same. Thread-compatible.
//
// Readers' errors: INVALID_ARGUMENT/BAD_GRAPH "<file>: ops[3] \"mm\": reads[1]: 77 is no storage
// ..."; RESOURCE_EXHAUSTED/TOO_LARGE past the limits of message_file.h; what errno says of the
// file.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/message_file.h"
#include "plan/graph.h"

namespace hmm::v1 {
class Graph;
}

namespace hmm::graph {

inline constexpr std::string_view kGraphFormat = "hmm.v1.Graph";
inline constexpr std::size_t kOpsMax = std::size_t{4} << 20;
inline constexpr std::size_t kStoragesMax = std::size_t{8} << 20;
inline constexpr std::size_t kNameBytesMax = 4096;

v1::Graph GraphToProto(const plan::Graph& graph);
absl::StatusOr<plan::Graph> GraphFromProto(const v1::Graph& message);

// `file` stands for the file in messages.
absl::StatusOr<plan::Graph> ParseGraphText(std::string_view text, const std::string& file);
absl::StatusOr<plan::Graph> ParseGraphBinary(std::string_view bytes, const std::string& file);

// INVALID_ARGUMENT/BAD_GRAPH if no reader would take it back; see FormatMessage* for the others.
absl::StatusOr<std::string> FormatGraphText(const plan::Graph& graph);
absl::StatusOr<std::string> FormatGraphBinary(const plan::Graph& graph);

// Form by the name's ending: .pbtxt, .txtpb, .textproto; .pb, .binpb.
absl::StatusOr<plan::Graph> ReadGraphProto(const std::string& path);
absl::Status WriteGraphProto(const plan::Graph& graph, const std::string& path);
// Whatever the name.
absl::Status WriteGraphProto(const plan::Graph& graph, MessageForm form, const std::string& path);

}  // namespace hmm::graph
