// SPDX-License-Identifier: Apache-2.0
// What is a file tier's own; what every tier does is in tests/conformance.
#include "tier/file_tier.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/status.h"
#include "share/memory_file.h"
#include "support/catch.h"
#include "support/temp_dir.h"
#include "tier/flash_file.h"

namespace hmm::tier {
namespace {

using testing::TempDir;

FileTierOptions Options(const TempDir& dir, Bytes capacity = 1 * kMiB) {
  FileTierOptions options;
  options.tier.name = "flash0";
  options.tier.kind = TierKind::kFlash;
  options.tier.capacity = capacity;
  options.path = dir.File("flash0");
  return options;
}

std::unique_ptr<Tier> Make(FileTierOptions options) {
  auto tier = CreateFileTier(std::move(options));
  INFO(tier.status());
  REQUIRE(tier.ok());
  return *std::move(tier);
}

struct stat StatOf(const std::string& path) {
  struct stat info {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  return info;
}

TEST_CASE("a file that is no tier's, or is another's, is left alone") {
  const TempDir dir;
  const std::string precious(8192, 'p');
  dir.Write("flash0", precious);
  absl::StatusOr<std::unique_ptr<Tier>> refused = CreateFileTier(Options(dir));
  CHECK_THAT(std::string(refused.status().message()),
             Catch::Contains("flash0 exists and is no tier's file"));
  CHECK(StatOf(dir.File("flash0")).st_size == 8192);
  REQUIRE(unlink(dir.File("flash0").c_str()) == 0);
  const auto tier = Make(Options(dir));
  refused = CreateFileTier(Options(dir));
  CHECK_THAT(std::string(refused.status().message()), Catch::Contains("in use by another daemon"));
  CHECK(StatOf(dir.File("flash0")).st_size > 0);
}

TEST_CASE("the file is private, preallocated, and emptied at each start") {
  const TempDir dir;
  {
    const auto before = Make(Options(dir, 3 * kMiB));
    const std::string old(4096, 'x');
    const share::UniqueFd fd(open(dir.File("flash0").c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(pwrite(fd.get(), old.data(), old.size(), 64 << 10) == 4096);
  }
  REQUIRE(chmod(dir.File("flash0").c_str(), 0666) == 0);
  {
    const auto tier = Make(Options(dir));
    const struct stat info = StatOf(dir.File("flash0"));
    CHECK((info.st_mode & 07777) == 0600);
    CHECK(info.st_size == (1 << 20) + 4096);  // and the trailer that says that it is ours
    CHECK(info.st_blocks * 512 >= 1 << 20);
    CHECK((fcntl(tier->fd(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(tier->ledger()[ByteState::kCommittedFree] == 1 * kMiB);
    CHECK(tier->ledger()[ByteState::kFree] == 0);
    char old[16] = {};
    const share::UniqueFd buffered(open(dir.File("flash0").c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(pread(buffered.get(), old, sizeof old, 64 << 10) == sizeof old);
    CHECK(old[0] == 0);
  }
  CHECK(std::filesystem::exists(dir.File("flash0")));
}

TEST_CASE("O_DIRECT is on exactly when it was proved") {
  const TempDir dir;
  const auto tier = Make(Options(dir));
  CHECK(((fcntl(tier->fd(), F_GETFL) & O_DIRECT) != 0) == !tier->degraded());
  CHECK((tier->note() == "O_DIRECT") == !tier->degraded());
}

TEST_CASE("a file system that breaks O_DIRECT gets buffered I/O, and the tier says so") {
  const TempDir dir;
  FileTierOptions options = Options(dir);
  Bytes asked = 0;
  options.probe = [&](int fd, Bytes alignment) {
    CHECK(fd >= 0);
    CHECK(alignment >= asked);
    asked = alignment;
    return Error(absl::StatusCode::kDataLoss, Reason::kIo, "it lied");
  };
  const auto tier = Make(std::move(options));
  CHECK(asked >= 4096);  // the last that is tried, whatever the file system reports
  CHECK(tier->degraded());
  CHECK(tier->note() == "degraded: buffered I/O (it lied)");
  CHECK((fcntl(tier->fd(), F_GETFL) & O_DIRECT) == 0);
  CHECK(pwrite(tier->fd(), "unaligned", 9, 3) == 9);
}

TEST_CASE("an alignment that is reported but does not work gives way to whole pages") {
  const TempDir dir;
  FileTierOptions options = Options(dir);
  std::vector<Bytes> tried;
  options.probe = [&](int, Bytes alignment) {
    tried.push_back(alignment);
    if (alignment >= 4096) return absl::OkStatus();
    return Error(absl::StatusCode::kInvalidArgument, Reason::kIo, "too fine");
  };
  const auto tier = Make(std::move(options));
  CHECK(tried.back() >= 4096);
  CHECK(tried.size() <= 2);
  CHECK(!tier->degraded());
  CHECK(tier->LengthFor(1) == tried.back());
}

TEST_CASE("the note names the engine; one that is less than was configured degrades the tier") {
  const TempDir dir;
  FileTierOptions options = Options(dir);
  options.engine = "io_uring";
  options.probe = [](int, Bytes) { return absl::OkStatus(); };
  CHECK(Make(std::move(options))->note() == "O_DIRECT, io_uring");
  options = Options(dir);
  options.engine = "worker threads";
  options.engine_degraded = true;
  const auto tier = Make(std::move(options));
  CHECK(tier->degraded());
  CHECK(tier->note().ends_with(", worker threads"));
}

TEST_CASE("small extents share pages, large ones begin and end with them") {
  const TempDir dir;
  FileTierOptions options = Options(dir);
  options.alignment = 512;
  const auto tier = Make(std::move(options));
  CHECK(tier->LengthFor(1) == 512);
  CHECK(tier->LengthFor(3000) == 3072);
  CHECK(tier->LengthFor(4096) == 4096);
  CHECK(tier->LengthFor(4097) == 8192);
  std::vector<Extent> small;
  for (int i = 0; i < 2048; ++i) {
    const auto extent = tier->Allocate(1, 500, ByteState::kMoving);
    REQUIRE(extent.ok());
    small.push_back(*extent);
  }
  CHECK(tier->ledger().used() == 1 * kMiB);  // not one page each
  REQUIRE(tier->Validate().ok());
  // One of each eight: room, but no page.
  for (std::size_t i = 0; i < small.size(); i += 8) tier->Free(1, small[i], ByteState::kMoving);
  REQUIRE(tier->Validate().ok());
  CHECK(tier->ledger().used() == 7 * kMiB / 8);
  CHECK(ReasonOf(tier->Allocate(1, 4096, ByteState::kMoving).status()) == Reason::kFull);
  // A page comes free with the last that lies in it.
  std::vector<Extent> leaving(small.begin() + 9, small.begin() + 15);
  CHECK_FALSE(tier->FirstWindow(4096, leaving).has_value());
  leaving.push_back(small[1]);
  leaving.push_back(small[15]);
  const auto first = tier->FirstWindow(4096, leaving);
  REQUIRE(first.has_value());
  CHECK(first->offset == small[8].offset);
  CHECK(first->length == 4096);
  const auto window = tier->EmptiestWindow(4096, {});
  REQUIRE(window.has_value());
  for (std::size_t i = 0; i < small.size(); ++i) {
    const bool inside = small[i].offset < window->offset + window->length &&
                        window->offset < small[i].offset + small[i].length;
    if (i % 8 != 0 && inside) tier->Free(1, small[i], ByteState::kMoving);
  }
  REQUIRE(tier->Validate().ok());
  const auto page = tier->Allocate(1, 4096, ByteState::kMoving);
  REQUIRE(page.ok());
  CHECK(page->offset % 4096 == 0);
}

TEST_CASE("neighbours that share a page keep each its bytes, written and read directly") {
  const TempDir dir;
  const auto tier = Make(Options(dir));
  const Bytes unit = tier->LengthFor(1);
  // Aligned to one unit and no more, as what stands in a row in a buffer is.
  const std::unique_ptr<std::byte, decltype(&std::free)> buffer(
      static_cast<std::byte*>(std::aligned_alloc(4096, 16 * 4096)), &std::free);
  std::vector<Extent> extents;
  for (Bytes i = 0; i < 16; ++i) {
    extents.push_back(*tier->Allocate(1, 100, ByteState::kMoving));
    std::byte* const at = buffer.get() + i * unit;
    std::memset(at, static_cast<int>(i + 1), unit);
    REQUIRE(pwrite(tier->fd(), at, unit, static_cast<off_t>(extents[i].offset)) ==
            static_cast<ssize_t>(unit));
  }
  std::memset(buffer.get(), 0, 16 * unit);
  for (Bytes i = 0; i < 16; ++i) {
    std::byte* const at = buffer.get() + i * unit;
    REQUIRE(pread(tier->fd(), at, unit, static_cast<off_t>(extents[i].offset)) ==
            static_cast<ssize_t>(unit));
    for (Bytes k = 0; k < unit; ++k) REQUIRE(at[k] == static_cast<std::byte>(i + 1));
  }
}

TEST_CASE("the probe refuses what cannot be written, read or is not direct") {
  const TempDir dir;
  dir.Write("plain", "");
  const share::UniqueFd buffered(open(dir.File("plain").c_str(), O_RDWR | O_CLOEXEC));
  CHECK(ProbeDirectIo(buffered.get(), 4096).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(!ProbeDirectIo(-1, 4096).ok());
  for (const int access : {O_RDONLY, O_WRONLY}) {
    const share::UniqueFd half(open(dir.File("plain").c_str(), access | O_DIRECT | O_CLOEXEC));
    if (half.valid()) CHECK(!ProbeDirectIo(half.get(), 4096).ok());
  }
}

TEST_CASE("a capacity the file system cannot hold is refused and leaves nothing behind") {
  const TempDir dir;
  const auto tier = CreateFileTier(Options(dir, Bytes{1} << 50));
  CHECK(tier.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(!std::filesystem::exists(dir.File("flash0")));
}

TEST_CASE("a path that is no regular file of ours is refused") {
  const TempDir dir;
  FileTierOptions missing = Options(dir);
  missing.path = dir.File("no/such/folder");
  CHECK(CreateFileTier(std::move(missing)).status().code() == absl::StatusCode::kNotFound);
  dir.Write("target", "precious");
  REQUIRE(symlink(dir.File("target").c_str(), dir.File("flash0").c_str()) == 0);
  CHECK(!CreateFileTier(Options(dir)).ok());
  CHECK(StatOf(dir.File("target")).st_size == 8);
  FileTierOptions folder = Options(dir);
  folder.path = dir.path();
  CHECK(!CreateFileTier(std::move(folder)).ok());
}

TEST_CASE("lengths and offsets keep the alignment") {
  const TempDir dir;
  FileTierOptions options = Options(dir, 1 * kMiB + 5);
  options.alignment = 16 * kKiB;
  const auto tier = Make(std::move(options));
  CHECK(tier->capacity() == 1 * kMiB);
  for (int i = 0; i < 3; ++i) {
    const auto extent = tier->Allocate(1, 100, ByteState::kMoving);
    REQUIRE(extent.ok());
    CHECK(extent->length == 16 * kKiB);
    CHECK(extent->offset % (16 * kKiB) == 0);
  }
}

TEST_CASE("options that contradict themselves are refused") {
  const TempDir dir;
  auto refused = [&](auto change) {
    FileTierOptions options = Options(dir);
    change(options);
    const auto tier = CreateFileTier(std::move(options));
    return ReasonOf(tier.status()) == Reason::kBadConfig;
  };
  CHECK(refused([](FileTierOptions& o) { o.tier.name = "flash/0"; }));
  CHECK(refused([](FileTierOptions& o) { o.tier.capacity = 100; }));
  CHECK(refused([](FileTierOptions& o) { o.tier.capacity = ~Bytes{0}; }));
  CHECK(refused([](FileTierOptions& o) { o.tier.reserve = 1 * kMiB; }));
  CHECK(refused([](FileTierOptions& o) { o.alignment = 256; }));
  CHECK(refused([](FileTierOptions& o) { o.alignment = 4097; }));
  CHECK(refused([](FileTierOptions& o) { o.alignment = 2 * kMiB; }));
  CHECK(!std::filesystem::exists(dir.File("flash0")));
}

TEST_CASE("a file system that has less says that it keeps some") {
  const TempDir dir;
  FileTierOptions options = Options(dir);
  options.tier.capacity = std::filesystem::space(dir.path()).available / kMiB * kMiB + kGiB;
  const absl::Status status = CreateFileTier(std::move(options)).status();
  CHECK(ReasonOf(status) == Reason::kIo);
  CHECK(status.message().find("keeps some for itself") != absl::string_view::npos);
}

}  // namespace
}  // namespace hmm::tier
