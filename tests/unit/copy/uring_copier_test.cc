// SPDX-License-Identifier: Apache-2.0
//
// What is the ring's own; what every copier does is in copier_test.cc.
#include "copy/uring_copier.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "copy/memory_copy.h"
#include "share/memory_file.h"
#include "support/catch.h"
#include "support/refuse_syscall.h"
#include "unit/copy/copier_rig.h"

namespace hmm::copy {
namespace {

using hmm::testing::BlockingExecutor;
using hmm::testing::CopierRig;
using hmm::testing::DiskTier;
using hmm::testing::Engine;
using hmm::testing::Engines;
using hmm::testing::FillBytes;
using hmm::testing::g_faults;
using hmm::testing::MemoryTier;
using hmm::testing::ScratchFile;
using tier::Extent;

bool Refused() { return Engines().size() < 2; }  // Engines has warned

TEST_CASE("many more jobs than slots, both ways at once, all end well and once") {
  if (Refused()) return;
  const unsigned depth = GENERATE(1U, 2U, 7U, 24U);  // from 16 on a full ring is waited for
  CopierRig rig(Engine::kUring, true, {.parallel = depth, .io_unit = 8 * kKiB});
  constexpr std::size_t kJobs = 24;
  constexpr Bytes kBytes = 20'000;  // three pieces, the last of them not whole
  constexpr Bytes kEach = 20'480;
  FillBytes(rig.hbm.Address({}), kMiB, 17);
  const auto extent = [](std::size_t i) { return Extent{.offset = i * kEach, .length = kEach}; };
  std::vector<std::uint64_t> sums(kJobs, 0);
  std::vector<int> calls(kJobs, 0);
  std::size_t back = 0;
  for (std::size_t i = 0; i < kJobs; ++i) {
    rig.copier->Submit(
        {&rig.hbm, extent(i), &rig.flash, extent(i), kBytes, {}}, [&, i](CopyResult out) {
          REQUIRE(out.status.ok());
          ++calls[i];
          sums[i] = out.checksum;
          // While others are still on their way out.
          rig.copier->Submit({&rig.flash, extent(i), &rig.ddr, extent(i), kBytes, out.checksum},
                             [&](CopyResult in) {
                               INFO(in.status);
                               REQUIRE(in.status.ok());
                               ++back;
                             });
        });
  }
  for (std::size_t i = 0; i < 2 * kJobs; ++i) rig.executor.RunOne();
  REQUIRE(rig.executor.size() == 0);
  REQUIRE(back == kJobs);
  for (std::size_t i = 0; i < kJobs; ++i) {
    REQUIRE(calls[i] == 1);
    REQUIRE(sums[i] == Checksum(rig.hbm.Address(extent(i)), kBytes));
    REQUIRE(std::memcmp(rig.ddr.Address(extent(i)), rig.hbm.Address(extent(i)), kBytes) == 0);
  }
}

TEST_CASE("a job of many pieces is hashed in their order, in whichever they land") {
  if (Refused()) return;
  const bool direct = GENERATE(false, true);
  CopierRig rig(Engine::kUring, direct, {.parallel = 16, .io_unit = 32 * kKiB});
  const Extent all{.length = kMiB};
  FillBytes(rig.hbm.Address(all), kMiB, 23);
  for (int round = 0; round < 5; ++round) {
    const CopyResult out = rig.Run({&rig.hbm, all, &rig.flash, all, kMiB - 7, {}});
    REQUIRE(out.status.ok());
    REQUIRE(out.checksum == Checksum(rig.hbm.Address(all), kMiB - 7));
    const CopyResult in = rig.Run({&rig.flash, all, &rig.ddr, all, kMiB - 7, out.checksum});
    INFO(in.status);
    REQUIRE(in.status.ok());
  }
}

// Ends the first I/O only when the test lets it: meanwhile more can be submitted.
struct HeldRing {
  explicit HeldRing(BlockingExecutor& executor) {
    UringCopierOptions options;
    options.depth = 1;
    options.io_unit = 4096;
    options.on_result = [this](const UringIo& io, std::int32_t result) {
      if (order.empty()) {
        first.set_value();
        go.get_future().wait();
      }
      order.push_back(io.write);
      return result;
    };
    auto made = CreateUringCopier(executor, std::move(options));
    REQUIRE(made.ok());
    copier = *std::move(made);
  }
  std::promise<void> first;
  std::promise<void> go;
  std::vector<bool> order;  // of what ended: was it a write?
  std::unique_ptr<Copier> copier;
};

TEST_CASE("a read does not wait for a queue of writes, nor a write for reads") {
  if (Refused()) return;
  const bool write_late = GENERATE(false, true);
  const ScratchFile file(kMiB, true);
  const DiskTier flash("flash0", kMiB, file.fd());
  const MemoryTier ddr("ddr0", kMiB);
  FillBytes(ddr.Address({}), kMiB, 3);
  BlockingExecutor executor;
  HeldRing ring(executor);
  const Extent longer{.length = 64 * 4096};
  const Extent shorter{.offset = 100 * 4096, .length = 4096};
  const auto submit = [&](const Extent& extent, bool write) {
    const tier::Tier* memory = &ddr;
    const tier::Tier* disk = &flash;
    ring.copier->Submit(
        {write ? memory : disk, extent, write ? disk : memory, extent, extent.length, {}},
        [](CopyResult result) { REQUIRE(result.status.ok()); });
  };
  submit(longer, !write_late);
  ring.first.get_future().wait();
  submit(shorter, write_late);
  ring.go.set_value();
  executor.RunOne();
  executor.RunOne();
  ring.copier.reset();
  REQUIRE(ring.order.size() == 65);
  const auto late = std::find(ring.order.begin(), ring.order.end(), write_late);
  REQUIRE(late - ring.order.begin() <= 3);
}

TEST_CASE("a failed I/O ends its job, after what the kernel still holds of it, and no other job") {
  if (Refused()) return;
  const int good = GENERATE(0, 1, 5);
  CopierRig rig(Engine::kUring, true, {.parallel = 4, .io_unit = 4096});
  FillBytes(rig.hbm.Address({}), kMiB, 3);
  const Extent large{.length = 64 * 4096};
  const Extent small{.offset = 100 * 4096, .length = 4096};
  g_faults.calls = 0;
  g_faults.good = good;
  g_faults.error = EIO;
  absl::Status status;
  int calls_then = 0;
  rig.copier->Submit({&rig.hbm, large, &rig.flash, large, large.length, {}}, [&](CopyResult r) {
    status = std::move(r.status);
    calls_then = g_faults.calls;
  });
  rig.executor.RunOne();
  REQUIRE(status.code() == absl::StatusCode::kDataLoss);  // as errno's words have it
  REQUIRE(ReasonOf(status) == Reason::kIo);
  REQUIRE(std::string(status.message()).find("writing tier flash0") != std::string::npos);
  REQUIRE(calls_then <= good + 5);  // the rest was not begun
  REQUIRE(g_faults.error == 0);
  const CopyResult out = rig.Run({&rig.hbm, small, &rig.flash, small, 4096, {}});
  REQUIRE(out.status.ok());
  rig.copier.reset();
  REQUIRE(g_faults.calls == calls_then + 1);
  REQUIRE(rig.executor.size() == 0);
}

TEST_CASE("a failed read is lost data whatever errno says") {
  if (Refused()) return;
  CopierRig rig(Engine::kUring, true, {.parallel = 4, .io_unit = 4096});
  const Extent extent{.length = 64 * 4096};
  g_faults.good = 2;
  g_faults.error = ENODEV;
  const CopyResult in = rig.Run({&rig.flash, extent, &rig.ddr, extent, extent.length, {}});
  REQUIRE(in.status.code() == absl::StatusCode::kDataLoss);
  REQUIRE(ReasonOf(in.status) == Reason::kIo);
}

TEST_CASE("an I/O that is interrupted for ever ends with an error, not in a loop") {
  if (Refused()) return;
  CopierRig rig(Engine::kUring, true);
  const Extent extent{.length = 4096};
  FillBytes(rig.hbm.Address(extent), 4096, 3);
  g_faults.interrupts = 100'000;
  const CopyResult out = rig.Run({&rig.hbm, extent, &rig.flash, extent, 4096, {}});
  g_faults.interrupts = 0;
  REQUIRE_FALSE(out.status.ok());
  REQUIRE(ReasonOf(out.status) == Reason::kIo);
}

TEST_CASE("a full medium is RESOURCE_EXHAUSTED") {
  if (Refused()) return;
  const share::UniqueFd full(::open("/dev/full", O_RDWR | O_CLOEXEC));
  REQUIRE(full.valid());
  CopierRig rig(Engine::kUring, false);
  const DiskTier flash("flash9", kMiB, full.get());
  const Extent extent{.length = 40'960};
  FillBytes(rig.hbm.Address(extent), 40'960, 3);
  const CopyResult out = rig.Run({&rig.hbm, extent, &flash, extent, 40'960, {}});
  REQUIRE(out.status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(std::string(out.status.message()).find("flash9") != std::string::npos);
}

TEST_CASE("completions that no executor runs any more are destroyed with it, once") {
  if (Refused()) return;
  auto alive = std::make_shared<int>(0);
  {
    CopierRig rig(Engine::kUring, true, {.parallel = 2, .io_unit = 4096});
    FillBytes(rig.hbm.Address({}), kMiB, 3);
    for (std::size_t i = 0; i < 32; ++i) {
      const Extent extent{.offset = i * 8192, .length = 8192};
      rig.copier->Submit({&rig.hbm, extent, &rig.flash, extent, 8192, {}},
                         [alive](CopyResult) { FAIL("nobody runs this"); });
    }
    rig.copier.reset();
    REQUIRE(rig.executor.size() == 32);
    REQUIRE(alive.use_count() == 33);
  }
  REQUIRE(alive.use_count() == 1);
}

TEST_CASE("a copier that never got a job goes at once") {
  if (Refused()) return;
  BlockingExecutor executor;
  REQUIRE(CreateUringCopier(executor, {}).ok());
  UringCopierOptions odd;
  odd.depth = 0;
  odd.io_unit = 0;
  REQUIRE(CreateUringCopier(executor, std::move(odd)).ok());
}

// In a thread of its own, whose children inherit what is refused to it.
absl::Status StatusWhere(int syscall, int error) {
  absl::Status status;
  bool filtered = false;
  std::thread([&] {
    filtered =
        hmm::testing::RefuseSyscall(static_cast<unsigned>(syscall), static_cast<unsigned>(error));
    BlockingExecutor executor;
    status = CreateUringCopier(executor, {}).status();
  }).join();
  if (!filtered) WARN("this system takes no system call filter");
  return filtered ? status : Error(absl::StatusCode::kFailedPrecondition, Reason::kRefused, "");
}

TEST_CASE("a system that refuses the ring gets an error that says so") {
  const int error = GENERATE(EPERM, ENOSYS, ENOMEM, EACCES);
  const int syscall = GENERATE(SYS_io_uring_setup, SYS_io_uring_enter);
  INFO("errno " << error << " of system call " << syscall);
  const absl::Status status = StatusWhere(syscall, error);
  INFO(status);
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(ReasonOf(status) == Reason::kRefused);
  if (status.message().empty()) return;  // StatusWhere has warned
  const std::string message(status.message());
  REQUIRE(message.find("io_uring refused: ") == 0);
  REQUIRE(message.find(std::strerror(error)) != std::string::npos);
}

}  // namespace
}  // namespace hmm::copy
