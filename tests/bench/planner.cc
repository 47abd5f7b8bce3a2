// SPDX-License-Identifier: Apache-2.0
//
// Ours against the best baseline: exposed time and moved bytes of every graph at 90, 75, 60 and 50%
// of its unplanned peak; then the layout's high water against its bound, and the smallest budget
// that keeps exposed time at 1%. Fails if a plan is not proved, a baseline is better, or a real
// graph that is all resident has holes.
//
//   planner_bench [machine preset] [--table: without the smallest budgets]
#include "plan/planner.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "bench/planner_graphs.h"
#include "plan/baselines.h"
#include "plan/sweep.h"
#include "plan/validate.h"

namespace hmm::bench {
namespace {

using plan::Graph;
using plan::Machine;
using plan::Plan;
using plan::Verdict;

struct Best {
  std::string planner = "none fits";
  double stall_us = -1;
  Bytes moved_bytes = 0;
};

Best BestBaseline(const Graph& graph, const Machine& machine, Bytes budget) {
  Best best;
  for (const plan::Planner& planner : plan::Planners()) {
    if (planner.name == "hmm") continue;
    const absl::StatusOr<Plan> made = planner.make(graph, machine, budget);
    if (!made.ok() || made->verdict == Verdict::kInfeasible) continue;
    if (!plan::Validate(graph, machine, *made).empty()) continue;
    if (best.stall_us >= 0 && best.stall_us <= made->stall_us) continue;
    best = {std::string(planner.name), made->stall_us, made->moved_bytes};
  }
  return best;
}

double MiB(Bytes bytes) { return static_cast<double>(bytes) / static_cast<double>(kMiB); }

// False: not proved, or a baseline is better.
bool Row(const BenchGraph& bench, const Machine& machine, Bytes peak, Bytes percent) {
  const Bytes budget = peak / 100 * percent;
  const absl::StatusOr<Plan> made = plan::MakePlan(bench.graph, machine, budget);
  if (!made.ok()) {
    std::printf("%-26s %s\n", bench.name.c_str(), std::string(made.status().message()).c_str());
    return false;
  }
  const Plan& ours = *made;
  const Best best = BestBaseline(bench.graph, machine, budget);
  const bool proved = plan::Validate(bench.graph, machine, ours).empty();
  if (ours.verdict == Verdict::kInfeasible) {
    std::printf("%-26s %3d%% %10.1f  infeasible: %.1f MiB short at op %u; best baseline: %s\n",
                bench.name.c_str(), static_cast<int>(percent), MiB(budget), MiB(ours.short_bytes),
                ours.short_op, best.planner.c_str());
    return proved && best.stall_us < 0;
  }
  const bool behind = best.stall_us >= 0 && ours.stall_us > best.stall_us * (1 + 1e-6) + 1e-6;
  const double share = ours.compute_us > 0 ? 100 * ours.stall_us / ours.compute_us : 0;
  const double high = static_cast<double>(ours.high_water_bytes) /
                      static_cast<double>(std::max<Bytes>(1, ours.lower_bound_bytes));
  std::printf("%-26s %3d%% %10.1f %12.1f %7.2f%% %10.1f %12.1f %10.1f %-14s %8.4f %s%s\n",
              bench.name.c_str(), static_cast<int>(percent), MiB(budget), ours.stall_us, share,
              MiB(ours.moved_bytes), best.stall_us, MiB(best.moved_bytes), best.planner.c_str(),
              high, behind ? "BEHIND" : "", proved ? "" : "NOT PROVED");
  std::fflush(stdout);
  return proved && !behind;
}

// All of a step in HBM: addresses that leave no hole. False where a real graph needs more.
bool Resident(const BenchGraph& bench, const Machine& machine, Bytes peak) {
  const absl::StatusOr<Plan> whole = plan::MakePlan(bench.graph, machine, peak);
  if (!whole.ok() || whole->verdict != Verdict::kFits) return false;
  const bool tight = whole->high_water_bytes == whole->lower_bound_bytes;
  std::printf("%-26s 100%% %10.1f  all resident; high water %s\n", bench.name.c_str(), MiB(peak),
              tight ? "= lower bound" : "above the lower bound");
  return tight || !bench.real;
}

int Run(const Machine& machine, bool budgets) {
  std::printf("%s: %s\n\n", machine.name.c_str(), machine.assumptions.c_str());
  std::printf("%-26s %4s %10s %12s %8s %10s %12s %10s %-14s %8s\n", "graph", "of", "budget/MiB",
              "exposed/us", "of step", "moved/MiB", "baseline/us", "moved/MiB", "best baseline",
              "high/low");
  bool good = true;
  const std::vector<BenchGraph> graphs = BenchGraphs(machine);
  for (const BenchGraph& bench : graphs) {
    Plan totals;
    plan::FillGraphTotals(bench.graph, totals);
    good = Resident(bench, machine, totals.unplanned_peak_bytes) && good;
    for (const Bytes percent : {Bytes{90}, Bytes{75}, Bytes{60}, Bytes{50}}) {
      good = Row(bench, machine, totals.unplanned_peak_bytes, percent) && good;
    }
  }
  if (!budgets) return good ? 0 : 1;
  std::printf("\n%-26s %12s %12s %8s %8s\n", "smallest budget, <= 1%", "peak/MiB", "budget/MiB",
              "of peak", "exposed");
  for (const BenchGraph& bench : graphs) {
    Plan totals;
    plan::FillGraphTotals(bench.graph, totals);
    const absl::StatusOr<plan::SweepPoint> least =
        plan::SmallestBudget(bench.graph, machine, 0.01, 8);
    if (!least.ok()) return 1;
    std::printf(
        "%-26s %12.1f %12.1f %7.1f%% %7.2f%%\n", bench.name.c_str(),
        MiB(totals.unplanned_peak_bytes), MiB(least->budget),
        100 * static_cast<double>(least->budget) / static_cast<double>(totals.unplanned_peak_bytes),
        100 * least->stall_share);
    std::fflush(stdout);
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace hmm::bench

int main(int argc, char** argv) {
  std::string name = "ascend-supernode";
  bool budgets = true;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--table") {
      budgets = false;
    } else {
      name = argv[i];
    }
  }
  const std::optional<hmm::plan::Machine> machine = hmm::plan::MachinePreset(name);
  if (!machine.has_value()) {
    std::fprintf(stderr, "%s: no such preset\n", name.c_str());
    return 2;
  }
  return hmm::bench::Run(*machine, budgets);
}
