// SPDX-License-Identifier: Apache-2.0
//
// Time and memory of planning large graphs, layout included, against the bars: 100,000 ops in 2 s;
// 1,000,000 in 30 s and under 4 GiB. A table of all that was measured, then a row for each bar: the
// slowest budget, by CPU time, for a plan uses one core. Release build.
//
//   planner_scale_bench [ops...]
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/bench_row.h"
#include "plan/planner.h"
#include "plan/validate.h"
#include "support/gen_graph.h"

namespace hmm::bench {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
// CPU time: on a machine shared with others the one that tells.
double Cpu() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}
long MaxRssMiB() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

// CPU seconds of the slowest.
double Measure(std::uint32_t ops) {
  plan::Machine machine = *plan::MachinePreset("ascend-supernode");
  machine.ddr_bytes = Bytes{1} << 50;  // the graph is what is large here
  const plan::Graph graph = hmm::testing::LayeredGraph(ops);
  plan::Plan totals;
  plan::FillGraphTotals(graph, totals);
  double slowest = 0;
  for (const Bytes percent : {Bytes{90}, Bytes{75}, Bytes{60}, Bytes{50}}) {
    const Bytes budget = totals.unplanned_peak_bytes / 100 * percent;
    const double wall = Now(), cpu = Cpu();
    const absl::StatusOr<plan::Plan> made = plan::MakePlan(graph, machine, budget);
    const double wall_taken = Now() - wall, cpu_taken = Cpu() - cpu;
    if (!made.ok()) std::abort();
    slowest = std::max(slowest, cpu_taken);
    const double before = Now();
    const bool proved = plan::Validate(graph, machine, *made).empty();
    std::printf(
        "%9zu %3d%% %9s %8.2f %8.2f %9.2f %6s %9zu %9zu %8.4f %8ld\n", graph.ops.size(),
        static_cast<int>(percent), std::string(plan::VerdictName(made->verdict)).c_str(),
        wall_taken, cpu_taken, Now() - before, proved ? "yes" : "NO", made->moves.size(),
        made->places.size(),
        static_cast<double>(made->high_water_bytes) / static_cast<double>(made->lower_bound_bytes),
        MaxRssMiB());
    std::fflush(stdout);
  }
  return slowest;
}

void Run(const std::vector<std::uint32_t>& sizes) {
  std::printf("%9s %4s %9s %8s %8s %9s %6s %9s %9s %8s %8s\n", "ops", "of", "verdict", "wall/s",
              "CPU/s", "proof/s", "proved", "moves", "stays", "high/low", "RSS/MiB");
  std::vector<double> slowest;
  for (const std::uint32_t ops : sizes) slowest.push_back(Measure(ops));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 100'000) {
      Row("planner/100000_ops", slowest[i], 2, "s", slowest[i] / 2, Bar::kAtMost, 1);
    } else if (sizes[i] == 1'000'000) {
      Row("planner/1000000_ops", slowest[i], 30, "s", slowest[i] / 30, Bar::kAtMost, 1);
      const auto peak = static_cast<double>(MaxRssMiB());  // of all sizes: this one's
      Row("planner/1000000_ops_memory", peak, 4096, "MiB", peak / 4096, Bar::kAtMost, 1);
    }
  }
}

}  // namespace
}  // namespace hmm::bench

int main(int argc, char** argv) {
  std::vector<std::uint32_t> sizes;
  for (int i = 1; i < argc; ++i) {
    sizes.push_back(static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)));
  }
  if (sizes.empty()) sizes = {10'000, 100'000, 1'000'000};
  hmm::bench::Run(sizes);
  return 0;
}
