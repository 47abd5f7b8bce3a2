// SPDX-License-Identifier: Apache-2.0
//
// The layout solver against brute force: of a few intervals, every order, each put to the lowest
// place free. Some order gives the least high water there is: that of the offsets of a best
// arrangement whose intervals have sunk as far as they go.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "plan/layout.h"
#include "plan/layout_validate.h"
#include "support/catch.h"

namespace hmm::plan {
namespace {

constexpr LayoutOptions kOptions{.steps_max = 2'000'000};

using Random = std::mt19937_64;

std::int64_t Pick(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

LayoutProblem MakeProblem(Random& random, std::size_t count) {
  LayoutProblem problem;
  const std::int64_t horizon = Pick(random, 2, 9);
  const std::int64_t largest = Pick(random, 1, 9);
  const bool aligned = Pick(random, 0, 3) == 0;
  const bool mixed = Pick(random, 0, 3) == 0;
  const bool gapped = Pick(random, 0, 2) == 0;
  if (aligned) problem.alignment = Bytes{1} << Pick(random, 1, 3);
  for (std::size_t i = 0; i < count; ++i) {
    Interval interval;
    interval.begin = Pick(random, 0, horizon - 1);
    interval.end = Pick(random, interval.begin + 1, horizon);
    interval.bytes = static_cast<Bytes>(Pick(random, 1, largest));
    if (mixed) interval.alignment = Bytes{1} << Pick(random, 0, 2);
    if (gapped && interval.end - interval.begin > 2 && Pick(random, 0, 1) == 0) {
      const std::int64_t from = Pick(random, interval.begin + 1, interval.end - 2);
      interval.gaps.push_back({.begin = from, .end = Pick(random, from + 1, interval.end - 1)});
    }
    problem.intervals.push_back(interval);
  }
  return problem;
}

// Variations of eight intervals that need more than what lives at once, which is rare by chance
// (why these do stands in layout_test.cc): larger ones, shuffled, one of them longer, shorter or of
// another size.
LayoutProblem MakeHardProblem(Random& random) {
  LayoutProblem problem{.intervals = {{.begin = 0, .end = 1, .bytes = 3},
                                      {.begin = 0, .end = 3, .bytes = 1},
                                      {.begin = 1, .end = 2, .bytes = 2},
                                      {.begin = 1, .end = 4, .bytes = 1},
                                      {.begin = 2, .end = 3, .bytes = 1},
                                      {.begin = 2, .end = 5, .bytes = 1},
                                      {.begin = 3, .end = 4, .bytes = 2},
                                      {.begin = 4, .end = 5, .bytes = 3}}};
  const auto factor = static_cast<Bytes>(Pick(random, 1, 3));
  for (Interval& interval : problem.intervals) interval.bytes *= factor;
  std::shuffle(problem.intervals.begin(), problem.intervals.end(), random);
  Interval& odd = problem.intervals.front();
  switch (Pick(random, 0, 4)) {
    case 0:
      ++odd.bytes;
      break;
    case 1:
      ++odd.end;
      break;
    case 2:
      --odd.begin;
      break;
    case 3:
      if (odd.end - odd.begin == 3) {
        odd.gaps = {{.begin = odd.begin + 1, .end = odd.begin + 2}};
      }
      break;
    default:
      break;
  }
  return problem;
}

bool LiveTogether(const Interval& a, const Interval& b) {
  const auto lives = [](const Interval& interval, std::int64_t time) {
    bool gone = time < interval.begin || time >= interval.end;
    for (const TimeSpan& gap : interval.gaps) gone = gone || (gap.begin <= time && time < gap.end);
    return !gone;
  };
  for (std::int64_t t = std::max(a.begin, b.begin); t < std::min(a.end, b.end); ++t) {
    if (lives(a, t) && lives(b, t)) return true;
  }
  return false;
}

// Byte by byte, so that it is plainly right.
Bytes LeastHighWater(const LayoutProblem& problem) {
  const std::size_t count = problem.intervals.size();
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::vector<char> together(count * count);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) {
      together[i * count + j] = LiveTogether(problem.intervals[i], problem.intervals[j]);
    }
  }
  Bytes least = ~Bytes{0};
  do {
    std::vector<Bytes> offsets(count);
    Bytes top = 0;
    for (std::size_t k = 0; k < count && top < least; ++k) {
      const Interval& interval = problem.intervals[order[k]];
      const Bytes step = std::max(interval.alignment, problem.alignment);
      Bytes at = 0;
      const auto free = [&] {
        for (std::size_t below = 0; below < k; ++below) {
          const std::size_t other = order[below];
          if (together[order[k] * count + other] != 0 &&
              at < offsets[other] + problem.intervals[other].bytes &&
              offsets[other] < at + interval.bytes) {
            return false;
          }
        }
        return true;
      };
      while (!free()) at += step;
      offsets[order[k]] = at;
      top = std::max(top, at + interval.bytes);
    }
    least = std::min(least, top);
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

void RequireGood(const LayoutProblem& problem, const LayoutResult& result) {
  const LayoutFault fault = ValidateLayout(problem, result);
  INFO(DescribeFault(problem, result, fault));
  REQUIRE(fault.ok());
}

// Returns whether more is needed than what lives at once.
bool CompareWithBruteForce(LayoutProblem problem) {
  REQUIRE(CheckLayoutProblem(problem).ok());
  const Bytes least = LeastHighWater(problem);
  problem.capacity = least;
  const LayoutResult fits = SolveLayout(problem, kOptions);
  REQUIRE(fits.verdict == LayoutVerdict::kFits);
  RequireGood(problem, fits);
  const LayoutResult minimal = MinimizeLayout(problem, kOptions);
  REQUIRE(minimal.high_water == least);
  REQUIRE(minimal.lower_bound == least);
  RequireGood(problem, minimal);
  REQUIRE(fits.peak_bytes <= least);
  problem.capacity = least - 1;
  REQUIRE(SolveLayout(problem, kOptions).verdict == LayoutVerdict::kTooSmall);
  return fits.peak_bytes < least;
}

TEST_CASE("of up to six intervals the solver finds the least high water, and proves it") {
  int beyond_live = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    beyond_live += CompareWithBruteForce(MakeProblem(random, 1 + seed % 6)) ? 1 : 0;
  }
  REQUIRE(beyond_live > 30);  // else the proofs were hardly tested
}

TEST_CASE("of eight intervals that need more than what lives at once too") {
  int beyond_live = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    beyond_live += CompareWithBruteForce(MakeHardProblem(random)) ? 1 : 0;
  }
  REQUIRE(beyond_live > 20);
}

TEST_CASE("order, names and clock never change the outcome; what comes out is always valid") {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    LayoutProblem problem = MakeProblem(random, static_cast<std::size_t>(Pick(random, 8, 40)));
    problem.capacity = MinimizeLayout(problem, {.steps_max = 2'000}).high_water;
    for (const Bytes less : {Bytes{0}, Bytes{1}, Bytes{2}}) {
      problem.capacity -= less;
      const LayoutOptions options{.steps_max = 20'000};
      const LayoutResult before = SolveLayout(problem, options);
      if (before.verdict == LayoutVerdict::kFits) RequireGood(problem, before);
      LayoutProblem other = problem;
      std::shuffle(other.intervals.begin(), other.intervals.end(), random);
      for (Interval& interval : other.intervals) {
        interval.begin = 5 * interval.begin - 7;
        interval.end = 5 * interval.end - 7;
        for (TimeSpan& gap : interval.gaps) {
          gap = {.begin = 5 * gap.begin - 7, .end = 5 * gap.end - 7};
        }
      }
      const LayoutResult after = SolveLayout(other, options);
      REQUIRE(after.verdict == before.verdict);
      REQUIRE(after.high_water == before.high_water);
      REQUIRE(after.steps == before.steps);
    }
  }
}

}  // namespace
}  // namespace hmm::plan
