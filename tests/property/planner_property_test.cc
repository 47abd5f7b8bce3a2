// SPDX-License-Identifier: Apache-2.0
//
// The planner against random graphs: every plan is proved by validate, runs safely under any
// durations, does not depend on names or on the order of the input, and is as good as an exhaustive
// search and every baseline where the graph is small enough to tell. Each case is a function of its
// seed, which every failure prints.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "plan/assemble.h"
#include "plan/baselines.h"
#include "plan/cost.h"
#include "plan/planner.h"
#include "plan/schedule.h"
#include "plan/simulate.h"
#include "plan/validate.h"
#include "support/catch.h"
#include "support/gen_graph.h"

namespace hmm::plan {
namespace {

using hmm::testing::GenCase;
using hmm::testing::GenOptions;
using hmm::testing::GraphGenerator;
using hmm::testing::kOneIn;

constexpr std::uint64_t kSteps = 3000;  // of search a plan, where many are made

Plan PlanOf(const GenCase& c, std::uint64_t steps = kSteps) {
  PlanOptions options;
  options.steps = steps;
  options.place.steps = 200;  // of layout
  absl::StatusOr<Plan> plan = MakePlan(c.graph, c.machine, c.budget, options);
  REQUIRE(plan.ok());
  return *std::move(plan);
}

std::string FirstFault(const GenCase& c, const Plan& plan) {
  const std::vector<PlanFault> faults = Validate(c.graph, c.machine, plan);
  if (faults.empty()) return "";
  return std::string(RuleName(faults[0].rule)) + ": " + faults[0].text;
}

// Cases with moves in them.
GenCase PlannedCase(GraphGenerator& gen, const GenOptions& options, Plan& plan) {
  while (true) {
    GenCase c = gen.Next(options);
    plan = PlanOf(c);
    if (plan.verdict == Verdict::kPlanned && !plan.moves.empty()) return c;
  }
}

TEST_CASE("random graphs: every plan is proved safe") {
  std::uint64_t planned = 0, fits = 0, infeasible = 0, streams = 0, groups = 0, flash = 0,
                remade = 0;
  for (std::uint64_t seed = 1; seed <= 20'000 / kOneIn; ++seed) {
    GraphGenerator gen(seed);
    const GenCase c = gen.Next();
    const Plan plan = PlanOf(c);
    const std::string fault = FirstFault(c, plan);
    if (!fault.empty()) FAIL("seed " << seed << ": " << fault);
    if (plan.verdict == Verdict::kInfeasible) {
      ++infeasible;
      // Above the floor only DDR or flash can be short, which only small ones are.
      const bool below = c.budget < plan.floor_bytes;
      if (!below && plan.short_tier == TierKind::kHbm) FAIL("seed " << seed << ": refused");
      if (plan.short_bytes == 0 || plan.short_op >= c.graph.ops.size()) FAIL("seed " << seed);
      continue;
    }
    plan.verdict == Verdict::kFits ? ++fits : ++planned;
    if (plan.peak_bytes > c.budget) FAIL("seed " << seed << ": peak over the budget");
    const bool uses_flash = std::any_of(plan.moves.begin(), plan.moves.end(),
                                        [](const Move& m) { return m.to == TierKind::kFlash; });
    flash += uses_flash ? 1U : 0U;
    groups += plan.offloaded_groups.empty() ? 0U : 1U;
    streams += ChannelCount(c.graph) > kLinkChannels + 1 ? 1U : 0U;
    remade += plan.recompute_us > 0 ? 1U : 0U;
  }
  // The generator does not shy away from what is hard.
  CHECK(planned > 10'000 / kOneIn);
  CHECK(fits > 500 / kOneIn);
  CHECK(infeasible > 100 / kOneIn);
  CHECK(streams > 500 / kOneIn);
  CHECK(groups > 100 / kOneIn);
  CHECK(flash > 30 / kOneIn);
  CHECK(remade > 50 / kOneIn);
}

TEST_CASE("any durations: the peak stays in the budget and nothing is used early") {
  GraphGenerator gen(7);
  std::mt19937_64 rng(7);
  const auto unit = [&rng] { return static_cast<double>(rng() >> 11) * 0x1p-53; };
  for (int i = 0; i < 200 / kOneIn; ++i) {
    Plan plan;
    const GenCase c = PlannedCase(gen, {}, plan);
    std::vector<double> us(plan.sequence.size());
    for (int draw = 0; draw < 1000; ++draw) {
      // Extremes by turns: all alike, moves for ever, ops for ever, anything over six decades.
      for (std::size_t t = 0; t < us.size(); ++t) {
        const bool slow = draw % 4 == 1 ? plan.sequence[t].is_move : !plan.sequence[t].is_move;
        us[t] = draw % 4 == 0   ? unit()
                : draw % 4 == 3 ? std::pow(10.0, 6 * unit() - 3)
                                : (slow ? 1000 : 1) * unit();
      }
      const Simulation run = Simulate(c.graph, c.machine, plan, us);
      if (!run.faults.empty()) FAIL("plan " << i << " draw " << draw << ": " << run.faults[0]);
      if (run.peak_bytes > c.budget) FAIL("plan " << i << " draw " << draw << ": over the budget");
    }
  }
}

TEST_CASE("the simulation agrees with the plan's prediction") {
  GraphGenerator gen(11);
  for (int i = 0; i < 500 / kOneIn; ++i) {
    Plan plan;
    const GenCase c = PlannedCase(gen, {}, plan);
    const Simulation run =
        Simulate(c.graph, c.machine, plan, PredictedUs(c.graph, c.machine, plan));
    CHECK(run.faults.empty());
    CHECK(run.step_us == Approx(plan.step_us));
    CHECK(run.peak_bytes <= plan.peak_bytes);
  }
}

TEST_CASE("names do not matter") {
  GraphGenerator gen(31);
  for (int i = 0; i < 500 / kOneIn; ++i) {
    Plan plan;
    GenCase c = PlannedCase(gen, {}, plan);
    for (std::size_t s = 0; s < c.graph.storages.size(); ++s) {
      c.graph.storages[s].name = "z" + std::to_string(1000 - s);
    }
    for (std::size_t o = 0; o < c.graph.ops.size(); ++o) {
      c.graph.ops[o].name = "y" + std::to_string(1000 - o);
      c.graph.ops[o].type = "Renamed";
    }
    const Plan renamed = PlanOf(c);
    REQUIRE(renamed.sequence.size() == plan.sequence.size());
    CHECK(renamed.waits == plan.waits);
    CHECK(renamed.step_us == plan.step_us);
    CHECK(renamed.peak_bytes == plan.peak_bytes);
    for (std::size_t m = 0; m < plan.moves.size(); ++m) {
      CHECK(renamed.moves[m].storage == plan.moves[m].storage);
      CHECK(renamed.moves[m].kind == plan.moves[m].kind);
    }
  }
}

TEST_CASE("the order in which storages are listed does not matter") {
  GraphGenerator gen(37);
  std::mt19937_64 rng(37);
  for (int i = 0; i < 500 / kOneIn; ++i) {
    Plan plan;
    GenCase c = PlannedCase(gen, {}, plan);
    c.graph = hmm::testing::PermuteStorages(c.graph, rng);
    const Plan other = PlanOf(c);
    INFO("case " << i);
    CHECK(other.verdict == plan.verdict);
    CHECK(other.step_us == Approx(plan.step_us).epsilon(0.01));
    CHECK(static_cast<double>(other.peak_bytes) ==
          Approx(static_cast<double>(plan.peak_bytes)).epsilon(0.01));
  }
}

// The best of every set of gaps with every place of every SwapIn, the ops as given. `limit` bounds
// the combinations; nullopt beyond it.
std::optional<double> ExhaustiveStall(const Problem& problem, std::uint64_t limit) {
  const std::size_t count = problem.gaps.size();
  double best = -1;
  for (std::uint32_t bits = 0; bits < (1U << count); ++bits) {
    std::vector<std::uint32_t> chosen;
    std::uint64_t places = 1;
    for (std::uint32_t g = 0; g < count; ++g) {
      if ((bits >> g & 1U) == 0) continue;
      chosen.push_back(g);
      const Gap& gap = problem.gaps[g];
      if (gap.kind != GapKind::kTail && gap.kind != GapKind::kAll) {
        places *=
            gap.kind == GapKind::kInner
                ? gap.to - gap.from
                : gap.to + 1 +
                      (gap.kind == GapKind::kWrap ? problem.lifetimes.positions - gap.from : 0);
      }
    }
    if (places > limit) return std::nullopt;
    limit -= places;
    std::vector<GapPlan> plans = Schedule(problem, chosen, problem.start_us, {});
    const HomeTiers homes = AssignHomes(problem, plans);
    for (std::uint64_t n = 0; n < places; ++n) {
      std::uint64_t rest = n;
      for (GapPlan& plan : plans) {
        const Gap& gap = problem.gaps[plan.gap];
        if (gap.kind == GapKind::kTail || gap.kind == GapKind::kAll) continue;
        const std::uint32_t first = gap.kind == GapKind::kInner ? gap.from + 1 : 0;
        const std::uint32_t head = gap.to - first + 1;
        const std::uint32_t tail =
            gap.kind == GapKind::kWrap ? problem.lifetimes.positions - gap.from : 0;
        const auto at = static_cast<std::uint32_t>(rest % (head + tail));
        rest /= head + tail;
        plan.in_before = at < head ? first + at : gap.from + 1 + (at - head);
      }
      const Assembled assembled = Assemble(problem, plans, homes);
      if (!assembled.ok) continue;
      if (best < 0 || assembled.plan.stall_us < best) best = assembled.plan.stall_us;
    }
  }
  if (best < 0) return std::nullopt;
  return best;
}

TEST_CASE("small graphs: close to an exhaustive search, never worse than a baseline") {
  GenOptions options;
  options.ops_max = 12;
  options.groups = options.flash = false;
  double ours = 0, optimum = 0, over = 0;
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= 100'000 && compared < 400 / kOneIn; ++seed) {
    GraphGenerator gen(seed * 7919);
    GenCase c = gen.Next(options);
    for (Link& link : c.machine.links) link.duplex_factor = 1;
    const Problem problem = MakeProblem(c.graph, c.machine, c.budget, GivenOrder(c.graph));
    if (problem.gaps.size() > 8) continue;
    const Plan plan = PlanOf(c, 20'000);
    if (plan.verdict != Verdict::kPlanned) continue;
    const std::optional<double> best = ExhaustiveStall(problem, 20'000);
    if (!best.has_value()) continue;
    ++compared;
    ours += plan.stall_us;
    optimum += *best;
    over += std::max(0.0, plan.stall_us - *best) / (plan.compute_us + *best + 1e-9);
    for (const Planner& planner : Planners()) {
      if (planner.name == "hmm") continue;
      const absl::StatusOr<Plan> other = planner.make(c.graph, c.machine, c.budget);
      REQUIRE(other.ok());
      if (other->verdict == Verdict::kInfeasible) continue;
      CHECK(FirstFault(c, *other).empty());
      INFO("seed " << seed << " against " << planner.name);
      CHECK(plan.stall_us <= other->stall_us + 1e-6 * (1 + other->stall_us));
    }
  }
  REQUIRE(compared == 400 / kOneIn);
  INFO("exposed " << ours << " us, optimum " << optimum << " us");
  CHECK(ours <= 1.05 * optimum);
  CHECK(over / compared <= 0.01);
}

TEST_CASE("a large graph is planned and proved") {
  const Graph graph = hmm::testing::LayeredGraph(20'000);
  const Machine machine = *MachinePreset("ascend-supernode");
  Plan totals;
  FillGraphTotals(graph, totals);
  PlanOptions options;
  options.steps = 200'000;
  const Bytes budget = totals.unplanned_peak_bytes / 2;
  const absl::StatusOr<Plan> plan = MakePlan(graph, machine, budget, options);
  REQUIRE(plan.ok());
  CHECK(plan->verdict == Verdict::kPlanned);
  CHECK(Validate(graph, machine, *plan).empty());
  const Simulation run = Simulate(graph, machine, *plan, PredictedUs(graph, machine, *plan));
  CHECK(run.faults.empty());
  CHECK(run.peak_bytes <= budget);
}

TEST_CASE("random graphs: never worse than a baseline") {
  GraphGenerator gen(41);
  for (int i = 0; i < 1000 / kOneIn; ++i) {
    Plan plan;
    const GenCase c = PlannedCase(gen, {}, plan);
    for (const Planner& planner : Planners()) {
      if (planner.name == "hmm") continue;
      const absl::StatusOr<Plan> other = planner.make(c.graph, c.machine, c.budget);
      REQUIRE(other.ok());
      if (other->verdict == Verdict::kInfeasible) continue;
      INFO("case " << i << " against " << planner.name);
      CHECK(FirstFault(c, *other).empty());
      CHECK(plan.stall_us <= other->stall_us + 1e-6 * (1 + other->stall_us));
    }
  }
}

}  // namespace
}  // namespace hmm::plan
