// SPDX-License-Identifier: Apache-2.0
//
// What all readers of this folder share: how their errors read, and files as bytes.
// Thread-compatible.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.h"

namespace hmm::graph {

// INVALID_ARGUMENT/BAD_GRAPH "<where>: <what>"; `where` is a file, and a line or a node in it.
absl::Status BadGraph(std::string_view where, std::string_view what);

// A name from a file as messages show it: in double quotes, what does not print escaped, cut at 80.
std::string Shown(std::string_view name);

// "; did you mean 'hbm'?", or with nothing near "; known are a, b, c". Empty if nothing is known.
std::string Suggestion(std::string_view given, const std::vector<std::string_view>& known);

// The line (from 1) that byte `offset` of `text` lies in.
std::size_t LineAt(std::string_view text, std::size_t offset);

// The whole file. A missing, unreadable file or a directory is what errno says; more than
// `bytes_max` is RESOURCE_EXHAUSTED/TOO_LARGE, whatever size the file claims to have.
absl::StatusOr<std::string> ReadFileBytes(const std::string& path, Bytes bytes_max);

// Replaces a regular file as a whole or not at all; writes to anything else (a pipe) in place.
absl::Status WriteFileBytes(const std::string& path, std::string_view bytes);

}  // namespace hmm::graph
