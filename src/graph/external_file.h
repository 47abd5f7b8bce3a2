// SPDX-License-Identifier: Apache-2.0
//
// Files of weights that lie beside a model. What a model says of them is not trusted: they have to
// lie inside the model's directory, links included. Thread-compatible.
#pragma once

#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/units.h"

namespace hmm::graph {

class ExternalFiles {
 public:
  // `required`: a file that is missing is an error.
  ExternalFiles(std::string directory, bool required)
      : directory_(std::move(directory)), required_(required) {}

  // Bytes of the file, looked at once a location; nullopt: not there, and need not be.
  // INVALID_ARGUMENT/BAD_GRAPH "<where>: external_data.location: ...".
  absl::StatusOr<std::optional<Bytes>> Size(const std::string& location, const std::string& where);

  // INVALID_ARGUMENT/BAD_GRAPH if the file is there and bytes `offset` to `offset + bytes` lie
  // beyond its end, or as Size.
  absl::Status CheckRange(const std::string& location, Bytes offset, Bytes bytes,
                          const std::string& where);

 private:
  std::string directory_;
  bool required_;
  absl::flat_hash_map<std::string, std::optional<Bytes>> known_;
};

}  // namespace hmm::graph
