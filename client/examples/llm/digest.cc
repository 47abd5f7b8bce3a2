// SPDX-License-Identifier: Apache-2.0
#include "digest.h"

#include <hmm/kv_cache.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace llm {
namespace {

constexpr char kComment[] = "# of ";

std::string PathOfRecord(const Checkpoint& checkpoint) { return checkpoint.path() + ".sha256"; }

struct Record {
  std::string digest;
  std::string file_id;  // empty: not one of ours
};

Record ReadRecord(const Checkpoint& checkpoint) {
  std::ifstream in(PathOfRecord(checkpoint));
  Record record;
  std::string line;
  if (std::getline(in, line)) record.digest = line.substr(0, line.find(' '));
  if (record.digest.size() != 64 ||
      record.digest.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return {};
  }
  std::getline(in, line);
  absl::string_view id = line;
  if (in && absl::ConsumePrefix(&id, kComment)) record.file_id = std::string(id);
  return record;
}

absl::Status WriteRecord(const Checkpoint& checkpoint, const std::string& digest) {
  // Renamed into place: several engines may start at once.
  const std::string path = PathOfRecord(checkpoint);
  const std::string fresh = absl::StrCat(path, ".", ::getpid());
  std::ofstream out(fresh, std::ios::trunc);
  out << digest << "  " << std::filesystem::path(checkpoint.path()).filename().string() << "\n"
      << kComment << checkpoint.file_id() << "\n";
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(fresh, path, error);
  if (out && !error) return absl::OkStatus();
  std::filesystem::remove(fresh, error);
  return absl::UnavailableError(absl::StrCat("cannot write ", path));
}

}  // namespace

std::string DigestOf(const Checkpoint& checkpoint) {
  const Record record = ReadRecord(checkpoint);
  if (!record.digest.empty() && record.file_id == checkpoint.file_id()) return record.digest;
  std::string digest = hmm::KvCache::Digest(checkpoint.bytes());
  // Best effort, for the directory may be another's. A checksum from elsewhere that does not match
  // is somebody's evidence, and stays.
  if (!record.file_id.empty() || record.digest == digest) {
    WriteRecord(checkpoint, digest).IgnoreError();
  }
  return digest;
}

absl::Status RecordDigest(const Checkpoint& checkpoint) {
  return WriteRecord(checkpoint, hmm::KvCache::Digest(checkpoint.bytes()));
}

}  // namespace llm
