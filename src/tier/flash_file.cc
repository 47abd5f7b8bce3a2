// SPDX-License-Identifier: Apache-2.0
#include "tier/flash_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace hmm::tier {
namespace {

constexpr Bytes kTrailerBytes = 4096;

struct FreeDeleter {
  void operator()(std::byte* data) const { std::free(data); }
};
using AlignedBuffer = std::unique_ptr<std::byte[], FreeDeleter>;

AlignedBuffer AllocateAligned(Bytes bytes) {
  return AlignedBuffer(
      static_cast<std::byte*>(std::aligned_alloc(bytes, RoundUp(bytes, kAlignmentMin))));
}

// Behind the extents: says that the file is ours to empty.
constexpr std::string_view kTrailer = "hmmd flash tier: a cache, emptied at every start\n";

absl::Status WriteTrailer(int fd, const std::string& path, Bytes capacity) {
  std::array<char, kTrailerBytes> block{};
  std::copy(kTrailer.begin(), kTrailer.end(), block.begin());
  // By a way of its own into the file: once it serves, O_DIRECT may ask for more than a trailer.
  const share::UniqueFd buffered(
      open(absl::StrCat("/proc/self/fd/", fd).c_str(), O_RDWR | O_CLOEXEC));
  if (!buffered.valid()) return PosixError(absl::StrCat("opening ", path, " again"), errno);
  const ssize_t written =
      pwrite(buffered.get(), block.data(), kTrailerBytes, static_cast<off_t>(capacity));
  if (written == static_cast<ssize_t>(kTrailerBytes)) return absl::OkStatus();
  return PosixError(absl::StrCat("writing the trailer of ", path), written < 0 ? errno : EIO);
}

bool IsOurs(int fd, Bytes size) {
  if (size < kTrailerBytes) return false;
  std::array<char, kTrailerBytes> block{};
  const ssize_t read =
      pread(fd, block.data(), kTrailerBytes, static_cast<off_t>(size - kTrailerBytes));
  return read == static_cast<ssize_t>(kTrailerBytes) &&
         std::string_view(block.data(), kTrailer.size()) == kTrailer;
}

// A file system gives less than it says is free: extents and journal need some of that.
absl::Status NoRoom(const std::string& what, Bytes free) {
  return PosixError(absl::StrCat(what, ", with ", free,
                                 " bytes free, of which the file system keeps some for itself; "
                                 "ask for less"),
                    ENOSPC);
}

absl::Status Allocate(int fd, const std::string& path, Bytes bytes) {
  const std::string what = absl::StrCat("preallocating ", bytes, " bytes of ", path);
  // Asked first: fallocate would fill the disk before it finds that there is not enough.
  struct statvfs info {};
  if (fstatvfs(fd, &info) != 0) return PosixError(absl::StrCat("statvfs ", path), errno);
  const Bytes free = Bytes{info.f_bavail} * info.f_frsize;
  if (bytes / info.f_frsize >= info.f_bavail) return NoRoom(what, free);
  int result = 0;
  do {
    result = fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return absl::OkStatus();
  // A file longer than the file system allows is a lack of room as well.
  return errno == EFBIG || errno == ENOSPC ? NoRoom(what, free) : PosixError(what, errno);
}

}  // namespace

absl::StatusOr<share::UniqueFd> OpenEmptyFile(const std::string& path) {
  share::UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return PosixError(absl::StrCat("opening ", path), errno);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return PosixError(absl::StrCat("fstat ", path), errno);
  if (!S_ISREG(info.st_mode)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                 absl::StrCat(path, " is not a regular file"));
  }
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return PosixError(absl::StrCat("locking ", path), errno);
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
                 absl::StrCat(path, " is in use by another daemon; each tier needs its own file"));
  }
  if (info.st_size > 0 && !IsOurs(fd.get(), static_cast<Bytes>(info.st_size))) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig,
                 absl::StrCat(path, " exists and is no tier's file; name another, or remove it"));
  }
  // An older file may have been created with other rights; what it held is nobody's business now.
  if (fchmod(fd.get(), 0600) != 0) return PosixError(absl::StrCat("fchmod ", path), errno);
  if (ftruncate(fd.get(), 0) != 0) return PosixError(absl::StrCat("emptying ", path), errno);
  return fd;
}

absl::Status PreallocateFile(int fd, const std::string& path, Bytes capacity) {
  absl::Status status = Allocate(fd, path, capacity + kTrailerBytes);
  if (status.ok()) status = WriteTrailer(fd, path, capacity);
  // What was got so far would fill the disk of whoever has to make room.
  if (!status.ok()) unlink(path.c_str());
  return status;
}

absl::Status ExtendFile(int fd, const std::string& path, Bytes now, Bytes capacity) {
  const std::string what = absl::StrCat("extending ", path, " to ", capacity, " bytes");
  struct statvfs info {};
  if (fstatvfs(fd, &info) != 0) return PosixError(absl::StrCat("statvfs ", path), errno);
  const Bytes free = Bytes{info.f_bavail} * info.f_frsize;
  if ((capacity - now) / info.f_frsize >= info.f_bavail) return NoRoom(what, free);
  // First, so that the file ends with one at every moment.
  absl::Status status = WriteTrailer(fd, path, capacity);
  if (status.ok()) {
    int result = 0;
    do {
      result = fallocate(fd, 0, static_cast<off_t>(now), static_cast<off_t>(capacity - now));
    } while (result != 0 && errno == EINTR);
    if (result == 0) return absl::OkStatus();
    status = errno == EFBIG || errno == ENOSPC ? NoRoom(what, free) : PosixError(what, errno);
  }
  // The old trailer still lies where the file ended.
  if (ftruncate(fd, static_cast<off_t>(now + kTrailerBytes)) != 0) {
    return PosixError(absl::StrCat("shortening ", path), errno);
  }
  return status;
}

absl::Status ShortenFile(int fd, const std::string& path, Bytes capacity) {
  // Before the end moves: at every moment the file ends with a trailer, or the next start would not
  // take it for ours.
  HMM_RETURN_IF_ERROR(WriteTrailer(fd, path, capacity));
  if (ftruncate(fd, static_cast<off_t>(capacity + kTrailerBytes)) != 0) {
    return PosixError(absl::StrCat("shortening ", path), errno);
  }
  return absl::OkStatus();
}

Bytes ReportedAlignment(int fd) {
#ifdef STATX_DIOALIGN
  struct statx info {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0 && info.stx_dio_offset_align > 0) {
    const Bytes asked = std::max<Bytes>({info.stx_dio_offset_align, info.stx_dio_mem_align, 1});
    return std::clamp(std::bit_ceil(asked), kAlignmentMin, kAlignmentMax);
  }
#else
  static_cast<void>(fd);
#endif
  return kFilePage;
}

absl::Status ProbeDirectIo(int fd, Bytes alignment) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_DIRECT) == 0) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kIo,
                 "the file system does not take O_DIRECT");
  }
  // Of two units each, aligned to both: the second is aligned to one and no more.
  const AlignedBuffer written = AllocateAligned(2 * alignment);
  const AlignedBuffer read = AllocateAligned(2 * alignment);
  if (written == nullptr || read == nullptr) return PosixError("probing O_DIRECT", ENOMEM);
  std::byte* const from = written.get() + alignment;
  std::byte* const to = read.get() + alignment;
  for (Bytes i = 0; i < alignment; ++i) from[i] = static_cast<std::byte>(i * 131 + 7);
  std::memset(to, 0, alignment);
  struct stat info {};
  if (fstat(fd, &info) != 0) return PosixError("probing O_DIRECT", errno);
  // A file of one unit (and the trailer) has no second.
  const off_t offset =
      static_cast<Bytes>(info.st_size) >= 3 * alignment ? static_cast<off_t>(alignment) : off_t{0};
  const auto expected = static_cast<ssize_t>(alignment);
  ssize_t result = pwrite(fd, from, alignment, offset);
  if (result < 0) return PosixError("O_DIRECT write", errno);
  if (result == expected) result = pread(fd, to, alignment, offset);
  if (result < 0) return PosixError("O_DIRECT read", errno);
  if (result != expected || std::memcmp(from, to, alignment) != 0) {
    return Error(absl::StatusCode::kDataLoss, Reason::kIo,
                 "O_DIRECT did not read back what was written");
  }
  return absl::OkStatus();
}

}  // namespace hmm::tier
