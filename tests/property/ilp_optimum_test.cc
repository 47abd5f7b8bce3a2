// SPDX-License-Identifier: Apache-2.0
//
// The planner beside the exact optimum, which an integer program finds (Debian's CBC): on costed
// training graphs, in the given order, by swapping alone. The table stands in docs/planning.md.
//
//   moved   the least bytes that have to move at all: gaps whose absence relieves every op enough
//   step    the shortest step: when each op and transfer starts, who is absent at which op, in what
//           order each direction of the link runs. Memory is counted at ops only, not while a step
//           waits between two: no plan can be shorter, and there may be none as short
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "graph/costed_graph.h"
#include "plan/lifetimes.h"
#include "plan/planner.h"
#include "support/catch.h"
#include "support/read_file.h"
#include "support/temp_dir.h"

namespace hmm::plan {
namespace {

constexpr double kRound = 1e-6;           // of CBC's own tolerance, relative
constexpr std::size_t kGapsOfSteps = 20;  // with more the shortest step takes too long to prove
constexpr double kMovedGap = 0.001;       // how near to the least bytes CBC is content

struct Subject {
  Graph graph;
  Machine machine;
  Lifetimes lives;
  std::vector<Gap> gaps;
  double compute_us = 0;
  Bytes unit = 0;     // that all sizes are multiples of
  Bytes largest = 0;  // unit of the programs' sizes, so that they stay well scaled
};

// All storages together cross the link in half the compute time.
Subject SubjectOf(const std::string& name) {
  const std::string file = std::string(HMM_TEST_DATA) + "/graphs/costed/" + name + "_a72.json";
  Subject subject;
  subject.graph = graph::ReadCostedGraph(file).value();
  Bytes total = 0;
  for (const Storage& storage : subject.graph.storages) {
    total += storage.bytes;
    subject.unit = std::gcd(subject.unit, storage.bytes);
    subject.largest = std::max(subject.largest, storage.bytes);
  }
  for (const Op& op : subject.graph.ops) subject.compute_us += op.microseconds;
  Machine& machine = subject.machine;
  machine.name = "half";
  machine.hbm_bytes_per_us = 1e9;
  machine.ddr_bytes = 2 * total;
  const double rate = 2 * static_cast<double>(total) / subject.compute_us;
  machine.links = {{TierKind::kHbm, TierKind::kDdr, 1, 0, {{1, rate}}, 1, 0},
                   {TierKind::kDdr, TierKind::kHbm, 1, 0, {{1, rate}}, 1, 1}};
  subject.lives = ComputeLifetimes(subject.graph, GivenOrder(subject.graph));
  for (const Gap& gap : FindGaps(subject.lives)) {
    REQUIRE(gap.kind == GapKind::kInner);  // activations alone
    subject.gaps.push_back(gap);
  }
  return subject;
}

std::string Of(const char* letter, std::size_t i) { return letter + std::to_string(i); }
std::string Of(const char* letter, std::size_t i, std::size_t k) {
  return letter + std::to_string(i) + "_" + std::to_string(k);
}

class Program {
 public:
  Program() { lines_.precision(15); }
  std::ostringstream& rows() { return lines_; }
  void Row(const std::string& text) { lines_ << " c" << ++rows_ << ": " << text << "\n"; }
  void Binary(const std::string& name) { binaries_ += " " + name + "\n"; }

  struct Solution {
    bool optimal = false;
    double objective = 0;
  };
  Solution Solve(const std::string& objective, double gap, int seconds) const {
    const hmm::testing::TempDir dir;
    std::ofstream(dir.File("p.lp")) << "Minimize\n obj: " << objective << "\nSubject To\n"
                                    << lines_.str() << "Binaries\n"
                                    << binaries_ << "End\n";
    const std::string command = "cbc " + dir.File("p.lp") + " ratio " + std::to_string(gap) +
                                " sec " + std::to_string(seconds) + " solve solu " + dir.File("s") +
                                " >" + dir.File("log") + " 2>&1";
    INFO("cbc, of Debian's coinor-cbc, has to be installed");
    REQUIRE(std::system(command.c_str()) == 0);
    std::ifstream in(dir.File("s"));
    std::string first;
    std::getline(in, first);
    const std::string word = "objective value ";
    const std::size_t at = first.find(word);
    INFO(first);
    REQUIRE(at != std::string::npos);
    return {first.rfind("Optimal", 0) == 0, std::stod(first.substr(at + word.size()))};
  }

 private:
  std::ostringstream lines_;
  std::string binaries_;
  std::size_t rows_ = 0;
};

double Share(const Subject& subject, Bytes bytes) {
  return static_cast<double>(bytes) / static_cast<double>(subject.largest);
}

// Bytes that have to be absent at a position; whole multiples of what all sizes are multiples of.
double Excess(const Subject& subject, std::size_t position, Bytes budget) {
  const Bytes curve = subject.lives.curve[position];
  if (curve <= budget) return 0;
  const Bytes unit = subject.unit;
  return Share(subject, (curve - budget + unit - 1) / unit * unit);
}

std::string Number(double value) {
  std::ostringstream out;
  out.precision(15);
  out << value;
  return out.str();
}

// Of two storages of one size that have one gap each, one of which lies within the other, the wider
// is as good: without this the program tries them all.
void PreferWider(const Subject& subject, Program& program) {
  std::map<std::uint32_t, std::size_t> gaps_of;
  for (const Gap& gap : subject.gaps) ++gaps_of[gap.life];
  std::map<Bytes, std::vector<std::size_t>> alike;
  for (std::size_t g = 0; g < subject.gaps.size(); ++g) {
    const std::uint32_t life = subject.gaps[g].life;
    if (gaps_of[life] == 1) alike[subject.lives.lives[life].bytes].push_back(g);
  }
  for (auto& [bytes, gaps] : alike) {
    const auto at = [&](std::size_t g) -> const Gap& { return subject.gaps[g]; };
    std::stable_sort(gaps.begin(), gaps.end(), [&](std::size_t a, std::size_t b) {
      return at(a).from != at(b).from ? at(a).from < at(b).from : at(a).to > at(b).to;
    });
    for (std::size_t i = 0; i < gaps.size(); ++i) {
      const auto within =
          std::find_if(gaps.begin() + static_cast<std::ptrdiff_t>(i) + 1, gaps.end(),
                       [&](std::size_t g) { return at(g).to <= at(gaps[i]).to; });
      if (within == gaps.end()) continue;
      program.Row(Of("x", *within) + " - " + Of("x", gaps[i]) + " <= 0");
    }
  }
}

// The least bytes moved; a storage is copied out once, whatever gaps it leaves in.
Bytes LeastMoved(const Subject& subject, Bytes budget) {
  Program program;
  std::string objective;
  std::map<std::uint32_t, Bytes> out;
  for (std::size_t g = 0; g < subject.gaps.size(); ++g) {
    const Life& life = subject.lives.lives[subject.gaps[g].life];
    out[subject.gaps[g].life] = life.bytes;
    objective += " + " + Number(Share(subject, life.bytes)) + " " + Of("x", g);
    program.Binary(Of("x", g));
    program.Row(Of("x", g) + " - " + Of("y", subject.gaps[g].life) + " <= 0");
  }
  for (const auto& [life, bytes] : out) {
    objective += " + " + Number(Share(subject, bytes)) + " " + Of("y", life);
    program.Binary(Of("y", life));
  }
  std::map<std::string, double> needed;  // of the gaps that relieve it
  for (std::uint32_t p = 0; p < subject.lives.positions; ++p) {
    const double excess = Excess(subject, p, budget);
    if (excess == 0) continue;
    std::string row;
    for (std::size_t g = 0; g < subject.gaps.size(); ++g) {
      if (p <= subject.gaps[g].from || p >= subject.gaps[g].to) continue;
      const Bytes bytes = subject.lives.lives[subject.gaps[g].life].bytes;
      row += " + " + Number(Share(subject, bytes)) + " " + Of("x", g);
    }
    double& most = needed[row];
    most = std::max(most, excess);
  }
  for (const auto& [row, excess] : needed) program.Row(row + " >= " + Number(excess));
  PreferWider(subject, program);
  const Program::Solution solution = program.Solve(objective, kMovedGap, 60);
  REQUIRE(solution.optimal);
  return static_cast<Bytes>(solution.objective * static_cast<double>(subject.largest) + 0.5);
}

// One direction of the link runs one transfer after another.
void OneAfterAnother(Program& program, const char* start, const char* used, const char* before,
                     const std::vector<std::pair<std::size_t, double>>& transfers, double horizon) {
  const std::string m = Number(horizon);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    for (std::size_t k = i + 1; k < transfers.size(); ++k) {
      const auto& [a, a_us] = transfers[i];
      const auto& [b, b_us] = transfers[k];
      const std::string z = Of(before, a, b);
      program.Binary(z);
      // start_a + a <= start_b where z; the other way round where not; idle ones do not count.
      program.Row(Of(start, b) + " - " + Of(start, a) + " - " + m + " " + z + " - " + m + " " +
                  Of(used, a) + " - " + m + " " + Of(used, b) +
                  " >= " + Number(a_us - 3 * horizon));
      program.Row(Of(start, a) + " - " + Of(start, b) + " + " + m + " " + z + " - " + m + " " +
                  Of(used, a) + " - " + m + " " + Of(used, b) +
                  " >= " + Number(b_us - 2 * horizon));
    }
  }
}

// The shortest step, in microseconds; < 0: not proved in time. Times are in shares of the compute.
double ShortestStep(const Subject& subject, Bytes budget, int seconds) {
  const auto n = static_cast<std::size_t>(subject.lives.positions);
  const auto us = [&](const Link& link, Bytes bytes) {
    return TransferUs(link, bytes) / subject.compute_us;
  };
  Program program;
  std::vector<double> duration(n);
  for (std::size_t i = 0; i < n; ++i) {
    duration[i] = subject.graph.ops[i].microseconds / subject.compute_us;
    if (i > 0) {
      program.Row(Of("s", i) + " - " + Of("s", i - 1) + " >= " + Number(duration[i - 1]));
    }
  }
  std::vector<std::pair<std::size_t, double>> outs, ins;
  std::map<std::size_t, double> out_us;
  double horizon = 1;
  for (std::size_t g = 0; g < subject.gaps.size(); ++g) {
    const Gap& gap = subject.gaps[g];
    const Bytes bytes = subject.lives.lives[gap.life].bytes;
    if (out_us.emplace(gap.life, us(subject.machine.links[0], bytes)).second) {
      outs.emplace_back(gap.life, out_us[gap.life]);
      horizon += out_us[gap.life];
      program.Binary(Of("y", gap.life));
    }
    ins.emplace_back(g, us(subject.machine.links[1], bytes));
    horizon += ins.back().second;
  }
  const std::string m = Number(horizon);
  for (const auto& [life, time] : outs) {
    // From its last write on; every gap of it comes later.
    std::uint32_t write = 0;
    for (const Gap& gap : subject.gaps) {
      if (gap.life == life && gap.last_write != kNone) write = gap.last_write;
    }
    program.Row(Of("o", life) + " - " + Of("s", write) + " >= " + Number(duration[write]));
    program.Row("T - " + Of("o", life) + " - " + m + " " + Of("y", life) +
                " >= " + Number(time - horizon));
  }
  for (std::size_t g = 0; g < subject.gaps.size(); ++g) {
    const Gap& gap = subject.gaps[g];
    program.Binary(Of("x", g));
    program.Row(Of("x", g) + " - " + Of("y", gap.life) + " <= 0");
    program.Row(Of("s", gap.to) + " - " + Of("i", g) + " - " + m + " " + Of("x", g) +
                " >= " + Number(ins[g].second - horizon));
    for (std::uint32_t p = gap.from + 1; p < gap.to; ++p) {
      const std::string r = Of("r", g, p);
      program.Binary(r);
      program.Row(r + " - " + Of("x", g) + " <= 0");
      program.Row(Of("s", p) + " - " + Of("o", gap.life) + " - " + m + " " + r +
                  " >= " + Number(out_us[gap.life] - horizon));
      program.Row(Of("i", g) + " - " + Of("s", p) + " - " + m + " " + r +
                  " >= " + Number(duration[p] - horizon));
    }
  }
  for (std::uint32_t p = 0; p < n; ++p) {
    const double excess = Excess(subject, p, budget);
    if (excess == 0) continue;
    std::string row;
    for (std::size_t g = 0; g < subject.gaps.size(); ++g) {
      if (p <= subject.gaps[g].from || p >= subject.gaps[g].to) continue;
      row += " + " + Number(Share(subject, subject.lives.lives[subject.gaps[g].life].bytes)) + " " +
             Of("r", g, p);
    }
    program.Row(row + " >= " + Number(excess));
  }
  OneAfterAnother(program, "o", "y", "a", outs, horizon);
  OneAfterAnother(program, "i", "x", "b", ins, horizon);
  program.Row("T - " + Of("s", n - 1) + " >= " + Number(duration[n - 1]));
  const Program::Solution solution = program.Solve("T", 0, seconds);
  return solution.optimal ? solution.objective * subject.compute_us : -1;
}

Plan Ours(const Subject& subject, Bytes budget, bool whole) {
  PlanOptions options;
  options.reorder = options.recompute = whole;
  options.layout = false;
  absl::StatusOr<Plan> plan = MakePlan(subject.graph, subject.machine, budget, options);
  REQUIRE(plan.ok());
  REQUIRE(plan->verdict == Verdict::kPlanned);
  return *std::move(plan);
}

std::string Percent(double part, double whole) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f%%", 100 * part / whole);
  return text;
}

// A row of the table, with what has to hold of it.
std::string Row(const std::string& name, const Subject& subject, const Plan& totals,
                unsigned percent) {
  const Bytes budget = totals.unplanned_peak_bytes * percent / 100;
  const Plan ours = Ours(subject, budget, false);
  const Plan all = Ours(subject, budget, true);
  INFO(name << " at " << percent << "%");
  const auto moved = static_cast<double>(LeastMoved(subject, budget));
  const auto ours_moved = static_cast<double>(ours.moved_bytes);
  CHECK(ours_moved >= (1 - kMovedGap) * moved);
  std::string least = "-";
  if (subject.gaps.size() <= kGapsOfSteps) {
    const double shortest = ShortestStep(subject, budget, 120);
    REQUIRE(shortest > 0);
    CHECK(ours.step_us >= shortest * (1 - kRound));  // else one of the two is wrong
    CHECK(ours.step_us <= shortest * HMM_ILP_STEP_FACTOR);
    least = Percent(std::max(0.0, shortest - subject.compute_us), subject.compute_us);
  }
  if (ours.stall_us <= kRound * subject.compute_us) {
    CHECK(ours_moved <= HMM_ILP_MOVED_FACTOR * moved);
  }
  const auto peak = static_cast<double>(totals.unplanned_peak_bytes);
  return "| " + name + " | " + std::to_string(percent) + "% | " + least + " | " +
         Percent(ours.stall_us, subject.compute_us) + " | " + Percent(moved, peak) + " | " +
         Percent(ours_moved, peak) + " | " + Percent(all.stall_us, subject.compute_us) + ", " +
         Percent(static_cast<double>(all.moved_bytes), peak) + " |\n";
}

}  // namespace

TEST_CASE("costed graphs: the step and the bytes moved beside the exact optimum") {
  std::string table =
      "| graph | budget | exposed, least | exposed | moved, least | moved | with all means |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const char* name : {"linear", "transformer", "resnet18", "bert"}) {
    const Subject subject = SubjectOf(name);
    Plan totals;
    FillGraphTotals(subject.graph, totals);
    for (const unsigned percent : {90U, 75U, 60U}) {
      if (totals.unplanned_peak_bytes * percent / 100 < totals.floor_bytes) continue;
      table += Row(name, subject, totals, percent);
      std::fputs(table.substr(table.rfind('\n', table.size() - 2) + 1).c_str(), stdout);
      std::fflush(stdout);
    }
  }
  INFO("docs/planning.md has to hold this table:\n" << table);
  CHECK(hmm::testing::ReadFile(HMM_PLANNING_DOC).find(table) != std::string::npos);
}

}  // namespace hmm::plan
