// SPDX-License-Identifier: Apache-2.0
#include "fuzz/graph_laws.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "fuzz/require.h"
#include "graph/fingerprint.h"
#include "graph/graph_proto.h"
#include "graph/plan_proto.h"
#include "plan/explain.h"
#include "plan/lifetimes.h"
#include "plan/planner.h"
#include "plan/simulate.h"
#include "plan/validate.h"
#include "unit/graph/same.h"

namespace hmm::fuzz {
namespace {

constexpr std::size_t kOpsMax = 40;
constexpr std::size_t kStoragesMax = 80;
constexpr std::size_t kListsMax = 400;  // reads, writes, members and the like together

void HoldPlan(const plan::Graph& graph, const plan::Machine& machine, Bytes budget) {
  plan::PlanOptions options;
  options.steps = 200;
  options.place.steps = 200;
  const absl::StatusOr<plan::Plan> plan = plan::MakePlan(graph, machine, budget, options);
  RequireOk(plan.status(), "a graph that passes CheckGraph can be planned");
  const std::vector<plan::PlanFault> faults = plan::Validate(graph, machine, *plan);
  if (!faults.empty()) {
    Require(false, "a plan of ours is proved: " + std::string(plan::RuleName(faults[0].rule)) +
                       ": " + faults[0].text);
  }
  const auto binary = graph::FormatPlanBinary(*plan, graph::IdentityOf(graph));
  if (binary.ok()) {
    const auto back = graph::ParsePlanBinary(*binary, "own.pb");
    RequireOk(back.status(), "a plan of ours is read back");
    Require(hmm::testing::Same(*plan, back->plan), "a plan comes back the same");
  }
  HoldProvedPlan(graph, machine, *plan, budget);
}

}  // namespace

bool IsSmall(const plan::Graph& graph) {
  if (graph.ops.size() > kOpsMax || graph.storages.size() > kStoragesMax) return false;
  std::size_t lists = 0;
  for (const plan::Op& op : graph.ops) {
    lists += op.reads.size() + op.writes.size() + op.after.size();
  }
  for (const plan::DataDependentGroup& group : graph.groups) lists += 1 + group.members.size();
  return lists <= kListsMax;
}

void HoldGraph(const plan::Graph& graph, bool writable) {
  RequireOk(plan::CheckGraph(graph), "what a reader lets through is sound");
  const auto binary = graph::FormatGraphBinary(graph);
  const auto text = graph::FormatGraphText(graph);
  if (writable) {
    RequireOk(binary.status(), "what was read can be written, binary");
    RequireOk(text.status(), "what was read can be written, text");
  }
  if (binary.ok()) {
    const auto back = graph::ParseGraphBinary(*binary, "own.pb");
    RequireOk(back.status(), "a graph of ours is read back, binary");
    Require(hmm::testing::Same(graph, *back), "a graph comes back the same, binary");
  }
  if (text.ok()) {
    const auto back = graph::ParseGraphText(*text, "own.pbtxt");
    RequireOk(back.status(), "a graph of ours is read back, text");
    Require(hmm::testing::Same(graph, *back), "a graph comes back the same, text");
  }
}

void HoldProvedPlan(const plan::Graph& graph, const plan::Machine& machine, const plan::Plan& plan,
                    std::uint64_t seed) {
  if (plan.verdict == plan::Verdict::kInfeasible) return;
  std::mt19937_64 rng(seed);
  for (int draw = 0; draw < 2; ++draw) {
    std::vector<double> task_us = plan::PredictedUs(graph, machine, plan);
    for (double& us : task_us) {
      // The second draw has nothing to do with what was predicted.
      if (draw > 0) us = static_cast<double>(rng() % 4 == 0 ? 0 : rng() % 1000);
    }
    const plan::Simulation run = plan::Simulate(graph, machine, plan, task_us);
    if (!run.faults.empty()) Require(false, "a proved plan runs: " + run.faults[0]);
    Require(run.peak_bytes <= plan.budget_bytes, "a proved plan keeps to its budget");
  }
  for (plan::StorageIndex s = 0; s < std::min<std::size_t>(graph.storages.size(), 4); ++s) {
    (void)plan::Explain(graph, machine, plan, s);
  }
}

void HoldPlans(const plan::Graph& graph, const plan::Machine& machine) {
  if (!IsSmall(graph)) return;
  plan::Plan totals;
  plan::FillGraphTotals(graph, totals);
  const Bytes floor = totals.floor_bytes, peak = totals.unplanned_peak_bytes;
  Require(floor <= peak, "the floor is at most the peak");
  const Bytes step = (peak - floor) / 3;
  std::vector<Bytes> budgets = {floor, floor + step, floor + 2 * step, peak};
  if (floor > 0) budgets.push_back(floor - 1);
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  for (const Bytes budget : budgets) HoldPlan(graph, machine, budget);
}

void HoldPlans(const plan::Graph& graph) {
  if (!IsSmall(graph)) return;
  const std::vector<std::string_view>& names = plan::MachinePresetNames();
  HoldPlans(graph, *plan::MachinePreset(names[graph::Fingerprint(graph) % names.size()]));
}

}  // namespace hmm::fuzz
