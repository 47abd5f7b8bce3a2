// SPDX-License-Identifier: Apache-2.0
#include "graph/file_error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/edit_distance.h"
#include "base/status.h"

namespace hmm::graph {
namespace {

constexpr std::size_t kShownMax = 80;
constexpr std::size_t kSuggestMax = 64;  // longer names are no slips of the pen

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  // The last chance for a file system to tell of an error.
  int Close() { return close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

absl::Status WriteAll(int fd, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return PosixError(path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return absl::OkStatus();
}

absl::Status WriteInPlace(const std::string& path, std::string_view bytes) {
  Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (fd.get() < 0) return PosixError(path, errno);
  HMM_RETURN_IF_ERROR(WriteAll(fd.get(), path, bytes));
  return fd.Close() == 0 ? absl::OkStatus() : PosixError(path, errno);
}

}  // namespace

absl::Status BadGraph(std::string_view where, std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadGraph,
               absl::StrCat(std::string(where), ": ", std::string(what)));
}

std::string Shown(std::string_view name) {
  std::string shown = absl::CHexEscape(std::string(name.substr(0, kShownMax)));
  if (name.size() > kShownMax) shown += "...";
  return absl::StrCat("\"", shown, "\"");
}

std::string Suggestion(std::string_view given, const std::vector<std::string_view>& known) {
  std::string_view nearest;
  std::size_t best = kSuggestMax + 1;
  for (const std::string_view name : known) {
    if (given.size() > kSuggestMax || name.size() > kSuggestMax) continue;
    const std::size_t distance = EditDistance(given, name);
    if (distance < best) {
      best = distance;
      nearest = name;
    }
  }
  if (best <= std::max<std::size_t>(2, given.size() / 2)) {
    return absl::StrCat("; did you mean '", std::string(nearest), "'?");
  }
  if (known.empty()) return "";
  return absl::StrCat("; known are ", absl::StrJoin(known, ", ", [](std::string* out, auto name) {
                        out->append(name);
                      }));
}

std::size_t LineAt(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  return 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
}

absl::StatusOr<std::string> ReadFileBytes(const std::string& path, Bytes bytes_max) {
  // A pipe that nobody writes into is empty, not waited for; one with a writer is read to its end.
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0 || fcntl(fd.get(), F_SETFL, 0) != 0) return PosixError(path, errno);
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return PosixError(path, errno);
  const auto too_large = [&] {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kTooLarge,
                 absl::StrCat(path, ": larger than ", FormatBytes(bytes_max), ", the limit here"));
  };
  std::string bytes;
  if (S_ISREG(info.st_mode)) {
    if (static_cast<Bytes>(info.st_size) > bytes_max) return too_large();
    bytes.reserve(static_cast<std::size_t>(info.st_size) + 1);
  }
  constexpr std::size_t kStep = 1 << 20;
  for (;;) {
    const std::size_t had = bytes.size();
    bytes.resize(had + kStep);
    const ssize_t got = read(fd.get(), bytes.data() + had, kStep);
    bytes.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return PosixError(path, errno);
    if (got == 0) return bytes;
    if (bytes.size() > bytes_max) return too_large();
  }
}

absl::Status WriteFileBytes(const std::string& path, std::string_view bytes) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) return WriteInPlace(path, bytes);
  const std::string scratch = absl::StrCat(path, ".new-", getpid());
  Fd fd(open(scratch.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (fd.get() < 0) return PosixError(path, errno);
  absl::Status status = WriteAll(fd.get(), path, bytes);
  if (fd.Close() != 0 && status.ok()) status = PosixError(path, errno);
  if (status.ok() && rename(scratch.c_str(), path.c_str()) != 0) status = PosixError(path, errno);
  if (!status.ok()) unlink(scratch.c_str());
  return status;
}

}  // namespace hmm::graph
