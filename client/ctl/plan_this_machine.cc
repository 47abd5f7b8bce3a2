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

}  // namespace

absl::StatusOr<plan::Machine> MeasureThisMachine() {
  const Clock::time_point start = Clock::now();
  const Clock::time_point end = start + kPatience;
  const std::unique_ptr<char[]> from(new (std::nothrow) char[kLarge]);
  const std::unique_ptr<char[]> to(new (std::nothrow) char[kLarge]);
  if (from == nullptr || to == nullptr) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kNoMemory,
                 "--machine this: no 32 MiB to measure with; name a preset or a file");
  }
  std::memset(from.get(), 1, kLarge);
  std::memset(to.get(), 2, kLarge);
  const double flops = FlopsPerUs();
  double large = 0;
  for (int i = 0; i < kRepeats && (i == 0 || Clock::now() < end); ++i) {
    large = std::max(large, CopyRate(to.get(), from.get(), kLarge, kLarge, end));
  }
  const double small = CopyRate(to.get(), from.get(), kSmall, kLarge, end);
  if (!(flops > 0 && large > 0 && small > 0) || Clock::now() - start > kTooLong) {
    return Error(
        absl::StatusCode::kUnavailable, Reason::kDeadline,
        "--machine this: this machine is too busy for an honest measurement; try again, or "
        "name a preset or a file");
  }
  plan::Machine machine;
  machine.name = "this";
  machine.flops_per_us = flops;
  machine.hbm_bytes_per_us = 2 * large;  // a copy reads and writes
  machine.ddr_bytes = AvailableMemory();
  machine.links = {
      {TierKind::kHbm, TierKind::kDdr, 1, 0, {{kSmall, small}, {kLarge, large}}, 1, 1},
      {TierKind::kDdr, TierKind::kHbm, 1, 0, {{kSmall, small}, {kLarge, large}}, 1, 1}};
  for (plan::Link& link : machine.links) link.duplex_factor = 0.5;
  machine.assumptions = absl::StrFormat(
      "measured now in %.0f ms, in CPU time of one core, best of a few: %.1f GFLOP/s in a loop of "
      "float "
      "multiply-adds (no matrix library), memcpy %.1f GB/s at 16 MiB and %.1f at 2 MiB; there is "
      "no "
      "device: HBM is taken to be host memory and its links that memcpy, half of it in duplex "
      "(assumed); DDR is what is available now; no flash; a launch costs nothing",
      std::chrono::duration<double, std::milli>(Clock::now() - start).count(), flops / 1e3,
      large / 1e3, small / 1e3);
  return machine;
}

}  // namespace hmm::ctl
