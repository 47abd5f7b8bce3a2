// SPDX-License-Identifier: Apache-2.0
#include "share/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace hmm::share {
namespace {

// off_t is signed: what does not fit there is no size of a file.
constexpr Bytes kFileBytesMax = static_cast<Bytes>(std::numeric_limits<off_t>::max());

absl::Status AddSeals(int fd, int seals) {
  if (fcntl(fd, F_ADD_SEALS, seals) != 0) return PosixError("sealing a memory file", errno);
  return absl::OkStatus();
}

// Not executable where the kernel can promise it (6.3; vm.memfd_noexec=2 refuses any other).
int CreateMemfd(const char* name, unsigned flags) {
  const int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
  if (fd >= 0 || errno != EINVAL) return fd;
  return memfd_create(name, flags);
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void UniqueFd::Reset() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    Mapping old(std::exchange(data_, std::exchange(other.data_, nullptr)),
                std::exchange(size_, std::exchange(other.size_, 0)));
  }
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_);
}

absl::StatusOr<Mapping> Mapping::Map(int fd, Bytes bytes, Access access, bool dont_fork) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return PosixError("mapping a memory file", errno);
  if (bytes == 0 || bytes > kFileBytesMax || info.st_size < static_cast<off_t>(bytes)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadSize,
                 absl::StrCat("cannot map ", bytes, " bytes of a memory file of ", info.st_size));
  }
  const int protection = access == Access::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED) {
    return PosixError(absl::StrCat("mapping ", bytes, " bytes of a memory file"), errno);
  }
  Mapping mapping(static_cast<std::byte*>(data), bytes);
  if (dont_fork && madvise(data, bytes, MADV_DONTFORK) != 0) {
    return PosixError("keeping a mapping out of children", errno);
  }
  return mapping;
}

absl::StatusOr<UniqueFd> CreateMemoryFile(const std::string& name, Bytes bytes, FilePages pages) {
  if (bytes == 0 || bytes > kFileBytesMax) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadSize,
                 absl::StrCat("a memory file cannot have ", bytes, " bytes"));
  }
  const unsigned huge = pages == FilePages::kHugetlb ? MFD_HUGETLB : 0U;
  UniqueFd fd(CreateMemfd(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | huge));
  if (!fd.valid()) return PosixError(absl::StrCat("memfd_create ", name), errno);
  if (fchmod(fd.get(), 0600) != 0) return PosixError(absl::StrCat("fchmod ", name), errno);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return PosixError(absl::StrCat("sizing memory file ", name, " to ", bytes, " bytes"), errno);
  }
  HMM_RETURN_IF_ERROR(AddSeals(fd.get(), F_SEAL_SHRINK | F_SEAL_GROW));
  return fd;
}

absl::Status SealFutureWrites(int fd) { return AddSeals(fd, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL); }

absl::Status SealSeals(int fd) { return AddSeals(fd, F_SEAL_SEAL); }

absl::StatusOr<UniqueFd> ReopenReadOnly(int fd) {
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
  UniqueFd reopened(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!reopened.valid()) return PosixError(absl::StrCat("reopening ", path), errno);
  return reopened;
}

absl::StatusOr<UniqueFd> Duplicate(int fd) {
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return PosixError("duplicating a descriptor", errno);
  return copy;
}

absl::StatusOr<Bytes> BackedBytes(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return PosixError("fstat of a memory file", errno);
  constexpr Bytes kBlock = 512;  // the unit of st_blocks, whatever the file system's own
  return static_cast<Bytes>(info.st_blocks) * kBlock;
}

}  // namespace hmm::share
