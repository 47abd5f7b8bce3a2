// SPDX-License-Identifier: Apache-2.0
#include "tier/file_tier.h"

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
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "share/memory_file.h"
#include "tier/extent_allocator.h"

namespace hmm::tier {
namespace {

constexpr Bytes kAlignmentMin = 512;
constexpr Bytes kAlignmentMax = 1 * kMiB;
constexpr Bytes kCapacityMax = Bytes{1} << 60;
constexpr Bytes kTrailerBytes = 4096;
constexpr std::uint32_t kOrdinal = 1;  // the file is the tier's only segment

struct FreeDeleter {
  void operator()(std::byte* data) const { std::free(data); }
};
using AlignedBuffer = std::unique_ptr<std::byte[], FreeDeleter>;

AlignedBuffer AllocateAligned(Bytes bytes) {
  const Bytes alignment = std::max<Bytes>(bytes, 4096);
  return AlignedBuffer(static_cast<std::byte*>(std::aligned_alloc(alignment, alignment)));
}

class FileTier final : public Tier {
 public:
  FileTier(FileTierOptions options, Bytes capacity, share::UniqueFd fd, std::string buffered_why)
      : Tier(options.tier, capacity),
        segment_((static_cast<SegmentId>(options.id) << 16) | kOrdinal),
        alignment_(options.alignment),
        fd_(std::move(fd)),
        buffered_why_(std::move(buffered_why)),
        extents_(options.alignment) {
    extents_.AddFree({0, capacity});
    // All blocks were preallocated: nothing here is ever uncommitted.
    mutable_ledger().Transfer(ByteState::kFree, ByteState::kCommittedFree, capacity);
  }

  bool mappable() const override { return false; }
  std::string_view backend() const override { return "file"; }
  std::string note() const override {
    return buffered_why_.empty() ? "O_DIRECT"
                                 : absl::StrCat("degraded: buffered I/O (", buffered_why_, ")");
  }
  bool degraded() const override { return !buffered_why_.empty(); }
  Bytes LengthFor(Bytes bytes) const override { return RoundUpSaturated(bytes, alignment_); }
  std::byte* Address(const Extent&) const override { return nullptr; }
  int fd() const override { return fd_.get(); }
  absl::StatusOr<SegmentInfo> Segment(SegmentId segment) const override {
    // Nobody maps flash, so there is nothing to hand out, for no id.
    return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
                 absl::StrCat("tier ", name(), " has no segment ", segment, " to map"));
  }
  Bytes Trim(Bytes) override { return 0; }
  std::optional<Window> EmptiestWindow(Bytes bytes, const std::vector<Window>& skip) const override;
  std::vector<Excess> Audit() override { return {}; }
  void ForgetTenant(TenantId tenant) override { HMM_CHECK(TenantBytes(tenant) == 0); }
  absl::Status Validate() const override;

 protected:
  absl::StatusOr<Extent> DoAllocate(TenantId tenant, Bytes length) override;
  // A second free changes nothing; Validate reports it.
  void DoFree(TenantId, const Extent& extent) override {
    (void)extents_.AddFree({extent.offset, extent.length});
  }

 private:
  const SegmentId segment_;
  const Bytes alignment_;
  share::UniqueFd fd_;
  const std::string buffered_why_;
  ExtentAllocator extents_;
};

absl::StatusOr<Extent> FileTier::DoAllocate(TenantId, Bytes length) {
  const std::optional<Range> range = extents_.Allocate(length);
  if (!range.has_value()) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kFull,
                 absl::StrCat("tier ", name(), " has no room for ", length, " bytes now"));
  }
  return Extent{segment_, range->offset, range->length};
}

std::optional<Tier::Window> FileTier::EmptiestWindow(Bytes bytes,
                                                     const std::vector<Window>& skip) const {
  if (bytes == 0 || bytes > capacity()) return std::nullopt;
  std::vector<Range> skipped;
  for (const Window& window : skip) {
    if (window.segment == segment_) skipped.push_back({window.offset, window.length});
  }
  const std::optional<Range> range = extents_.EmptiestWindow(LengthFor(bytes), capacity(), skipped);
  if (!range.has_value()) return std::nullopt;
  return Window{segment_, range->offset, range->length};
}

absl::Status FileTier::Validate() const {
  HMM_RETURN_IF_ERROR(extents_.Validate());
  const Bytes free = ledger()[ByteState::kCommittedFree];
  if (extents_.free_bytes() != free || ledger()[ByteState::kFree] != 0 || !ledger().Sums()) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal,
                 absl::StrCat("tier ", name(), ": ", extents_.free_bytes(), " bytes are free, ",
                              free, " by the ledger"));
  }
  return absl::OkStatus();
}

// Behind the extents: says that the file is ours to empty.
constexpr std::string_view kTrailer = "hmmd flash tier: a cache, emptied at every start\n";

absl::Status WriteTrailer(int fd, const std::string& path, Bytes capacity) {
  std::array<char, kTrailerBytes> block{};
  std::copy(kTrailer.begin(), kTrailer.end(), block.begin());
  const ssize_t written = pwrite(fd, block.data(), kTrailerBytes, static_cast<off_t>(capacity));
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

absl::Status Preallocate(int fd, const std::string& path, Bytes capacity) {
  const std::string what = absl::StrCat("preallocating ", capacity, " bytes of ", path);
  // Asked first: fallocate would fill the disk before it finds that there is not enough.
  struct statvfs info {};
  if (fstatvfs(fd, &info) != 0) return PosixError(absl::StrCat("statvfs ", path), errno);
  if (capacity / info.f_frsize >= info.f_bavail) return PosixError(what, ENOSPC);
  int result = 0;
  do {
    result = fallocate(fd, 0, 0, static_cast<off_t>(capacity));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return absl::OkStatus();
  // A file longer than the file system allows is a lack of room as well.
  return PosixError(what, errno == EFBIG ? ENOSPC : errno);
}

// Opens an empty private file, for nobody else's use.
absl::StatusOr<share::UniqueFd> OpenEmpty(const std::string& path) {
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

}  // namespace

absl::Status ProbeDirectIo(int fd, Bytes alignment) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_DIRECT) == 0) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kIo,
                 "the file system does not take O_DIRECT");
  }
  const AlignedBuffer written = AllocateAligned(alignment);
  const AlignedBuffer read = AllocateAligned(alignment);
  if (written == nullptr || read == nullptr) return PosixError("probing O_DIRECT", ENOMEM);
  for (Bytes i = 0; i < alignment; ++i) written[i] = static_cast<std::byte>(i * 131 + 7);
  std::memset(read.get(), 0, alignment);
  const auto expected = static_cast<ssize_t>(alignment);
  ssize_t result = pwrite(fd, written.get(), alignment, 0);
  if (result < 0) return PosixError("O_DIRECT write", errno);
  if (result == expected) result = pread(fd, read.get(), alignment, 0);
  if (result < 0) return PosixError("O_DIRECT read", errno);
  if (result != expected || std::memcmp(written.get(), read.get(), alignment) != 0) {
    return Error(absl::StatusCode::kDataLoss, Reason::kIo,
                 "O_DIRECT did not read back what was written");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Tier>> CreateFileTier(FileTierOptions options) {
  auto refuse = [&](const std::string& why) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                 absl::StrCat("tier ", options.tier.name, ": ", why));
  };
  HMM_RETURN_IF_ERROR(CheckTierOptions(options.tier));
  const Bytes alignment = options.alignment;
  if (!std::has_single_bit(alignment) || alignment < kAlignmentMin || alignment > kAlignmentMax) {
    return refuse(absl::StrCat("alignment ", alignment, " is no power of two from 512 to 1MiB"));
  }
  const Bytes capacity = RoundDown(options.tier.capacity, alignment);
  if (capacity == 0 || capacity > kCapacityMax) {
    return refuse(absl::StrCat("capacity ", options.tier.capacity, " is less than the alignment (",
                               alignment, ") or beyond any file"));
  }
  if (options.tier.reserve >= capacity) return refuse("the reserve takes all of the capacity");
  HMM_ASSIGN_OR_RETURN(share::UniqueFd fd, OpenEmpty(options.path));
  absl::Status status = Preallocate(fd.get(), options.path, capacity + kTrailerBytes);
  if (status.ok()) status = WriteTrailer(fd.get(), options.path, capacity);
  if (!status.ok()) {
    // What was got so far would fill the disk of whoever has to make room.
    unlink(options.path.c_str());
    return status;
  }
  // Where the file system does not take the flag, the probe says so.
  (void)fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_DIRECT);
  absl::Status probed =
      options.probe ? options.probe(fd.get(), alignment) : ProbeDirectIo(fd.get(), alignment);
  if (!probed.ok()) {
    const int flags = fcntl(fd.get(), F_GETFL);
    if (flags < 0 || fcntl(fd.get(), F_SETFL, flags & ~O_DIRECT) != 0) {
      return PosixError(absl::StrCat("leaving O_DIRECT on ", options.path), errno);
    }
  }
  return std::make_unique<FileTier>(std::move(options), capacity, std::move(fd),
                                    probed.ok() ? "" : std::string(probed.message()));
}

}  // namespace hmm::tier
