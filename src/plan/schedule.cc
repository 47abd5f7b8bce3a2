// SPDX-License-Identifier: Apache-2.0
#include "plan/schedule.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

#include "plan/cost.h"
#include "plan/max_tree.h"

namespace hmm::plan {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

class InScheduler {
 public:
  InScheduler(const Problem& problem, const std::vector<double>& start_us,
              const ScheduleOptions& options, std::vector<GapPlan>& plans)
      : problem_(problem),
        start_(start_us),
        options_(options),
        plans_(plans),
        n_(problem.lifetimes.positions),
        room_(Held()) {}

  void Run() {
    std::vector<std::uint32_t> ins;
    for (std::uint32_t i = 0; i < plans_.size(); ++i) {
      const GapKind kind = GapOf(i).kind;
      if (kind != GapKind::kTail && kind != GapKind::kAll) ins.push_back(i);
    }
    // Latest deadline first; of one deadline, the largest stands nearest to it.
    std::sort(ins.begin(), ins.end(), [this](std::uint32_t a, std::uint32_t b) {
      return std::tuple(GapOf(b).to, LifeOf(b).bytes, b) <
             std::tuple(GapOf(a).to, LifeOf(a).bytes, a);
    });
    std::vector<bool> in_tail(plans_.size(), false);
    if (options_.tail_prefetch) PlaceTails(ins, in_tail);
    for (const std::uint32_t i : ins) {
      if (!in_tail[i]) PlaceBefore(i, GapOf(i).to, Earliest(i));
    }
  }

 private:
  const Gap& GapOf(std::uint32_t i) const { return problem_.gaps[plans_[i].gap]; }
  const Life& LifeOf(std::uint32_t i) const { return problem_.lifetimes.lives[GapOf(i).life]; }
  double InUs(std::uint32_t i) const {
    const Link* link = FindLink(*problem_.machine, TierKind::kDdr, TierKind::kHbm);
    return TransferUs(*link, LifeOf(i).bytes);
  }
  std::uint32_t Earliest(std::uint32_t i) const {
    return GapOf(i).kind == GapKind::kInner ? plans_[i].leave_before : 0;
  }

  std::vector<std::int64_t> Held() const {
    std::vector<std::int64_t> held(n_ + 1, 0);
    for (const GapPlan& plan : plans_) {
      const Gap& gap = problem_.gaps[plan.gap];
      const auto bytes = static_cast<std::int64_t>(problem_.lifetimes.lives[gap.life].bytes);
      ForAbsent(gap, n_, [&](std::uint32_t first, std::uint32_t last) {
        if (first >= last) return;
        held[first] -= bytes;
        held[last] += bytes;
      });
    }
    std::int64_t sum = 0;
    for (std::uint32_t p = 0; p < n_; ++p) {
      sum += held[p];
      held[p] = sum + static_cast<std::int64_t>(problem_.lifetimes.curve[p]) -
                static_cast<std::int64_t>(problem_.budget);
    }
    held.resize(n_);
    return held;
  }

  // SwapIns that no head can hide: those that packing all before their deadlines pushes before time
  // 0. They stand in the tail where both tail and head have room.
  void PlaceTails(const std::vector<std::uint32_t>& ins, std::vector<bool>& in_tail) {
    double link = kForever;
    std::vector<std::uint32_t> early;
    for (const std::uint32_t i : ins) {
      link = std::min(link, start_[GapOf(i).to]) - InUs(i);
      if (link < 0 && GapOf(i).kind == GapKind::kWrap) early.push_back(i);
    }
    for (const std::uint32_t i : early) {
      const Gap& gap = GapOf(i);
      const auto bytes = static_cast<std::int64_t>(LifeOf(i).bytes);
      if (room_.Max(0, gap.to) + bytes > 0) continue;
      const double begin = std::min(start_[n_], link_free_) - InUs(i);
      const std::uint32_t p = Clip(i, PositionAt(begin, n_), n_, plans_[i].leave_before);
      if (p >= n_ && plans_[i].leave_before < n_) continue;  // no room in the tail
      if (p <= gap.to) continue;                             // would read as a place in the head
      room_.Add(0, gap.to, bytes);
      Commit(i, p, n_, begin);
      in_tail[i] = true;
    }
  }

  void PlaceBefore(std::uint32_t i, std::uint32_t deadline, std::uint32_t earliest) {
    const double begin = std::min(start_[deadline], link_free_) - InUs(i);
    Commit(i, Clip(i, PositionAt(begin, deadline), deadline, earliest), deadline, begin);
  }

  // The last position <= limit that starts no later than `begin`.
  std::uint32_t PositionAt(double begin, std::uint32_t limit) const {
    const auto at = std::upper_bound(start_.begin(), start_.begin() + limit + 1, begin);
    return at == start_.begin() ? 0 : static_cast<std::uint32_t>(at - start_.begin() - 1);
  }
  // The first position from which all up to the deadline have room.
  std::uint32_t Clip(std::uint32_t i, std::uint32_t position, std::uint32_t deadline,
                     std::uint32_t earliest) const {
    position = std::max(position, earliest);
    const auto bytes = static_cast<std::int64_t>(LifeOf(i).bytes);
    const std::size_t full = room_.LastAbove(position, deadline, -bytes);
    if (position >= deadline || full == deadline) return position;
    return static_cast<std::uint32_t>(full) + 1;
  }
  void Commit(std::uint32_t i, std::uint32_t p, std::uint32_t deadline, double begin) {
    plans_[i].in_before = p;
    room_.Add(p, deadline, static_cast<std::int64_t>(LifeOf(i).bytes));
    link_free_ = std::max(begin, std::min(link_free_, start_[p]));
  }

  const Problem& problem_;
  const std::vector<double>& start_;
  const ScheduleOptions& options_;
  std::vector<GapPlan>& plans_;
  const std::uint32_t n_;
  MaxTree room_;  // held - budget, by position
  double link_free_ = kForever;
};

}  // namespace

void ScheduleOuts(const Problem& problem, const std::vector<double>& start_us,
                  std::vector<GapPlan>& plans) {
  struct Out {
    double available;
    std::uint32_t first;  // boundary after the last write
    std::uint32_t from;
    std::uint32_t index;
  };
  const Link* link = FindLink(*problem.machine, TierKind::kHbm, TierKind::kDdr);
  std::vector<Out> outs;
  for (std::uint32_t i = 0; i < plans.size(); ++i) {
    if (!plans[i].copies_out) continue;
    const Gap& gap = problem.gaps[plans[i].gap];
    const std::uint32_t first = gap.last_write == kNone ? 0 : gap.last_write + 1;
    outs.push_back({start_us[first], first, gap.from, i});
  }
  std::sort(outs.begin(), outs.end(), [](const Out& a, const Out& b) {
    return std::tie(a.available, a.first, a.from, a.index) <
           std::tie(b.available, b.first, b.from, b.index);
  });
  const auto later = [](const Out& a, const Out& b) {
    return std::tie(a.from, a.index) > std::tie(b.from, b.index);
  };
  std::priority_queue<Out, std::vector<Out>, decltype(later)> ready(later);
  double now = 0;
  std::size_t next = 0;
  std::uint32_t boundary = 0, rank = 0;
  while (next < outs.size() || !ready.empty()) {
    if (ready.empty()) now = std::max(now, outs[next].available);
    while (next < outs.size() && outs[next].available <= now) ready.push(outs[next++]);
    const Out out = ready.top();
    ready.pop();
    boundary = std::max(boundary, out.first);
    plans[out.index].out_before = boundary;
    plans[out.index].out_rank = rank++;
    // Earliest deadline first keeps boundary <= from + 1; a rounding of times must not break it.
    plans[out.index].leave_before = std::max(plans[out.index].leave_before, boundary);
    const Gap& gap = problem.gaps[plans[out.index].gap];
    now += TransferUs(*link, problem.lifetimes.lives[gap.life].bytes);
  }
}

std::vector<GapPlan> Schedule(const Problem& problem, const std::vector<std::uint32_t>& chosen,
                              const std::vector<double>& start_us, const ScheduleOptions& options) {
  std::vector<GapPlan> plans;
  plans.reserve(chosen.size());
  for (const std::uint32_t g : chosen) {
    GapPlan plan;
    plan.gap = g;
    plan.leave_before = problem.gaps[g].from + 1;
    plans.push_back(plan);
  }
  MarkCopies(problem, plans);
  ScheduleOuts(problem, start_us, plans);
  InScheduler(problem, start_us, options, plans).Run();
  return plans;
}

}  // namespace hmm::plan
