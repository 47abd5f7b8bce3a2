// SPDX-License-Identifier: Apache-2.0
//
// A copier of either engine between real memory and a real file, with faults put in between: what
// was told of a read or write is cut short or replaced, and what was asked for is recorded. For the
// ring that is its on_result; for the worker threads copier_test.cc replaces pread and pwrite.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "copy/routing_copier.h"
#include "copy/uring_copier.h"
#include "copy/worker_copier.h"
#include "support/blocking_executor.h"
#include "support/catch.h"
#include "unit/copy/small_tiers.h"

namespace hmm::testing {

// Written by the test, read by whoever does I/O.
struct IoFaults {
  static constexpr std::size_t kNoCap = std::size_t{1} << 40;
  std::atomic<std::size_t> cap{kNoCap};  // most bytes that a call says it carried
  std::atomic<int> interrupts{0};        // so many calls fail with EINTR first
  std::atomic<int> error{0};             // the call after `good` more fails so; 0: none
  std::atomic<int> good{0};
  std::atomic<std::size_t> last_bytes{0};  // asked for by the last call
  std::atomic<const void*> last_buffer{nullptr};
  std::atomic<int> calls{0};

  // What the caller is told: bytes, or -errno.
  std::int64_t Tell(const void* buffer, std::size_t bytes, std::int64_t result) {
    last_buffer = buffer;
    last_bytes = bytes;
    ++calls;
    if (interrupts > 0) {
      --interrupts;
      return -EINTR;
    }
    if (error != 0 && good-- == 0) return -error.exchange(0);
    return std::min(result, static_cast<std::int64_t>(cap.load()));
  }
};
inline IoFaults g_faults;

struct ScopedCap {
  explicit ScopedCap(std::size_t bytes) { g_faults.cap = bytes; }
  ~ScopedCap() { g_faults.cap = IoFaults::kNoCap; }
};

class ScratchFile {
 public:
  ScratchFile(Bytes bytes, bool direct) {
    std::string path = std::filesystem::temp_directory_path() / "hmm_copier_XXXXXX";
    fd_ = ::mkstemp(path.data());
    REQUIRE(fd_ >= 0);
    if (direct) {
      const int fd = ::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
      if (fd >= 0) {
        ::close(fd_);
        fd_ = fd;
      } else {
        WARN("no O_DIRECT on " << path << ": the direct cases run buffered");
      }
    }
    ::unlink(path.c_str());
    REQUIRE(::ftruncate(fd_, static_cast<off_t>(bytes)) == 0);
  }
  ~ScratchFile() { ::close(fd_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  int fd() const { return fd_; }
  bool direct() const { return (::fcntl(fd_, F_GETFL) & O_DIRECT) != 0; }
  void Truncate(Bytes bytes) { REQUIRE(::ftruncate(fd_, static_cast<off_t>(bytes)) == 0); }

 private:
  int fd_ = -1;
};

inline void FillBytes(std::byte* data, Bytes bytes, std::uint32_t seed) {
  for (Bytes i = 0; i < bytes; ++i) {
    seed = seed * 1664525U + 1013904223U;
    data[i] = static_cast<std::byte>(seed >> 24);
  }
}

enum class Engine { kWorkers, kUring };
inline const char* EngineName(Engine engine) {
  return engine == Engine::kUring ? "io_uring" : "workers";
}

struct EngineOptions {
  unsigned parallel = 2;  // threads, or the ring's depth
  Bytes io_unit = 16 * kKiB;
};

// As the daemon puts them together: memory by worker threads, the file by the engine. nullptr: the
// system refuses the ring.
inline std::unique_ptr<copy::Copier> MakeEngine(Engine engine, Executor& executor,
                                                const EngineOptions& options) {
  auto workers =
      copy::CreateWorkerCopier(executor, {.threads = options.parallel, .io_unit = options.io_unit});
  if (engine == Engine::kWorkers) return workers;
  copy::UringCopierOptions ring;
  ring.depth = options.parallel;
  ring.io_unit = options.io_unit;
  ring.on_result = [](const copy::UringIo& io, std::int32_t result) {
    return static_cast<std::int32_t>(g_faults.Tell(io.buffer, io.bytes, result));
  };
  auto uring = copy::CreateUringCopier(executor, std::move(ring));
  if (!uring.ok()) return nullptr;
  return copy::CreateRoutingCopier(std::move(workers), *std::move(uring));
}

// Those that this system allows.
inline std::vector<Engine> Engines() {
  BlockingExecutor executor;
  if (MakeEngine(Engine::kUring, executor, {}) != nullptr) {
    return {Engine::kWorkers, Engine::kUring};
  }
  WARN("io_uring is refused here: only the worker threads are tested");
  return {Engine::kWorkers};
}

struct CopierRig {
  explicit CopierRig(Engine engine, bool direct, EngineOptions options = {})
      : file(kMiB, direct), flash("flash0", kMiB, file.fd()) {
    copier = MakeEngine(engine, executor, options);
    REQUIRE(copier != nullptr);
    std::memset(ddr.Address({}), 0xEE, kMiB);
    std::memset(hbm.Address({}), 0xEE, kMiB);
  }
  copy::CopyResult Run(const copy::CopyJob& job) {
    copy::CopyResult result;
    int calls = 0;
    copier->Submit(job, [&](copy::CopyResult r) {
      result = std::move(r);
      ++calls;
    });
    REQUIRE(calls == 0);  // never inline
    executor.RunOne();
    REQUIRE(calls == 1);
    REQUIRE(executor.size() == 0);
    return result;
  }

  ScratchFile file;
  DiskTier flash;
  MemoryTier ddr{"ddr0", kMiB};
  MemoryTier hbm{"hbm0", kMiB};
  BlockingExecutor executor;
  std::unique_ptr<copy::Copier> copier;
};

inline bool AllAre(const std::byte* first, Bytes bytes, int value) {
  return std::all_of(first, first + bytes,
                     [&](std::byte byte) { return byte == static_cast<std::byte>(value); });
}

}  // namespace hmm::testing
