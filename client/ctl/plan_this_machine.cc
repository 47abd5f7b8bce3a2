// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/plan_this_machine.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace hmm::ctl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Bytes kLarge = 16 * kMiB;  // beyond what most caches hold beside each other
constexpr Bytes kSmall = 2 * kMiB;   // a transfer of a usual size
constexpr int kRepeats = 3;
constexpr std::chrono::milliseconds kPatience{100};  // for repeats
constexpr std::chrono::milliseconds kTooLong{1000};  // past it others had the core, not we

// CPU time of this thread: what others take from the core does not count.
double CpuMicros() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// So that the compiler cannot tell that a result is not used.
void Keep(const void* pointer) { asm volatile("" : : "r"(pointer) : "memory"); }

// Independent chains, which the compiler turns into vector instructions where it may.
double FlopsPerUs() {
  constexpr int kLanes = 64, kRounds = 20'000;
  std::array<float, kLanes> a;
  for (int i = 0; i < kLanes; ++i) a[static_cast<std::size_t>(i)] = static_cast<float>(i) * 1e-3F;
  float scale = 0.999F, add = 1e-3F;
  Keep(&scale);
  Keep(&add);
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double start = CpuMicros();
    for (int round = 0; round < kRounds; ++round) {
      for (float& lane : a) lane = lane * scale + add;
    }
    Keep(a.data());
    best = std::max(best, 2.0 * kLanes * kRounds / (CpuMicros() - start));
  }
  return best;
}

// Bytes copied per microsecond, best of a few; 0: the clock stood still.
double CopyRate(char* to, const char* from, Bytes bytes, Bytes span, Clock::time_point end) {
  double best = 0;
  for (Bytes at = 0; at + bytes <= span; at += bytes) {
    const double start = CpuMicros();
    std::memcpy(to + at, from + at, bytes);
    Keep(to);
    const double us = CpuMicros() - start;
    if (us > 0) best = std::max(best, static_cast<double>(bytes) / us);
    if (Clock::now() >= end) break;
  }
  return best;
}

Bytes AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  Bytes kib = 0;
  for (std::string unit; file >> key >> kib; std::getline(file, unit)) {
    if (key == "MemAvailable:") return kib * kKiB;
  }
  return 0;
}

struct Measured {
  double flops = 0;  // the others: bytes of memcpy per microsecond
  double large = 0;
  double small = 0;
  std::string how;
};

absl::StatusOr<Measured> Measure() {
  const Clock::time_point start = Clock::now();
  const Clock::time_point end = start + kPatience;
  const std::unique_ptr<char[]> from(new (std::nothrow) char[kLarge]);
  const std::unique_ptr<char[]> to(new (std::nothrow) char[kLarge]);
  if (from == nullptr || to == nullptr) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kNoMemory,
                 "no 32 MiB to measure this machine with; --machine takes a preset or a file too");
  }
  std::memset(from.get(), 1, kLarge);
  std::memset(to.get(), 2, kLarge);
  Measured out;
  out.flops = FlopsPerUs();
  for (int i = 0; i < kRepeats && (i == 0 || Clock::now() < end); ++i) {
    out.large = std::max(out.large, CopyRate(to.get(), from.get(), kLarge, kLarge, end));
  }
  out.small = CopyRate(to.get(), from.get(), kSmall, kLarge, end);
  if (!(out.flops > 0 && out.large > 0 && out.small > 0) || Clock::now() - start > kTooLong) {
    return Error(
        absl::StatusCode::kUnavailable, Reason::kDeadline,
        "this machine is too busy for an honest measurement; try again; --machine takes a preset "
        "or a file too");
  }
  out.how = absl::StrFormat(
      "measured now in %.0f ms, in CPU time of one core, best of a few: %.1f GFLOP/s in a loop of "
      "float multiply-adds (no matrix library), memcpy %.1f GB/s at 16 MiB and %.1f at 2 MiB",
      std::chrono::duration<double, std::milli>(Clock::now() - start).count(), out.flops / 1e3,
      out.large / 1e3, out.small / 1e3);
  return out;
}

plan::Machine ComputeOf(const Measured& measured) {
  plan::Machine machine;
  machine.name = "this";
  machine.flops_per_us = measured.flops;
  machine.hbm_bytes_per_us = 2 * measured.large;  // a copy reads and writes
  return machine;
}

}  // namespace

absl::StatusOr<plan::Machine> MeasureCompute() {
  HMM_ASSIGN_OR_RETURN(const Measured measured, Measure());
  plan::Machine machine = ComputeOf(measured);
  machine.assumptions =
      absl::StrCat(measured.how,
                   "; HBM is read and written as fast as that memcpy does; a launch "
                   "costs nothing");
  return machine;
}

absl::StatusOr<plan::Machine> MeasureThisMachine() {
  HMM_ASSIGN_OR_RETURN(const Measured measured, Measure());
  plan::Machine machine = ComputeOf(measured);
  machine.ddr_bytes = AvailableMemory();
  const std::vector<plan::BandwidthPoint> curve = {{kSmall, measured.small},
                                                   {kLarge, measured.large}};
  machine.links = {{TierKind::kHbm, TierKind::kDdr, 1, 0, curve, 1, 1},
                   {TierKind::kDdr, TierKind::kHbm, 1, 0, curve, 1, 1}};
  for (plan::Link& link : machine.links) link.duplex_factor = 0.5;
  machine.assumptions = absl::StrCat(
      measured.how,
      "; there is no device: HBM is taken to be host memory and its links that memcpy, half of it "
      "in duplex (assumed); DDR is what is available now; no flash; a launch costs nothing");
  return machine;
}

}  // namespace hmm::ctl
