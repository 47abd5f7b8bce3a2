// SPDX-License-Identifier: Apache-2.0
//
// Validate against plans that were made wrong on purpose: every kind of mistake is found every time
// it is made. Whether a mistake really is one is decided here, from the waits alone, with no code
// of validate's.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "plan/planner.h"
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

constexpr int kApplications = 50 / kOneIn;  // of each kind of mutation

GenCase PlannedCase(GraphGenerator& gen, const GenOptions& options, Plan& plan) {
  while (true) {
    GenCase c = gen.Next(options);
    PlanOptions plan_options;
    plan_options.steps = 3000;
    plan_options.place.steps = 200;  // of layout
    absl::StatusOr<Plan> made = MakePlan(c.graph, c.machine, c.budget, plan_options);
    REQUIRE(made.ok());
    plan = *std::move(made);
    if (plan.verdict == Verdict::kPlanned && !plan.moves.empty()) return c;
  }
}

// Whether task `a` is sure to have ended when `b` starts.
bool Surely(const GenCase& c, const Plan& plan, TaskIndex a, TaskIndex b) {
  std::vector<bool> after(plan.sequence.size(), false);  // b waits for it
  after[b] = true;
  for (TaskIndex t = b + 1; t-- > 0;) {
    if (!after[t]) continue;
    for (TaskIndex w = plan.wait_begin[t]; w < plan.wait_begin[t + 1]; ++w) {
      after[plan.waits[w]] = true;
    }
    const std::uint32_t channel = ChannelOf(c.graph, plan, plan.sequence[t]);
    for (TaskIndex u = t; channel != kNone && u-- > 0;) {
      if (ChannelOf(c.graph, plan, plan.sequence[u]) != channel) continue;
      after[u] = true;
      break;
    }
  }
  return a != b && after[a];
}

Plan WithoutWait(const Plan& plan, std::size_t w) {
  Plan result = plan;
  result.waits.erase(result.waits.begin() + static_cast<std::ptrdiff_t>(w));
  for (TaskIndex& begin : result.wait_begin) begin -= begin > w ? 1U : 0U;
  return result;
}

// Takes the task out of the sequence, and its move out of the plan, waits and figures mended.
void EraseTask(Plan& plan, TaskIndex t) {
  std::vector<TaskIndex> begin = {0}, waits;
  for (TaskIndex s = 0; s < plan.sequence.size(); ++s) {
    if (s == t) continue;
    for (TaskIndex w = plan.wait_begin[s]; w < plan.wait_begin[s + 1]; ++w) {
      if (plan.waits[w] != t) waits.push_back(plan.waits[w] - (plan.waits[w] > t ? 1U : 0U));
    }
    begin.push_back(static_cast<TaskIndex>(waits.size()));
  }
  const std::uint32_t move = plan.sequence[t].index;
  plan.moves.erase(plan.moves.begin() + move);
  plan.sequence.erase(plan.sequence.begin() + t);
  for (Task& task : plan.sequence) task.index -= task.is_move && task.index > move ? 1U : 0U;
  plan.wait_begin = std::move(begin);
  plan.waits = std::move(waits);
  plan.moved_bytes = 0;
  for (const Move& m : plan.moves) {
    const bool copies = m.kind == MoveKind::kSwapIn || m.kind == MoveKind::kSwapOut;
    plan.moved_bytes += copies ? m.bytes : 0;
  }
}

const Move* MoveAt(const Plan& plan, TaskIndex t) {
  return plan.sequence[t].is_move ? &plan.moves[plan.sequence[t].index] : nullptr;
}
const Op* OpAt(const GenCase& c, const Plan& plan, TaskIndex t) {
  return plan.sequence[t].is_move ? nullptr : &c.graph.ops[plan.sequence[t].index];
}
bool IsOut(const Move* m) {
  return m != nullptr && m->kind == MoveKind::kSwapOut && m->from == TierKind::kHbm;
}
bool IsIn(const Move* m) {
  return m != nullptr && m->kind == MoveKind::kSwapIn && m->to == TierKind::kHbm &&
         m->storage != kNone;
}
bool IsDrop(const Move* m) { return m != nullptr && m->kind == MoveKind::kDrop; }
bool IsFetch(const Move* m) { return m != nullptr && m->storage == kNone; }
bool Has(const std::vector<StorageIndex>& list, StorageIndex s) {
  return std::binary_search(list.begin(), list.end(), s);
}

// The first task whose move `which` accepts; kNone: none.
TaskIndex Find(const Plan& plan, bool (*which)(const Move*)) {
  for (TaskIndex t = 0; t < plan.sequence.size(); ++t) {
    if (which(MoveAt(plan, t))) return t;
  }
  return kNone;
}
Move* FindMove(Plan& plan, bool (*which)(const Move*)) {
  const TaskIndex t = Find(plan, which);
  return t == kNone ? nullptr : &plan.moves[plan.sequence[t].index];
}

struct Mutation {
  const char* name;
  // False: this plan offers nothing to mutate so.
  std::function<bool(GenCase&, Plan&)> apply;
  bool addresses = false;  // it is about places; else the plan has none, so that they cannot tell
};

Mutation LeftOut(const char* name, bool (*which)(const Move*)) {
  return {name, [which](GenCase&, Plan& plan) {
            const TaskIndex t = Find(plan, which);
            if (t == kNone) return false;
            EraseTask(plan, t);
            return true;
          }};
}

// Takes away a wait of `t` for `before` that `needed` says must be, unless other waits imply it.
using Needed = std::function<bool(const GenCase&, const Plan&, TaskIndex before, TaskIndex t)>;
Mutation NoWait(const char* name, Needed needed) {
  return {name, [needed](GenCase& c, Plan& plan) {
            for (TaskIndex t = 0; t < plan.sequence.size(); ++t) {
              for (TaskIndex w = plan.wait_begin[t]; w < plan.wait_begin[t + 1]; ++w) {
                const TaskIndex before = plan.waits[w];
                if (!needed(c, plan, before, t)) continue;
                Plan without = WithoutWait(plan, w);
                if (Surely(c, without, before, t)) continue;
                plan = std::move(without);
                return true;
              }
            }
            return false;
          }};
}

bool OpUsesWhatComes(const GenCase& c, const Plan& p, TaskIndex before, TaskIndex t) {
  const Op* op = OpAt(c, p, t);
  const Move* in = MoveAt(p, before);
  return op != nullptr && IsIn(in) && (Has(op->reads, in->storage) || Has(op->writes, in->storage));
}
bool OutCopiesWhatIsWritten(const GenCase& c, const Plan& p, TaskIndex before, TaskIndex t) {
  const Op* op = OpAt(c, p, before);
  const Move* out = MoveAt(p, t);
  return op != nullptr && IsOut(out) && Has(op->writes, out->storage);
}
bool InBringsWhatWasCopied(const GenCase&, const Plan& p, TaskIndex before, TaskIndex t) {
  const Move* in = MoveAt(p, t);
  const Move* out = MoveAt(p, before);
  return IsIn(in) && IsOut(out) && in->storage == out->storage;
}
bool OpReadsWhatOpWrites(const GenCase& c, const Plan& p, TaskIndex before, TaskIndex t) {
  const Op* first = OpAt(c, p, before);
  const Op* then = OpAt(c, p, t);
  if (first == nullptr || then == nullptr) return false;
  return std::any_of(first->writes.begin(), first->writes.end(),
                     [then](StorageIndex s) { return Has(then->reads, s); });
}
bool OpWaitsForItsFetch(const GenCase& c, const Plan& p, TaskIndex before, TaskIndex t) {
  const Op* op = OpAt(c, p, t);
  const Move* fetch = MoveAt(p, before);
  return op != nullptr && IsFetch(fetch) && op->group == fetch->group;
}

std::vector<Mutation> MoveMutations() {
  return {
      LeftOut("a SwapIn is left out", IsIn),
      LeftOut("a SwapOut is left out", IsOut),
      LeftOut("a Drop is left out", IsDrop),
      LeftOut("a fetch is left out", IsFetch),
      {"a move of another size",
       [](GenCase&, Plan& p) {
         p.moves.front().bytes += 1;
         return true;
       }},
      {"a SwapOut goes straight to flash",
       [](GenCase&, Plan& p) {
         Move* out = FindMove(p, IsOut);
         if (out != nullptr) out->to = TierKind::kFlash;
         return out != nullptr;
       }},
      {"a drop of what was never copied",
       [](GenCase&, Plan& p) {
         Move* out = FindMove(p, IsOut);
         if (out == nullptr) return false;
         p.moved_bytes -= out->bytes;
         out->kind = MoveKind::kDrop;
         return true;
       }},
      {"a storage is moved that its owner has pinned",
       [](GenCase& c, Plan& p) {
         const Move* in = FindMove(p, IsIn);
         if (in != nullptr) c.graph.storages[in->storage].pinned = true;
         return in != nullptr;
       }},
      {"a storage is made anew that cannot be",
       [](GenCase& c, Plan& p) {
         for (const Move& move : p.moves) {
           if (move.kind != MoveKind::kRecompute) continue;
           c.graph.storages[move.storage].recomputable = false;
           return true;
         }
         return false;
       }},
  };
}

std::vector<Mutation> OrderMutations() {
  return {
      NoWait("an op does not wait for its SwapIn", OpUsesWhatComes),
      NoWait("a SwapOut does not wait for the write", OutCopiesWhatIsWritten),
      NoWait("a SwapIn does not wait for its SwapOut", InBringsWhatWasCopied),
      NoWait("an op does not wait for what another stream makes", OpReadsWhatOpWrites),
      NoWait("an op does not wait for its fetch", OpWaitsForItsFetch),
      {"a wait points forward",
       [](GenCase&, Plan& p) {
         if (p.waits.empty()) return false;
         p.waits.front() = static_cast<TaskIndex>(p.sequence.size() - 1);
         return true;
       }},
      {"an op is there twice",
       [](GenCase&, Plan& p) {
         p.sequence.back() = p.sequence.front();
         return p.sequence.size() > 1;
       }},
      {"an op changes places with one that it depends on",
       [](GenCase& c, Plan& p) {
         for (TaskIndex t = 1; t < p.sequence.size(); ++t) {
           const Op* op = OpAt(c, p, t);
           const Op* before = OpAt(c, p, t - 1);
           if (op == nullptr || before == nullptr || op->stream != before->stream) continue;
           if (!OpReadsWhatOpWrites(c, p, t - 1, t)) continue;
           std::swap(p.sequence[t], p.sequence[t - 1]);
           return true;
         }
         return false;
       }},
  };
}

std::vector<Mutation> FigureMutations() {
  return {
      {"the budget is less than what one op needs",
       [](GenCase&, Plan& p) {
         p.budget_bytes = p.floor_bytes - 1;
         return true;
       }},
      {"the moved bytes are told wrong",
       [](GenCase&, Plan& p) {
         p.moved_bytes += 1;
         return true;
       }},
      {"the peak is told too low",
       [](GenCase& c, Plan& p) {
         // What really happens when every task takes equally long is no less than this.
         const std::vector<double> us(p.sequence.size(), 1);
         p.peak_bytes = Simulate(c.graph, c.machine, p, us).peak_bytes - 1;
         return true;
       }},
      {"a home is missing",
       [](GenCase&, Plan& p) {
         const Move* in = FindMove(p, IsIn);
         if (in == nullptr) return false;
         const StorageIndex s = in->storage;
         std::erase_if(p.homes, [s](const Home& home) { return home.storage == s; });
         return true;
       }},
      {"DDR has no room for the homes",
       [](GenCase& c, Plan& p) {
         Bytes homes = 0;
         for (const Home& home : p.homes) {
           homes += home.tier == TierKind::kDdr ? c.graph.storages[home.storage].bytes : 0;
         }
         c.machine.ddr_bytes = homes - (homes > 0 ? 1 : 0);
         return homes > 0;
       }},
      {"what a step leaves behind is not what the next expects",
       [](GenCase& c, Plan& p) {
         for (Home& home : p.homes) {
           if (!c.graph.storages[home.storage].persistent) continue;
           home.in_hbm_at_start = !home.in_hbm_at_start;
           home.valid_at_start = true;
           return true;
         }
         return false;
       }},
  };
}

std::vector<Mutation> AddressMutations() {
  const auto make = [](const char* name, std::function<bool(GenCase&, Plan&)> apply) {
    return Mutation{name, std::move(apply), true};
  };
  return {
      make("a place is missing",
           [](GenCase&, Plan& p) {
             p.places.pop_back();
             return !p.places.empty();
           }),
      make("two that are there at the start share an address",
           [](GenCase&, Plan& p) {
             HbmPlace* first = nullptr;
             for (HbmPlace& place : p.places) {
               if (place.begin != kNone) continue;
               if (first != nullptr) {
                 place.offset = first->offset;
                 return true;
               }
               first = &place;
             }
             return false;
           }),
      make("what an op makes lies where it reads",
           [](GenCase& c, Plan& p) {
             for (HbmPlace& made : p.places) {
               if (made.begin == kNone || made.storage == kNone) continue;
               const Op* op = OpAt(c, p, made.begin);
               if (op == nullptr) continue;
               // The latest stay of something read, in the order of the sequence.
               const HbmPlace* read = nullptr;
               for (const HbmPlace& place : p.places) {
                 if (place.storage == kNone || !Has(op->reads, place.storage)) continue;
                 if (place.begin != kNone && place.begin >= made.begin) continue;
                 if (read != nullptr && read->storage != place.storage) continue;
                 if (read == nullptr || read->begin + 1 < place.begin + 1) read = &place;
               }
               if (read == nullptr) continue;
               made.offset = read->offset;
               return true;
             }
             return false;
           }),
      make("an offset is not aligned",
           [](GenCase&, Plan& p) {
             p.alignment_bytes = Bytes{1} << 40;
             return std::any_of(p.places.begin(), p.places.end(),
                                [](const HbmPlace& place) { return place.offset > 0; });
           }),
      make("the high water is told too low",
           [](GenCase&, Plan& p) {
             p.high_water_bytes -= 1;
             return true;
           }),
      make("a place is too small",
           [](GenCase&, Plan& p) {
             p.places.front().bytes -= 1;
             return true;
           }),
      make("a step ends at another offset than it began",
           [](GenCase& c, Plan& p) {
             for (HbmPlace& place : p.places) {
               if (place.begin == kNone || !place.kept || place.storage == kNone) continue;
               if (!c.graph.storages[place.storage].persistent) continue;
               const bool both =
                   std::any_of(p.places.begin(), p.places.end(), [&place](const HbmPlace& other) {
                     return other.begin == kNone && other.storage == place.storage;
                   });
               if (!both) continue;
               // Above everything, so that nothing else is amiss.
               place.offset = p.high_water_bytes;
               p.high_water_bytes += place.bytes;
               return true;
             }
             return false;
           }),
  };
}

void Refuses(const std::vector<Mutation>& mutations) {
  for (const Mutation& mutation : mutations) {
    DYNAMIC_SECTION(mutation.name) {
      GraphGenerator gen(23);
      int applied = 0;
      for (int i = 0; i < 40'000 && applied < kApplications; ++i) {
        Plan plan;
        GenCase c = PlannedCase(gen, {}, plan);
        if (!mutation.addresses) {
          plan.places.clear();
          plan.high_water_bytes = plan.lower_bound_bytes = 0;
        }
        Plan mutated = plan;
        if (!mutation.apply(c, mutated)) continue;
        ++applied;
        if (Validate(c.graph, c.machine, mutated).empty()) FAIL("case " << i << " is accepted");
      }
      CHECK(applied == kApplications);
    }
  }
}

TEST_CASE("plans whose moves are wrong are refused") { Refuses(MoveMutations()); }
TEST_CASE("plans whose order is wrong are refused") { Refuses(OrderMutations()); }
TEST_CASE("plans whose figures are wrong are refused") { Refuses(FigureMutations()); }
TEST_CASE("plans whose addresses are wrong are refused") { Refuses(AddressMutations()); }

TEST_CASE("without any one of its waits a plan is refused, or as safe as before") {
  GraphGenerator gen(29);
  std::mt19937_64 rng(29);
  int refused = 0, accepted = 0;
  for (int i = 0; i < 300 / kOneIn; ++i) {
    Plan plan;
    const GenCase c = PlannedCase(gen, {}, plan);
    for (std::size_t w = 0; w < plan.waits.size(); ++w) {
      const Plan without = WithoutWait(plan, w);
      if (!Validate(c.graph, c.machine, without).empty()) {
        ++refused;
        continue;
      }
      ++accepted;
      std::vector<double> us(plan.sequence.size());
      for (int draw = 0; draw < 30; ++draw) {
        for (double& u : us) u = std::pow(10.0, static_cast<double>(rng() % 7) - 3);
        const Simulation run = Simulate(c.graph, c.machine, without, us);
        if (!run.faults.empty()) FAIL("case " << i << " wait " << w << ": " << run.faults[0]);
        if (run.peak_bytes > c.budget) FAIL("case " << i << " wait " << w << ": over the budget");
      }
    }
  }
  CHECK(refused > 1000 / kOneIn);
  CHECK(accepted > 100 / kOneIn);
}

}  // namespace
}  // namespace hmm::plan
