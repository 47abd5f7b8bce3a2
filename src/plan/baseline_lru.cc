// SPDX-License-Identifier: Apache-2.0
//
// One step is walked as a run-time evictor would meet it. For a step that repeats, what lies in HBM
// at its start must be what lies there at its end, so the walk is repeated with the smaller of the
// two until they agree.
#include "plan/baseline_lru.h"

#include <algorithm>
#include <set>

namespace hmm::plan {
namespace {

class Lru {
 public:
  explicit Lru(const Problem& problem) : problem_(problem), lt_(problem.lifetimes) {}

  std::optional<std::vector<GapPlan>> Run() {
    starts_.assign(lt_.lives.size(), false);
    // What is never absent at the start, then what fits beside it.
    Bytes held = 0;
    for (std::uint32_t l = 0; l < lt_.lives.size(); ++l) {
      starts_[l] = lt_.lives[l].at_start && !MayStartBelow(l);
      if (starts_[l]) held += lt_.lives[l].bytes;
    }
    for (std::uint32_t l = 0; l < lt_.lives.size(); ++l) {
      const Life& life = lt_.lives[l];
      if (!life.at_start || starts_[l] || life.access_begin == life.access_end) continue;
      if (held + life.bytes > problem_.budget) continue;
      starts_[l] = true;
      held += life.bytes;
    }
    for (int round = 0;; ++round) {
      if (!Walk()) return std::nullopt;
      if (!Shrink()) return Collect();
      // It narrows down fast; after a few rounds everything that may starts below.
      for (std::uint32_t l = 0; round >= kRoundsMax && l < lt_.lives.size(); ++l) {
        if (MayStartBelow(l)) starts_[l] = false;
      }
    }
  }

 private:
  static constexpr int kRoundsMax = 4;

  bool MayStartBelow(std::uint32_t life) const {
    for (std::uint32_t g = problem_.gap_begin[life]; g < problem_.gap_begin[life + 1]; ++g) {
      const GapKind kind = problem_.gaps[g].kind;
      if (kind == GapKind::kHead || kind == GapKind::kAll || kind == GapKind::kWrap) return true;
    }
    return false;
  }

  // The gap of `life` that spans position p: the first whose absence ends after p or wraps.
  std::uint32_t GapAt(std::uint32_t life, std::uint32_t p) const {
    for (std::uint32_t g = problem_.gap_begin[life]; g < problem_.gap_begin[life + 1]; ++g) {
      const Gap& gap = problem_.gaps[g];
      const bool wraps = gap.kind == GapKind::kWrap;
      if (gap.kind == GapKind::kHead || gap.kind == GapKind::kAll) continue;  // of the start only
      if (gap.from < p && (p < gap.to || wraps)) return g;
    }
    return kNone;
  }

  // False: something does not fit whatever goes.
  bool Walk() {
    resident_ = starts_;
    last_use_.assign(lt_.lives.size(), 0);
    next_.assign(lt_.lives.size(), 0);
    evicted_.assign(problem_.gaps.size(), kNone);
    recent_.clear();
    held_ = 0;
    for (std::uint32_t l = 0; l < lt_.lives.size(); ++l) {
      next_[l] = lt_.lives[l].access_begin;
      if (!resident_[l]) continue;
      held_ += lt_.lives[l].bytes;
      recent_.insert({0, l});
    }
    for (std::uint32_t p = 0; p < lt_.positions; ++p) {
      if (!Step(p)) return false;
    }
    return true;
  }

  bool Step(std::uint32_t p) {
    Bytes needs = lt_.scratch[p];
    for (std::uint32_t u = lt_.use_begin[p]; u < lt_.use_begin[p + 1]; ++u) {
      const std::uint32_t l = lt_.uses[u].life;
      if (!resident_[l]) needs += lt_.lives[l].bytes;
      if (resident_[l]) recent_.erase({last_use_[l], l});  // in use: not to be evicted
    }
    auto victim = recent_.begin();
    while (held_ + needs > problem_.budget) {
      while (victim != recent_.end() && lt_.lives[victim->second].fixed) ++victim;
      if (victim == recent_.end()) return false;
      const std::uint32_t l = victim->second;
      victim = recent_.erase(victim);
      const std::uint32_t g = GapAt(l, p);
      if (g == kNone && !MayStartBelow(l)) return false;
      if (g == kNone) {
        starts_[l] = false;  // not used yet in this step: it need not have been here at the start
      } else {
        evicted_[g] = p;
      }
      resident_[l] = false;
      held_ -= lt_.lives[l].bytes;
    }
    for (std::uint32_t u = lt_.use_begin[p]; u < lt_.use_begin[p + 1]; ++u)
      Touch(lt_.uses[u].life, p);
    return true;
  }

  void Touch(std::uint32_t l, std::uint32_t p) {
    const Life& life = lt_.lives[l];
    if (!resident_[l]) held_ += life.bytes;
    resident_[l] = true;
    last_use_[l] = p + 1;
    if (++next_[l] == life.access_end && !life.at_end) {
      resident_[l] = false;
      held_ -= life.bytes;
    } else {
      recent_.insert({p + 1, l});
    }
  }

  // Where a life starts in HBM but does not end there: it did not start there either.
  bool Shrink() {
    bool changed = false;
    for (std::uint32_t l = 0; l < lt_.lives.size(); ++l) {
      if (!lt_.lives[l].cyclic || !starts_[l] || resident_[l] || !MayStartBelow(l)) continue;
      starts_[l] = false;
      changed = true;
    }
    return changed;
  }

  std::vector<GapPlan> Collect() const {
    std::vector<GapPlan> plans;
    for (std::uint32_t g = 0; g < problem_.gaps.size(); ++g) {
      const Gap& gap = problem_.gaps[g];
      const bool away = lt_.lives[gap.life].at_start && !starts_[gap.life];
      GapPlan plan;
      plan.gap = g;
      plan.on_demand = true;
      plan.leave_before = evicted_[g];
      if (gap.kind == GapKind::kHead || gap.kind == GapKind::kAll) {
        if (!away) continue;
        plan.leave_before = 0;
      } else if (gap.kind == GapKind::kWrap && away) {
        plan.leave_before = std::min(evicted_[g], lt_.positions);  // at the end at the latest
      } else if (evicted_[g] == kNone) {
        continue;
      }
      if (gap.kind != GapKind::kTail && gap.kind != GapKind::kAll) plan.in_before = gap.to;
      plans.push_back(plan);
    }
    MarkCopies(problem_, plans);
    for (GapPlan& plan : plans) plan.out_before = plan.leave_before;
    return plans;
  }

  const Problem& problem_;
  const Lifetimes& lt_;
  std::vector<bool> starts_, resident_;  // by life
  std::vector<std::uint32_t> last_use_;  // by life
  std::vector<std::uint32_t> next_;      // by life: accesses met so far
  std::vector<std::uint32_t> evicted_;   // by gap: position before which, kNone: stays
  std::set<std::pair<std::uint32_t, std::uint32_t>> recent_;  // last use, life
  Bytes held_ = 0;
};

}  // namespace

std::optional<std::vector<GapPlan>> DecideLru(const Problem& problem) { return Lru(problem).Run(); }

}  // namespace hmm::plan
