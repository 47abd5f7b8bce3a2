// SPDX-License-Identifier: Apache-2.0
#include "graph/external_file.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "graph/file_error.h"

namespace hmm::graph {

absl::StatusOr<std::optional<Bytes>> ExternalFiles::Size(const std::string& location,
                                                         const std::string& where) {
  const auto known = known_.find(location);
  if (known != known_.end()) return known->second;
  namespace fs = std::filesystem;
  const fs::path relative(location);
  const auto bad = [&](const char* what) {
    return BadGraph(where, absl::StrCat("external_data.location: ", Shown(location), " ", what));
  };
  if (location.empty() || location.find('\0') != std::string::npos) return bad("names no file");
  if (relative.is_absolute()) return bad("is absolute; it must lie beside the model");
  for (const fs::path& part : relative) {
    if (part == "..") return bad("leaves the model's directory by \"..\"");
  }
  std::error_code error;
  const fs::path root =
      fs::weakly_canonical(directory_.empty() ? fs::path(".") : fs::path(directory_), error);
  const fs::path file = error ? fs::path() : fs::weakly_canonical(root / relative, error);
  if (error) return bad("cannot be resolved");
  const fs::path inside = file.lexically_relative(root);
  if (inside.empty() || *inside.begin() == "..") return bad("is a link out of the directory");
  std::optional<Bytes> bytes;
  if (fs::is_regular_file(file, error)) bytes = fs::file_size(file, error);
  if (error && error != std::errc::no_such_file_or_directory) return bad("cannot be looked at");
  if (!bytes.has_value() && (required_ || fs::exists(file, error))) {
    return bad("is not there, or is no regular file");
  }
  known_.emplace(location, bytes);
  return bytes;
}

absl::Status ExternalFiles::CheckRange(const std::string& location, Bytes offset, Bytes bytes,
                                       const std::string& where) {
  const absl::StatusOr<std::optional<Bytes>> file = Size(location, where);
  if (!file.ok()) return file.status();
  if (file->has_value() && (offset > **file || bytes > **file - offset)) {
    return BadGraph(
        where, absl::StrCat("external_data: bytes ", offset, " to ", offset, " + ", bytes,
                            " lie beyond the end of ", Shown(location), " (", **file, " bytes)"));
  }
  return absl::OkStatus();
}

}  // namespace hmm::graph
