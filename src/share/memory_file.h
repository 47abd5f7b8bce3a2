// SPDX-License-Identifier: Apache-2.0
//
// Memory that crosses process borders: descriptors, memfds with their seals, and mappings. All
// types are move-only owners; every function that can fail says so by a Status with errno's words.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.h"

namespace hmm::share {

// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset();

 private:
  int fd_ = -1;
};

// Owns a shared mapping (MAP_SHARED) of a descriptor, from offset 0.
class Mapping {
 public:
  enum class Access { kReadOnly, kReadWrite };

  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // Maps `bytes` of `fd`. `dont_fork` keeps it out of children (clients set it, so that a child
  // cannot touch the parent's pins). INVALID_ARGUMENT when the file is shorter than `bytes`: its
  // missing pages would be SIGBUS. Reserves nothing, so a sparse hugetlb file can be mapped whole.
  static absl::StatusOr<Mapping> Map(int fd, Bytes bytes, Access access, bool dont_fork);

  std::byte* data() const { return data_; }
  Bytes size() const { return size_; }

 private:
  Mapping(std::byte* data, Bytes size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  Bytes size_ = 0;
};

// A memfd of fixed size (CLOEXEC, mode 0600 whatever the umask: a memfd is born 0777 and whoever
// holds a read-only descriptor could reopen it for writing), sparse, sealed against shrink and
// grow. kHugetlb takes its pages from the pool the administrator reserved; `bytes` is then a
// multiple of the system's huge page.
enum class FilePages { kNormal, kHugetlb };
absl::StatusOr<UniqueFd> CreateMemoryFile(const std::string& name, Bytes bytes,
                                          FilePages pages = FilePages::kNormal);

// Adds F_SEAL_FUTURE_WRITE and F_SEAL_SEAL: mappings made before (the daemon's) keep writing, new
// writable ones are refused to everybody. It also forbids hole punching by the owner: for the
// residency table, never for arenas.
absl::Status SealFutureWrites(int fd);

// Adds F_SEAL_SEAL, so that a peer cannot add seals of its own.
absl::Status SealSeals(int fd);

// A second descriptor of the same file, open for reading only: what clients of the table get.
absl::StatusOr<UniqueFd> ReopenReadOnly(int fd);

// A second descriptor of the same open file (CLOEXEC).
absl::StatusOr<UniqueFd> Duplicate(int fd);

// Bytes of memory really behind the file (st_blocks x 512).
absl::StatusOr<Bytes> BackedBytes(int fd);

}  // namespace hmm::share
