// SPDX-License-Identifier: Apache-2.0
#include "plan/choose.h"

#include <algorithm>
#include <numeric>

#include "plan/max_tree.h"

namespace hmm::plan {
namespace {

// Smaller is chosen earlier.
double Key(const GapFactors& f, ChooseRule rule) {
  const double link = f.out_us + f.in_us;
  switch (rule) {
    case ChooseRule::kHide:
      return EvictionCost(f) / f.relief;
    case ChooseRule::kLink:
      return link / f.relief;
    case ChooseRule::kSlack:
      return link - f.slack_us;
    case ChooseRule::kRelief:
      return -f.relief;
    case ChooseRule::kLong:
      return -f.slack_us;
  }
  return 0;
}

std::int64_t MaxAbsent(const MaxTree& tree, const Gap& gap, std::uint32_t n) {
  std::int64_t result = MaxTree::kLowest;
  ForAbsent(gap, n, [&](std::uint32_t first, std::uint32_t last) {
    result = std::max(result, tree.Max(first, last));
  });
  return result;
}

void AddAbsent(MaxTree& tree, const Gap& gap, std::uint32_t n, std::int64_t bytes) {
  ForAbsent(gap, n, [&](std::uint32_t first, std::uint32_t last) { tree.Add(first, last, bytes); });
}

}  // namespace

std::vector<Bytes> ChooseTarget(const Problem& problem, Bytes margin) {
  const Lifetimes& lt = problem.lifetimes;
  const Bytes wish = problem.budget > margin ? problem.budget - margin : 0;
  std::vector<Bytes> target(lt.positions);
  for (std::uint32_t p = 0; p < lt.positions; ++p) {
    target[p] = std::min(problem.budget, std::max(wish, lt.own[p]));
  }
  return target;
}

std::vector<std::uint32_t> Choose(const Problem& problem, const std::vector<GapFactors>& factors,
                                  const ChooseOptions& options) {
  const std::uint32_t n = problem.lifetimes.positions;
  const std::vector<Bytes> target = ChooseTarget(problem, options.margin);
  std::vector<std::int64_t> over(n);
  for (std::uint32_t p = 0; p < n; ++p) {
    over[p] = static_cast<std::int64_t>(problem.lifetimes.curve[p]) -
              static_cast<std::int64_t>(target[p]);
  }
  MaxTree tree(over);
  struct Candidate {
    bool banned;
    double key;
    std::uint32_t gap;
  };
  std::vector<Candidate> by;
  for (std::uint32_t g = 0; g < problem.gaps.size(); ++g) {
    if (factors[g].relief <= 0) continue;
    const bool banned = options.banned != nullptr && (*options.banned)[g];
    by.push_back({banned, Key(factors[g], options.rule), g});
  }
  std::sort(by.begin(), by.end(), [](const Candidate& a, const Candidate& b) {
    if (a.banned != b.banned) return b.banned;
    if (a.key != b.key) return a.key < b.key;
    return a.gap < b.gap;
  });
  const auto bytes = [&](std::uint32_t g) {
    return static_cast<std::int64_t>(problem.lifetimes.lives[problem.gaps[g].life].bytes);
  };
  std::vector<std::uint32_t> picked;
  for (const Candidate& candidate : by) {
    if (tree.Max() <= 0) break;
    const Gap& gap = problem.gaps[candidate.gap];
    if (MaxAbsent(tree, gap, n) <= 0) continue;
    AddAbsent(tree, gap, n, -bytes(candidate.gap));
    picked.push_back(candidate.gap);
  }
  std::vector<std::uint32_t> chosen;
  for (auto it = picked.rbegin(); it != picked.rend(); ++it) {
    const Gap& gap = problem.gaps[*it];
    if (MaxAbsent(tree, gap, n) + bytes(*it) <= 0) {
      AddAbsent(tree, gap, n, bytes(*it));
    } else {
      chosen.push_back(*it);
    }
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace hmm::plan
