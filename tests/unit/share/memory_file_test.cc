// SPDX-License-Identifier: Apache-2.0
#include "share/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/status.h"
#include "support/catch.h"

namespace hmm::share {
namespace {

constexpr Bytes kSize = 64 * kKiB;

UniqueFd Create() {
  absl::StatusOr<UniqueFd> fd = CreateMemoryFile("test", kSize);
  REQUIRE(fd.ok());
  return *std::move(fd);
}

Mapping MapAll(int fd, Mapping::Access access = Mapping::Access::kReadWrite,
               bool dont_fork = false) {
  absl::StatusOr<Mapping> mapping = Mapping::Map(fd, kSize, access, dont_fork);
  REQUIRE(mapping.ok());
  return *std::move(mapping);
}

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST_CASE("a memory file is private, sparse, of fixed size and closed on exec") {
  const UniqueFd fd = Create();
  struct stat info {};
  REQUIRE(fstat(fd.get(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0600);
  CHECK(info.st_size == static_cast<off_t>(kSize));
  CHECK(*BackedBytes(fd.get()) == 0);
  CHECK((fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(ftruncate(fd.get(), 0) == -1);
  CHECK(errno == EPERM);
  CHECK(ftruncate(fd.get(), 2 * static_cast<off_t>(kSize)) == -1);
  CHECK(errno == EPERM);
}

TEST_CASE("sizes that no file can have are refused") {
  CHECK(ReasonOf(CreateMemoryFile("test", 0).status()) == Reason::kBadSize);
  CHECK(ReasonOf(CreateMemoryFile("test", ~Bytes{0}).status()) == Reason::kBadSize);
}

TEST_CASE("two mappings of one file show the same bytes, and backing is counted") {
  const UniqueFd fd = Create();
  const Mapping writer = MapAll(fd.get());
  const Mapping reader = MapAll(fd.get(), Mapping::Access::kReadOnly);
  writer.data()[kSize - 1] = std::byte{42};
  CHECK(reader.data()[kSize - 1] == std::byte{42});
  const Bytes backed = *BackedBytes(fd.get());
  CHECK(backed >= 4096);
  CHECK(backed <= kSize);
}

TEST_CASE("mapping more than the file holds is refused") {
  const UniqueFd fd = Create();
  CHECK(ReasonOf(Mapping::Map(fd.get(), kSize + 1, Mapping::Access::kReadOnly, false).status()) ==
        Reason::kBadSize);
  CHECK(!Mapping::Map(fd.get(), 0, Mapping::Access::kReadOnly, false).ok());
  CHECK(!Mapping::Map(fd.get(), ~Bytes{0}, Mapping::Access::kReadOnly, false).ok());
  CHECK(!Mapping::Map(-1, kSize, Mapping::Access::kReadOnly, false).ok());
}

TEST_CASE("SealFutureWrites leaves the owner's mapping writable and refuses new ones") {
  const UniqueFd fd = Create();
  const Mapping owner = MapAll(fd.get());
  REQUIRE(SealFutureWrites(fd.get()).ok());
  owner.data()[0] = std::byte{7};
  CHECK(!Mapping::Map(fd.get(), kSize, Mapping::Access::kReadWrite, false).ok());
  CHECK(MapAll(fd.get(), Mapping::Access::kReadOnly).data()[0] == std::byte{7});
  // Sealed for good: nobody adds or lifts a seal.
  CHECK(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
  CHECK(!SealSeals(fd.get()).ok());
}

TEST_CASE("after SealSeals a peer can add no seal, and the owner can still punch") {
  const UniqueFd fd = Create();
  const Mapping owner = MapAll(fd.get());
  owner.data()[0] = std::byte{7};
  REQUIRE(SealSeals(fd.get()).ok());
  CHECK(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == -1);
  CHECK(fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                  static_cast<off_t>(kSize)) == 0);
  CHECK(owner.data()[0] == std::byte{0});
}

TEST_CASE("a read-only reopen cannot be mapped for writing") {
  const UniqueFd fd = Create();
  absl::StatusOr<UniqueFd> reopened = ReopenReadOnly(fd.get());
  REQUIRE(reopened.ok());
  CHECK((fcntl(reopened->get(), F_GETFL) & O_ACCMODE) == O_RDONLY);
  CHECK((fcntl(reopened->get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(Mapping::Map(reopened->get(), kSize, Mapping::Access::kReadWrite, false).status().code() ==
        absl::StatusCode::kPermissionDenied);
  MapAll(reopened->get(), Mapping::Access::kReadOnly);
  CHECK(!ReopenReadOnly(-1).ok());
  CHECK(!BackedBytes(-1).ok());
}

TEST_CASE("a dont_fork mapping is not in the child") {
  const UniqueFd fd = Create();
  const Mapping kept = MapAll(fd.get(), Mapping::Access::kReadWrite, true);
  const Mapping shared = MapAll(fd.get());
  unsigned char resident = 0;
  REQUIRE(mincore(kept.data(), 1, &resident) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool gone = mincore(kept.data(), 1, &resident) == -1 && errno == ENOMEM;
    const bool there = mincore(shared.data(), 1, &resident) == 0;
    _exit(gone && there ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("descriptors and mappings have one owner") {
  UniqueFd fd = Create();
  const int number = fd.get();
  UniqueFd moved = std::move(fd);
  CHECK(!fd.valid());  // NOLINT(bugprone-use-after-move): what a move leaves is the contract
  CHECK(moved.get() == number);
  Mapping first = MapAll(moved.get());
  std::byte* const data = first.data();
  Mapping second = MapAll(moved.get());
  std::byte* const dropped = second.data();
  second = std::move(first);
  CHECK(second.data() == data);
  CHECK(first.data() == nullptr);  // NOLINT(bugprone-use-after-move)
  unsigned char resident = 0;
  CHECK(mincore(dropped, 1, &resident) == -1);
  UniqueFd other = Create();
  const int closed = other.get();
  other = std::move(moved);
  CHECK(!IsOpen(closed));
  CHECK(IsOpen(number));
  other.Reset();
  CHECK(!IsOpen(number));
}

}  // namespace
}  // namespace hmm::share
