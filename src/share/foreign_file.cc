// SPDX-License-Identifier: Apache-2.0
#include "share/foreign_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace hmm::share {
namespace {

constexpr int kSealsNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr int kSealsForbidden = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;

absl::Status Bad(const std::string& words) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument, words);
}

// Whether the kernel may refuse a page when it is touched. Unknown counts as no: it is the default
// everywhere.
bool StrictOvercommit() {
  const UniqueFd fd(open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC));
  std::array<char, 4> text{};
  return fd.valid() && read(fd.get(), text.data(), text.size() - 1) > 0 && text[0] == '2';
}

}  // namespace

absl::StatusOr<Mapping> MapForeign(int fd, Bytes bytes) {
  // First: all else might wait for whoever serves the file.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return Bad("the region's file is not a memory file; make it with memfd_create");
  }
  const int flags = fcntl(fd, F_GETFL);
  if (flags >= 0 && (flags & O_ACCMODE) != O_RDWR) {
    return Bad(
        "the region's memory file is not open for reading and writing; Load could not fill it");
  }
  struct stat info {};
  struct statfs system {};
  if (fstat(fd, &info) != 0 || fstatfs(fd, &system) != 0) {
    return PosixError("looking at the region's memory file", errno);
  }
  if (system.f_type != TMPFS_MAGIC) {
    return Bad("the region's memory file is of huge pages; attach one of normal pages");
  }
  if ((seals & kSealsNeeded) != kSealsNeeded) {
    return Bad(
        "the region's memory file may still shrink or grow; seal it first with F_SEAL_SHRINK | "
        "F_SEAL_GROW");
  }
  if ((seals & kSealsForbidden) != 0) {
    return Bad("the region's memory file is sealed against writing; Load could not fill it");
  }
  if (bytes == 0 || info.st_size < 0 || bytes > static_cast<Bytes>(info.st_size)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadSize,
                 absl::StrCat("a region of ", bytes, " bytes in a memory file of ", info.st_size));
  }
  if (StrictOvercommit()) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kNoMemory,
                 "vm.overcommit_memory is 2: the kernel may refuse the file's pages when they are "
                 "touched; lease a region instead");
  }
  HMM_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(fd, bytes, Mapping::Access::kReadWrite, true));
  // A client's memory has no place in our core dump.
  (void)madvise(mapping.data(), mapping.size(), MADV_DONTDUMP);
  return mapping;
}

}  // namespace hmm::share
