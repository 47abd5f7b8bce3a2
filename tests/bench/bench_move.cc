// SPDX-License-Identifier: Apache-2.0
//
// Moves through the real mover and copiers between real tiers, against what the machine does
// without them, in turns within one run:
//
//   move/memory   HBM (emulated) <-> DDR, 64 moves of 2 MiB queued, against the best of the copy
//                 kernels with as many threads over the same extents
//   move/flash    DDR <-> flash, against fio (io_uring, O_DIRECT) with the same block and depth in
//                 the same directory, extents written before, over the same blocks of one file.
//                 Needs fio: apt-get install fio. bare_ratio: against a ring without fio's start,
//                 mover or checksums, in this process, over the same memory
//
// Each row: rate of the moves, of the limit, and the ratio of the medians (memory) or the median of
// the pairs' ratios (flash); the bar is 0.9. The scratch file of 512 MiB lies in $HMM_BENCH_DIR, or
// the directory of temporary files.
#include <benchmark/benchmark.h>
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/clock.h"
#include "bench/fio.h"
#include "copy/memory_copy.h"
#include "copy/mover.h"
#include "copy/routing_copier.h"
#include "copy/uring_copier.h"
#include "copy/worker_copier.h"
#include "support/blocking_executor.h"
#include "tier/file_tier.h"
#include "tier/host_tier.h"

namespace hmm::bench {
namespace {

constexpr TenantId kTenant = 1;
constexpr double kBar = 0.9;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double Seconds(Duration span) { return std::chrono::duration<double>(span).count(); }

std::unique_ptr<tier::Tier> MakeMemory(const std::string& name, TierKind kind, Bytes capacity,
                                       tier::PageMode pages) {
  tier::HostTierOptions options;
  options.tier.name = name;
  options.tier.kind = kind;
  options.tier.emulated = kind == TierKind::kHbm;
  options.tier.capacity = capacity;
  options.id = kind == TierKind::kHbm ? 0 : 1;
  options.pages = pages;
  auto tier = tier::CreateHostTier(std::move(options));
  HMM_CHECK(tier.ok());
  return *std::move(tier);
}

// Extents that have been touched.
std::vector<tier::Extent> Fill(tier::Tier& tier, Bytes each, std::size_t count) {
  std::vector<tier::Extent> extents;
  for (std::size_t i = 0; i < count; ++i) {
    extents.push_back(*tier.Allocate(kTenant, each, tier::ByteState::kMoving));
    if (tier.mappable()) {
      std::memset(tier.Address(extents.back()), static_cast<int>(i + 1), each);
    }
  }
  return extents;
}

// A mover and the executor it lives on, which is the calling thread.
class MoverRig {
 public:
  void Use(std::unique_ptr<copy::Copier> copier, copy::MoverOptions options) {
    mover_.reset();
    copier_ = std::move(copier);
    mover_ = std::make_unique<copy::Mover>(*copier_, executor_, options);
  }
  ~MoverRig() {
    copier_.reset();
    mover_.reset();
  }
  Executor& executor() { return executor_; }

  // Carries extent i of `from` to extent i of `to`, all queued at once. Returns what it took.
  Duration Move(const tier::Tier& from, const std::vector<tier::Extent>& sources,
                const tier::Tier& to, const std::vector<tier::Extent>& targets) {
    std::size_t ended = 0;
    const TimePoint start = clock_.Now();
    for (std::size_t i = 0; i < sources.size(); ++i) {
      Submit({&from, sources[i], &to, targets[i], sources[i].length, {}},
             [&](const copy::CopyResult&) { ++ended; });
    }
    while (ended < sources.size()) executor_.RunOne();
    return clock_.Now() - start;
  }

  // Carries every extent of the file from (`write`) or to memory. Each extent of memory serves the
  // next of the file as soon as it is done with one. `sums`: of what was written; what is read is
  // verified.
  Duration Stream(const tier::Tier& memory, const std::vector<tier::Extent>& in_memory,
                  const tier::Tier& file, const std::vector<tier::Extent>& on_file, bool write,
                  std::vector<std::uint64_t>& sums) {
    sums.resize(on_file.size());
    std::size_t next = 0;
    std::size_t ended = 0;
    std::function<void(const tier::Extent&)> submit = [&](const tier::Extent& extent) {
      if (next == on_file.size()) return;
      const std::size_t i = next++;
      copy::CopyJob job{&file, on_file[i], &memory, extent, extent.length, sums[i]};
      if (write) job = {&memory, extent, &file, on_file[i], extent.length, {}};
      Submit(job, [&, i](const copy::CopyResult& result) {
        if (write) sums[i] = result.checksum;
        ++ended;
        submit(extent);
      });
    };
    const TimePoint start = clock_.Now();
    for (const tier::Extent& extent : in_memory) submit(extent);
    while (ended < on_file.size()) executor_.RunOne();
    return clock_.Now() - start;
  }

 private:
  template <typename Done>
  void Submit(const copy::CopyJob& job, Done done) {
    auto id = mover_->Submit(job, copy::Priority::kDemand,
                             [done = std::move(done)](const copy::CopyResult& result) mutable {
                               HMM_CHECK(result.status.ok());
                               done(result);
                             });
    HMM_CHECK(id.ok());
  }

  SteadyClock clock_;
  testing::BlockingExecutor executor_;
  std::unique_ptr<copy::Copier> copier_;
  std::unique_ptr<copy::Mover> mover_;
};

void Report(benchmark::State& state, const std::string& what, double rate, double limit,
            double ratio) {
  state.counters["GB/s"] = rate / 1e9;
  state.counters["limit_GB/s"] = limit / 1e9;
  state.counters["ratio"] = ratio;
  state.SetLabel(absl::StrFormat("%s, bar %.2f: %s", what, kBar, ratio >= kBar ? "met" : "MISSED"));
}

// --- memory

constexpr Bytes kMoveBytes = 2 * kMiB;
constexpr std::size_t kMoves = 64;

// The same copies by bare threads, which stand ready when the clock starts, as the copier's do.
class BareThreads {
 public:
  explicit BareThreads(unsigned threads) : begin_(threads + 1), end_(threads + 1) {
    for (unsigned t = 0; t < threads; ++t) threads_.emplace_back([this] { Serve(); });
  }
  ~BareThreads() {
    count_ = 0;
    stop_ = true;
    begin_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }

  Duration Copy(copy::CopyKernel kernel, const std::vector<std::byte*>& from,
                const std::vector<std::byte*>& to) {
    kernel_ = kernel;
    from_ = &from;
    to_ = &to;
    count_ = from.size();
    next_ = 0;
    const SteadyClock clock;
    const TimePoint start = clock.Now();
    begin_.arrive_and_wait();
    end_.arrive_and_wait();
    return clock.Now() - start;
  }

 private:
  void Serve() {
    while (true) {
      begin_.arrive_and_wait();
      if (stop_) return;
      for (std::size_t i = 0; (i = next_++) < count_;) {
        HMM_CHECK(copy::CopyMemoryBy(kernel_, (*to_)[i], (*from_)[i], kMoveBytes));
      }
      end_.arrive_and_wait();
    }
  }

  std::barrier<> begin_;
  std::barrier<> end_;
  copy::CopyKernel kernel_ = copy::CopyKernel::kMemcpy;
  const std::vector<std::byte*>* from_ = nullptr;
  const std::vector<std::byte*>* to_ = nullptr;
  std::size_t count_ = 0;
  bool stop_ = false;
  std::atomic<std::size_t> next_{0};
  std::vector<std::thread> threads_;
};

std::vector<std::byte*> AddressesOf(const tier::Tier& tier,
                                    const std::vector<tier::Extent>& extents) {
  std::vector<std::byte*> addresses;
  for (const tier::Extent& extent : extents) addresses.push_back(tier.Address(extent));
  return addresses;
}

void MemoryRow(benchmark::State& state, bool down) {
  const auto threads = static_cast<unsigned>(state.range(0));
  const auto hbm = MakeMemory("hbm0", TierKind::kHbm, kMoves * kMoveBytes, tier::PageMode::kAuto);
  const auto ddr = MakeMemory("ddr0", TierKind::kDdr, kMoves * kMoveBytes, tier::PageMode::kAuto);
  const std::vector<tier::Extent> in_hbm = Fill(*hbm, kMoveBytes, kMoves);
  const std::vector<tier::Extent> in_ddr = Fill(*ddr, kMoveBytes, kMoves);
  const tier::Tier& from = down ? *hbm : *ddr;
  const tier::Tier& to = down ? *ddr : *hbm;
  const auto& sources = down ? in_hbm : in_ddr;
  const auto& targets = down ? in_ddr : in_hbm;
  MoverRig rig;
  rig.Use(copy::CreateWorkerCopier(rig.executor(), {.threads = threads}), {});
  BareThreads bare_threads(threads);
  const std::vector<std::byte*> bare_from = AddressesOf(from, sources);
  const std::vector<std::byte*> bare_to = AddressesOf(to, targets);

  std::vector<copy::CopyKernel> kernels;
  for (const auto kernel :
       {copy::CopyKernel::kMemcpy, copy::CopyKernel::kNonTemporal, copy::CopyKernel::kRepMovsb}) {
    if (copy::CopyMemoryBy(kernel, bare_to[0], bare_from[0], 1)) {
      kernels.push_back(kernel);
    }
  }
  std::map<copy::CopyKernel, std::vector<double>> bare;
  std::vector<double> moved;
  const auto bytes = static_cast<double>(kMoves * kMoveBytes);
  std::size_t round = 0;
  for (auto _ : state) {
    // Whoever is first has the caches as the last left them: they take turns.
    for (std::size_t i = 0; i <= kernels.size(); ++i) {
      const std::size_t which = (round + i) % (kernels.size() + 1);
      if (which == kernels.size()) {
        const Duration took = rig.Move(from, sources, to, targets);
        state.SetIterationTime(Seconds(took));
        moved.push_back(bytes / Seconds(took));
      } else {
        const copy::CopyKernel kernel = kernels[which];
        bare[kernel].push_back(bytes / Seconds(bare_threads.Copy(kernel, bare_from, bare_to)));
      }
    }
    ++round;
  }
  double best = 0;
  std::string name;
  for (const auto& [kernel, rates] : bare) {
    state.counters[std::string(copy::CopyKernelName(kernel))] = Median(rates) / 1e9;
    if (Median(rates) <= best) continue;
    best = Median(rates);
    name = copy::CopyKernelName(kernel);
  }
  Report(state, absl::StrFormat("%s, best bare: %s", hbm->note(), name), Median(moved), best,
         Median(moved) / best);
}

// --- flash

constexpr Bytes kFlashBytes = 512 * kMiB;

std::string Scratch(const std::string& name) {
  const char* const dir = std::getenv("HMM_BENCH_DIR");
  const std::filesystem::path base =
      dir != nullptr ? dir : std::filesystem::temp_directory_path().string();
  return (base / absl::StrFormat("hmm_bench_%d_%s", getpid(), name)).string();
}

// The tier's file, which fio reads and writes as well: the same blocks. Gone with the row.
struct ScratchFile {
  std::string path = Scratch("tier");
  ~ScratchFile() { unlink(path.c_str()); }
};

// A ring and a loop, and nothing else.
class BareRing {
 public:
  explicit BareRing(unsigned depth) : depth_(depth) {
    open_ = io_uring_queue_init(depth, &ring_,
                                IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN) == 0 ||
            io_uring_queue_init(depth, &ring_, 0) == 0;
    HMM_CHECK(open_);
  }
  ~BareRing() { io_uring_queue_exit(&ring_); }

  Duration Stream(const std::vector<std::byte*>& memory, int fd,
                  const std::vector<tier::Extent>& on_file, bool write) {
    const SteadyClock clock;
    const TimePoint start = clock.Now();
    std::size_t next = 0;
    std::size_t ended = 0;
    while (ended < on_file.size()) {
      for (; next < on_file.size() && next - ended < depth_; ++next) {
        io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
        std::byte* const at = memory[next % memory.size()];
        const auto bytes = static_cast<unsigned>(on_file[next].length);
        if (write) {
          io_uring_prep_write(sqe, fd, at, bytes, on_file[next].offset);
        } else {
          io_uring_prep_read(sqe, fd, at, bytes, on_file[next].offset);
        }
      }
      HMM_CHECK(io_uring_submit_and_wait(&ring_, 1) >= 0);
      for (io_uring_cqe* cqe = nullptr; io_uring_peek_cqe(&ring_, &cqe) == 0; ++ended) {
        HMM_CHECK(cqe->res > 0);
        io_uring_cqe_seen(&ring_, cqe);
      }
    }
    return clock.Now() - start;
  }

 private:
  const unsigned depth_;
  bool open_ = false;
  io_uring ring_{};
};

// The drive rests while fio starts; it may be faster after that (bursts, write-back), so that each
// of the others gets as long a rest.
void Rest() { std::this_thread::sleep_for(std::chrono::milliseconds(400)); }

void FlashRow(benchmark::State& state, bool write) {
  const auto block = static_cast<Bytes>(state.range(0));
  const auto depth = static_cast<unsigned>(state.range(1));
  const ScratchFile file;
  const auto ddr = MakeMemory("ddr0", TierKind::kDdr, RoundUp(2 * depth * block, 2 * kMiB),
                              tier::PageMode::kSmall);
  tier::FileTierOptions options;
  options.tier.name = "flash0";
  options.tier.kind = TierKind::kFlash;
  options.tier.capacity = kFlashBytes;
  options.id = 2;
  options.path = file.path;
  auto flash = tier::CreateFileTier(std::move(options));
  if (!flash.ok()) return state.SkipWithError(std::string(flash.status().message()).c_str());
  MoverRig rig;
  auto ring = copy::CreateUringCopier(rig.executor(),
                                      {.depth = depth, .io_unit = block, .on_result = nullptr});
  if (!ring.ok()) return state.SkipWithError(std::string(ring.status().message()).c_str());
  rig.Use(*std::move(ring), {.running_max = 2 * depth});

  // Every block is written once before: the first write of a block costs more.
  const auto in_ddr = Fill(*ddr, block, 2 * depth);
  const auto on_flash = Fill(**flash, block, kFlashBytes / block);
  std::vector<std::uint64_t> sums;
  rig.Stream(*ddr, in_ddr, **flash, on_flash, true, sums);
  const FioJob job{
      .file = file.path, .write = write, .block = block, .depth = depth, .bytes = kFlashBytes};
  if (const auto tried = RunFio(job); !tried.ok()) {
    return state.SkipWithError(std::string(tried.status().message()).c_str());
  }

  BareRing bare(depth);
  const std::vector<std::byte*> memory = AddressesOf(*ddr, in_ddr);
  const auto bytes = static_cast<double>(kFlashBytes);
  std::vector<double> ours, theirs, ratios, bare_ratios;
  for (auto _ : state) {
    const auto move = [&] {
      Rest();
      const Duration took = rig.Stream(*ddr, in_ddr, **flash, on_flash, write, sums);
      state.SetIterationTime(Seconds(took));
      ours.push_back(bytes / Seconds(took));
    };
    const auto fio = [&] { theirs.push_back(RunFio(job).value_or(0)); };
    const bool first = ours.size() % 2 == 0;
    if (first) move();
    fio();
    Rest();
    const double alone = bytes / Seconds(bare.Stream(memory, (*flash)->fd(), on_flash, write));
    if (!first) move();
    ratios.push_back(ours.back() / theirs.back());
    bare_ratios.push_back(ours.back() / alone);
  }
  state.counters["bare_ratio"] = Median(bare_ratios);
  std::sort(ratios.begin(), ratios.end());
  const std::string what =
      absl::StrFormat("%s, ratios %.2f to %.2f", (*flash)->note(), ratios.front(), ratios.back());
  Report(state, what, Median(ours), Median(theirs), Median(ratios));
}

void MemoryDown(benchmark::State& state) { MemoryRow(state, true); }
void MemoryUp(benchmark::State& state) { MemoryRow(state, false); }
void FlashWrite(benchmark::State& state) { FlashRow(state, true); }
void FlashRead(benchmark::State& state) { FlashRow(state, false); }

void Threads(benchmark::internal::Benchmark* row) {
  row->ArgName("threads")->Arg(1)->Arg(2)->Iterations(25)->UseManualTime();
}
void BlocksAndDepths(benchmark::internal::Benchmark* row) {
  row->ArgNames({"block", "depth"})
      ->Args({2 * kMiB, 8})
      ->Args({64 * kKiB, 32})
      ->Iterations(15)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

BENCHMARK(MemoryDown)->Name("move/memory/hbm_to_ddr")->Apply(Threads);
BENCHMARK(MemoryUp)->Name("move/memory/ddr_to_hbm")->Apply(Threads);
BENCHMARK(FlashWrite)->Name("move/flash/ddr_to_flash")->Apply(BlocksAndDepths);
BENCHMARK(FlashRead)->Name("move/flash/flash_to_ddr")->Apply(BlocksAndDepths);

}  // namespace
}  // namespace hmm::bench

BENCHMARK_MAIN();
