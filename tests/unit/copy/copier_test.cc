// SPDX-License-Identifier: Apache-2.0
//
// What the daemon's copiers promise alike, whichever engine serves the file: worker threads or
// io_uring. Against real memory and real files, buffered and O_DIRECT.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "copy/memory_copy.h"
#include "support/catch.h"
#include "unit/copy/copier_rig.h"

namespace {

// The worker threads' I/O, with the faults that the rig asks for.
std::size_t Ask(std::size_t bytes) {
  // Whole units, so that O_DIRECT takes it.
  return std::min(bytes, (hmm::testing::g_faults.cap.load() + 4095) / 4096 * 4096);
}
ssize_t Told(const void* buffer, std::size_t bytes, ssize_t result) {
  const std::int64_t told =
      hmm::testing::g_faults.Tell(buffer, bytes, result < 0 ? -errno : result);
  if (told >= 0) return static_cast<ssize_t>(told);
  errno = static_cast<int>(-told);
  return -1;
}

}  // namespace

extern "C" ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  return Told(to, bytes, ::syscall(SYS_pread64, fd, to, Ask(bytes), offset));
}
extern "C" ssize_t pwrite(int fd, const void* from, size_t bytes, off_t offset) {
  return Told(from, bytes, ::syscall(SYS_pwrite64, fd, from, Ask(bytes), offset));
}

namespace hmm::copy {
namespace {

using hmm::testing::AllAre;
using hmm::testing::CopierRig;
using hmm::testing::DiskTier;
using hmm::testing::Engine;
using hmm::testing::EngineName;
using hmm::testing::Engines;
using hmm::testing::FillBytes;
using hmm::testing::g_faults;
using hmm::testing::ScopedCap;
using hmm::testing::ScratchFile;
using tier::Extent;

Engine EachEngine() {
  const Engine engine = GENERATE(from_range(Engines()));
  return engine;
}

TEST_CASE("memory to memory copies exactly the bytes and verifies what is expected") {
  const Engine engine = EachEngine();
  INFO(EngineName(engine));
  CopierRig rig(engine, false);
  const Extent source{.offset = 64, .length = 100'032};
  const Extent target{.offset = 128, .length = 100'032};
  FillBytes(rig.hbm.Address(source), 100'001, 1);
  const std::uint64_t sum = Checksum(rig.hbm.Address(source), 100'001);
  CopyJob job{&rig.hbm, source, &rig.ddr, target, 100'001, sum};
  CopyResult result = rig.Run(job);
  REQUIRE(result.status.ok());
  REQUIRE(result.checksum == 0);  // the target is mappable
  REQUIRE(std::memcmp(rig.ddr.Address(target), rig.hbm.Address(source), 100'001) == 0);
  REQUIRE(AllAre(rig.ddr.Address(target) + 100'001, 64, 0xEE));
  job.expected_checksum = sum + 1;
  result = rig.Run(job);
  REQUIRE(result.status.code() == absl::StatusCode::kDataLoss);
  REQUIRE(ReasonOf(result.status) == Reason::kChecksum);
}

TEST_CASE("a round trip through the file restores the bytes, whatever their size and alignment") {
  const Engine engine = EachEngine();
  INFO(EngineName(engine));
  const bool direct = GENERATE(false, true);
  // An extent's length against its bytes: tight memory forces the bounce buffer for the last piece.
  const Bytes memory_slack = GENERATE(Bytes{0}, Bytes{8192});
  const Bytes memory_offset = GENERATE(Bytes{0}, Bytes{64}, Bytes{4096});
  const Bytes bytes = GENERATE(Bytes{1}, Bytes{63}, Bytes{512}, Bytes{4095}, Bytes{4096},
                               Bytes{4097}, Bytes{16384}, Bytes{100'000});
  INFO("direct " << direct << ", slack " << memory_slack << ", offset " << memory_offset << ", "
                 << bytes << " bytes");
  CopierRig rig(engine, direct);
  const Extent source{.offset = memory_offset, .length = RoundUp(bytes, 64) + memory_slack};
  const Extent on_disk{.offset = 8192, .length = RoundUp(bytes, 4096)};
  FillBytes(rig.hbm.Address(source), bytes, 7);
  const CopyResult out = rig.Run({&rig.hbm, source, &rig.flash, on_disk, bytes, {}});
  REQUIRE(out.status.ok());
  REQUIRE(out.checksum == Checksum(rig.hbm.Address(source), bytes));
  const CopyResult in = rig.Run({&rig.flash, on_disk, &rig.ddr, source, bytes, out.checksum});
  REQUIRE(in.status.ok());
  REQUIRE(std::memcmp(rig.ddr.Address(source), rig.hbm.Address(source), bytes) == 0);
  // Nothing beyond the extent was touched.
  REQUIRE(AllAre(rig.ddr.Address({}), memory_offset, 0xEE));
  REQUIRE(AllAre(rig.ddr.Address(source) + source.length, 8192, 0xEE));
}

TEST_CASE("aligned memory that covers the padding goes straight, other memory by a bounce buffer") {
  const Engine engine = EachEngine();
  INFO(EngineName(engine));
  CopierRig rig(engine, true);
  if (!rig.file.direct()) return;  // ScratchFile has warned
  const Extent on_disk{.offset = 4096, .length = 8192};
  const Extent roomy{.offset = 4096, .length = 8192};
  FillBytes(rig.hbm.Address({}), 3 * 8192, 3);
  REQUIRE(rig.Run({&rig.hbm, roomy, &rig.flash, on_disk, 5000, {}}).status.ok());
  REQUIRE(g_faults.last_buffer == rig.hbm.Address(roomy));
  REQUIRE(g_faults.last_bytes == 8192);
  const Extent tight{.offset = 4096, .length = 5056};
  REQUIRE(rig.Run({&rig.hbm, tight, &rig.flash, on_disk, 5000, {}}).status.ok());
  REQUIRE(g_faults.last_buffer != rig.hbm.Address(tight));
  const Extent skewed{.offset = 4096 + 64, .length = 8192};
  REQUIRE(rig.Run({&rig.hbm, skewed, &rig.flash, on_disk, 5000, {}}).status.ok());
  REQUIRE(g_faults.last_buffer != rig.hbm.Address(skewed));
}

TEST_CASE("a bounced write pads with zeros, not with what an earlier job left in the buffer") {
  const Engine engine = EachEngine();
  INFO(EngineName(engine));
  CopierRig rig(engine, true);
  const Extent skewed{.offset = 64, .length = 8192};
  std::memset(rig.hbm.Address(skewed), 0x77, 8192);
  REQUIRE(rig.Run({&rig.hbm, skewed, &rig.flash, {.length = 8192}, 8192, {}}).status.ok());
  const Extent small{.offset = 64, .length = 128};
  REQUIRE(rig.Run({&rig.hbm, small, &rig.flash, {.length = 4096}, 100, {}}).status.ok());
  const Extent whole{.length = 8192};
  REQUIRE(rig.Run({&rig.flash, whole, &rig.ddr, whole, 8192, {}}).status.ok());
  REQUIRE(AllAre(rig.ddr.Address(whole), 100, 0x77));
  // Buffered I/O writes no padding at all, so the rest of the unit is the first job's.
  const bool direct = rig.file.direct();
  REQUIRE(AllAre(rig.ddr.Address(whole) + 100, 3996, direct ? 0 : 0x77));
  REQUIRE(AllAre(rig.ddr.Address(whole) + 4096, 4096, 0x77));
}

TEST_CASE("short reads and writes are continued, interrupted ones repeated") {
  const Engine engine = EachEngine();
  INFO(EngineName(engine));
  const bool direct = GENERATE(false, true);
  // 5000 breaks a unit: what came of it must be read or written again under O_DIRECT.
  const std::size_t cap = GENERATE(std::size_t{4096}, std::size_t{5000});
  CopierRig rig(engine, direct);
  const Extent extent{.length = 40'960};
  FillBytes(rig.hbm.Address(extent), 40'000, 5);
  CopyResult out;
  CopyResult in;
  {
    const ScopedCap scoped(cap);
    g_faults.interrupts = 3;
    out = rig.Run({&rig.hbm, extent, &rig.flash, extent, 40'000, {}});
    g_faults.interrupts = 3;
    in = rig.Run({&rig.flash, extent, &rig.ddr, extent, 40'000, out.checksum});
  }
  REQUIRE(out.status.ok());
  REQUIRE(in.status.ok());
  REQUIRE(g_faults.interrupts == 0);
  REQUIRE(std::memcmp(rig.ddr.Address(extent), rig.hbm.Address(extent), 40'000) == 0);
}

TEST_CASE("a write that makes no progress ends with an error, not in a loop") {
  const Engine engine = EachEngine();
  INFO(EngineName(engine));
  CopierRig rig(engine, false);
  const ScopedCap scoped(0);
  const Extent extent{.length = 4096};
  FillBytes(rig.hbm.Address(extent), 4096, 5);
  const CopyResult out = rig.Run({&rig.hbm, extent, &rig.flash, extent, 4096, {}});
  REQUIRE(out.status.code() == absl::StatusCode::kDataLoss);
  REQUIRE(ReasonOf(out.status) == Reason::kIo);
}

TEST_CASE("a file that ends before the bytes do is lost data, inside the last unit it is not") {
  const Engine engine = EachEngine();
  INFO(EngineName(engine));
  const bool direct = GENERATE(false, true);
  CopierRig rig(engine, direct);
  const Extent extent{.length = 40'960};
  FillBytes(rig.hbm.Address(extent), 40'000, 5);
  const CopyResult out = rig.Run({&rig.hbm, extent, &rig.flash, extent, 40'000, {}});
  REQUIRE(out.status.ok());
  const CopyJob back{&rig.flash, extent, &rig.ddr, extent, 40'000, out.checksum};
  rig.file.Truncate(40'000);
  REQUIRE(rig.Run(back).status.ok());
  for (const Bytes left : {Bytes{39'999}, Bytes{20'480}, Bytes{0}}) {
    rig.file.Truncate(left);
    const CopyResult in = rig.Run(back);
    INFO(left << " bytes left: " << in.status);
    REQUIRE(in.status.code() == absl::StatusCode::kDataLoss);
    REQUIRE(ReasonOf(in.status) == Reason::kIo);
    REQUIRE(std::string(in.status.message()).find("flash0") != std::string::npos);
  }
}

TEST_CASE("a changed byte on the medium is a checksum mismatch, one in the padding is not") {
  const Engine engine = EachEngine();
  INFO(EngineName(engine));
  const bool direct = GENERATE(false, true);
  CopierRig rig(engine, direct);
  const Extent extent{.offset = 4096, .length = 8192};
  FillBytes(rig.hbm.Address(extent), 5000, 5);
  const CopyResult out = rig.Run({&rig.hbm, extent, &rig.flash, extent, 5000, {}});
  const CopyJob back{&rig.flash, extent, &rig.ddr, extent, 5000, out.checksum};
  hmm::testing::PageBytes page(8192);
  const auto flip = [&](std::size_t at) {
    REQUIRE(::pread(rig.file.fd(), page.data(), 8192, 4096) == 8192);
    page.data()[at] ^= std::byte{0x10};
    REQUIRE(::pwrite(rig.file.fd(), page.data(), 8192, 4096) == 8192);
  };
  flip(5000);
  REQUIRE(rig.Run(back).status.ok());
  flip(4999);
  const CopyResult in = rig.Run(back);
  REQUIRE(in.status.code() == absl::StatusCode::kDataLoss);
  REQUIRE(ReasonOf(in.status) == Reason::kChecksum);
}

TEST_CASE("errno's words come back for a failed write, DATA_LOSS/IO for a failed read") {
  const Engine engine = EachEngine();
  INFO(EngineName(engine));
  CopierRig rig(engine, false);
  const DiskTier closed("flash9", kMiB, -1);
  const Extent extent{.length = 4096};
  FillBytes(rig.hbm.Address(extent), 4096, 5);
  const CopyResult out = rig.Run({&rig.hbm, extent, &closed, extent, 4096, {}});
  REQUIRE(ReasonOf(out.status) == Reason::kIo);
  REQUIRE(std::string(out.status.message()).find("flash9") != std::string::npos);
  REQUIRE(std::string(out.status.message()).find(std::strerror(EBADF)) != std::string::npos);
  const CopyResult in = rig.Run({&closed, extent, &rig.ddr, extent, 4096, {}});
  REQUIRE(in.status.code() == absl::StatusCode::kDataLoss);
  REQUIRE(ReasonOf(in.status) == Reason::kIo);
}

TEST_CASE("file to file goes through a bounce buffer and is checked on the way") {
  const Engine engine = EachEngine();
  INFO(EngineName(engine));
  CopierRig rig(engine, true);
  const ScratchFile other_file(kMiB, true);
  const DiskTier other("flash1", kMiB, other_file.fd());
  const Extent extent{.length = 40'960};
  FillBytes(rig.hbm.Address(extent), 40'000, 5);
  const CopyResult out = rig.Run({&rig.hbm, extent, &rig.flash, extent, 40'000, {}});
  const Extent further{.offset = 4096, .length = 40'960};
  const CopyResult over = rig.Run({&rig.flash, extent, &other, further, 40'000, out.checksum});
  REQUIRE(over.status.ok());
  REQUIRE(over.checksum == out.checksum);
  const CopyResult in = rig.Run({&other, further, &rig.ddr, extent, 40'000, out.checksum});
  REQUIRE(in.status.ok());
}

TEST_CASE("the destructor waits for all that was submitted; each completion is posted once") {
  const Engine engine = EachEngine();
  INFO(EngineName(engine));
  constexpr std::size_t kJobs = 64;
  constexpr Bytes kEach = 4096;
  CopierRig rig(engine, true, {.parallel = 3, .io_unit = 4096});
  FillBytes(rig.hbm.Address({}), kJobs * kEach, 9);
  std::vector<int> calls(kJobs, 0);
  std::vector<std::uint64_t> sums(kJobs, 0);
  const std::thread::id here = std::this_thread::get_id();
  const auto extent = [](std::size_t i) { return Extent{.offset = i * kEach, .length = kEach}; };
  for (std::size_t i = 0; i < kJobs; ++i) {
    rig.copier->Submit({&rig.hbm, extent(i), &rig.flash, extent(i), kEach - 1, {}},
                       [&, i](CopyResult result) {
                         REQUIRE(std::this_thread::get_id() == here);
                         REQUIRE(result.status.ok());
                         sums[i] = result.checksum;
                         ++calls[i];
                       });
  }
  rig.copier.reset();
  REQUIRE(rig.executor.size() == kJobs);
  REQUIRE(std::count(calls.begin(), calls.end(), 0) == static_cast<std::ptrdiff_t>(kJobs));
  while (rig.executor.size() > 0) rig.executor.RunOne();
  REQUIRE(std::count(calls.begin(), calls.end(), 1) == static_cast<std::ptrdiff_t>(kJobs));
  for (std::size_t i = 0; i < kJobs; ++i) {
    REQUIRE(sums[i] == Checksum(rig.hbm.Address(extent(i)), kEach - 1));
  }
}

}  // namespace
}  // namespace hmm::copy
