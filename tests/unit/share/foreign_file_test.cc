// SPDX-License-Identifier: Apache-2.0
//
// Memory files that others made: only what cannot become SIGBUS is mapped. And the bell.
#include "share/foreign_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "base/status.h"
#include "share/bell.h"
#include "support/catch.h"

namespace hmm::share {
namespace {

UniqueFd Memfd(Bytes bytes, int seals, unsigned flags = 0) {
  UniqueFd fd(memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  REQUIRE(fd.valid());
  REQUIRE(ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  if (seals != 0) REQUIRE(fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

constexpr int kFixed = F_SEAL_SHRINK | F_SEAL_GROW;

Reason Refused(const UniqueFd& fd, Bytes bytes) {
  const auto mapping = MapForeign(fd.get(), bytes);
  REQUIRE(!mapping.ok());
  REQUIRE(mapping.status().code() == absl::StatusCode::kInvalidArgument);
  return *ReasonOf(mapping.status());
}

TEST_CASE("a sealed memfd is mapped, costs nothing untouched, and outlives its descriptor") {
  UniqueFd fd = Memfd(1 * kGiB, kFixed);
  auto mapping = MapForeign(fd.get(), 1 * kGiB);
  REQUIRE(mapping.ok());
  CHECK(*BackedBytes(fd.get()) == 0);
  const auto mine = Mapping::Map(fd.get(), 1 * kGiB, Mapping::Access::kReadWrite, false);
  REQUIRE(mine.ok());
  std::memcpy(mapping->data() + 5 * kMiB, "hello", 5);
  fd.Reset();
  CHECK(std::memcmp(mine->data() + 5 * kMiB, "hello", 5) == 0);
  CHECK(mapping->data()[kGiB - 1] == std::byte{0});
}

TEST_CASE("what may shrink, grow or not be written is refused") {
  CHECK(Refused(Memfd(4096, 0), 4096) == Reason::kBadArgument);
  CHECK(Refused(Memfd(4096, F_SEAL_SHRINK), 4096) == Reason::kBadArgument);
  CHECK(Refused(Memfd(4096, F_SEAL_GROW), 4096) == Reason::kBadArgument);
  CHECK(Refused(Memfd(4096, kFixed | F_SEAL_WRITE), 4096) == Reason::kBadArgument);
  CHECK(Refused(Memfd(4096, kFixed | F_SEAL_FUTURE_WRITE), 4096) == Reason::kBadArgument);
  CHECK(Refused(Memfd(4096, kFixed), 4097) == Reason::kBadSize);
  CHECK(Refused(Memfd(4096, kFixed), 0) == Reason::kBadSize);
  CHECK(Refused(Memfd(4096, kFixed), ~Bytes{0}) == Reason::kBadSize);
}

TEST_CASE("what is no memory file, or of huge pages, is refused") {
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  UniqueFd reader(pipes[0]);
  UniqueFd writer(pipes[1]);
  CHECK(Refused(reader, 4096) == Reason::kBadArgument);
  CHECK(Refused(UniqueFd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), 4096) ==
        Reason::kBadArgument);
  CHECK(Refused(UniqueFd(open("/dev/zero", O_RDWR | O_CLOEXEC)), 4096) == Reason::kBadArgument);
  const UniqueFd huge(memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (huge.valid() && ftruncate(huge.get(), 2 * kMiB) == 0 &&
      fcntl(huge.get(), F_ADD_SEALS, kFixed) == 0) {
    CHECK(Refused(huge, 2 * kMiB) == Reason::kBadArgument);
  }
}

TEST_CASE("a descriptor for reading only cannot be a region") {
  const UniqueFd fd = Memfd(4096, kFixed);
  const auto reader = ReopenReadOnly(fd.get());
  REQUIRE(reader.ok());
  CHECK(Refused(*reader, 4096) == Reason::kBadArgument);
}

TEST_CASE("a bell is heard once for any number of rings and never blocks its ringer") {
  auto bell = Bell::Make();
  REQUIRE(bell.ok());
  CHECK(!TakeRings(bell->listener.get()));
  // A peer that takes nothing and makes its end blocking is its own problem.
  REQUIRE(fcntl(bell->listener.get(), F_SETFL, 0) == 0);
  for (int i = 0; i < 1'000'000; ++i) Ring(bell->ringer);
  pollfd entry{bell->listener.get(), POLLIN, 0};
  CHECK(poll(&entry, 1, 0) == 1);
  CHECK(TakeRings(bell->listener.get()));
  CHECK(!TakeRings(bell->listener.get()));
  bell->listener.Reset();
  Ring(bell->ringer);  // nobody there: no signal either
}

}  // namespace
}  // namespace hmm::share
