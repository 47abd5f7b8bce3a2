// SPDX-License-Identifier: Apache-2.0
#include "plan/layout.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/layout_validate.h"
#include "support/catch.h"
#include "unit/plan/layout_csv.h"

namespace hmm::plan {
namespace {

constexpr LayoutOptions kOptions;

// The picture of layout.h.
const LayoutProblem kPicture{.intervals = {{.begin = 0, .end = 6, .bytes = 2},
                                           {.begin = 0, .end = 2, .bytes = 1},
                                           {.begin = 2, .end = 6, .bytes = 2},
                                           {.begin = 0, .end = 2, .bytes = 2}},
                             .capacity = 5};

void RequireGood(const LayoutProblem& problem, const LayoutResult& result) {
  const LayoutFault fault = ValidateLayout(problem, result);
  INFO(DescribeFault(problem, result, fault));
  REQUIRE(fault.ok());
}

LayoutResult RequireFits(const LayoutProblem& problem) {
  const LayoutResult result = SolveLayout(problem, kOptions);
  INFO(ExplainLayout(problem, result));
  REQUIRE(result.verdict == LayoutVerdict::kFits);
  RequireGood(problem, result);
  return result;
}

bool Says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("no interval needs no room") {
  const LayoutResult result = RequireFits({});
  REQUIRE(result.high_water == 0);
  REQUIRE(result.lower_bound == 0);
  REQUIRE(MinimizeLayout({}, kOptions).verdict == LayoutVerdict::kFits);
}

TEST_CASE("one interval lies at zero, and exactly fits or is one byte too large") {
  LayoutProblem problem{.intervals = {{.begin = -3, .end = 4, .bytes = 10}}, .capacity = 10};
  REQUIRE(RequireFits(problem).offsets == std::vector<Bytes>{0});
  problem.capacity = 9;
  REQUIRE(SolveLayout(problem, kOptions).verdict == LayoutVerdict::kTooSmall);
}

TEST_CASE("intervals that only touch in time share bytes") {
  const LayoutProblem problem{
      .intervals = {{.begin = 0, .end = 2, .bytes = 4}, {.begin = 2, .end = 5, .bytes = 4}},
      .capacity = 4};
  REQUIRE(RequireFits(problem).offsets == std::vector<Bytes>{0, 0});
}

TEST_CASE("the picture fits into what lives at its worst time") {
  const LayoutResult result = RequireFits(kPicture);
  REQUIRE(result.high_water == 5);
  REQUIRE(result.lower_bound == 5);
  REQUIRE(result.peak_bytes == 5);
  REQUIRE(result.peak_time == 0);
}

TEST_CASE("more live bytes than the capacity: the verdict names how many and when") {
  LayoutProblem problem = kPicture;
  problem.capacity = 4;
  const LayoutResult result = SolveLayout(problem, kOptions);
  REQUIRE(result.verdict == LayoutVerdict::kTooSmall);
  REQUIRE(result.offsets.empty());
  REQUIRE(result.steps == 0);
  REQUIRE(ExplainLayout(problem, result) ==
          "too small: 5 bytes live at time 0, 1 more than the capacity of 4");
}

// Four bytes live at every time, and yet four are not enough. The two that succeed a larger one
// must touch, as must the two that a larger one succeeds:
//   time 0   1   2   3   4
//        h3  f2  a   e2  g3     f and d touch; a and c, in f's place, touch; a and b touch, and e
//        |   |   c   |   |      comes in their place; e and d touch. Whichever way round f and d
//        lie, |   d-------+   |      c comes between d and e, or d between a and b.
//        b-----------c---+
const LayoutProblem kBeyondLive{.intervals = {{.begin = 0, .end = 1, .bytes = 3},   // h
                                              {.begin = 0, .end = 3, .bytes = 1},   // b
                                              {.begin = 1, .end = 2, .bytes = 2},   // f
                                              {.begin = 1, .end = 4, .bytes = 1},   // d
                                              {.begin = 2, .end = 3, .bytes = 1},   // a
                                              {.begin = 2, .end = 5, .bytes = 1},   // c
                                              {.begin = 3, .end = 4, .bytes = 2},   // e
                                              {.begin = 4, .end = 5, .bytes = 3}},  // g
                                .capacity = 4};

TEST_CASE("that no arrangement fits is proved where what lives would fit") {
  const LayoutResult result = SolveLayout(kBeyondLive, kOptions);
  REQUIRE(result.verdict == LayoutVerdict::kTooSmall);
  REQUIRE(result.peak_bytes == 4);
  REQUIRE(result.lower_bound == 5);
  REQUIRE(Says(ExplainLayout(kBeyondLive, result), "no arrangement fits into the capacity of 4"));
  const LayoutResult least = MinimizeLayout(kBeyondLive, kOptions);
  REQUIRE(least.verdict == LayoutVerdict::kTooSmall);
  REQUIRE(least.high_water == 5);
  REQUIRE(least.lower_bound == 5);
}

TEST_CASE("alignment moves offsets, and only the last interval's padding is free") {
  LayoutProblem problem{
      .intervals = {{.begin = 0, .end = 1, .bytes = 5}, {.begin = 0, .end = 1, .bytes = 6}},
      .capacity = 13,
      .alignment = 8};
  const LayoutResult result = RequireFits(problem);  // the 6 below: 8 + 5
  REQUIRE(result.offsets == std::vector<Bytes>{8, 0});
  REQUIRE(result.peak_bytes == 13);
  problem.capacity = 12;
  REQUIRE(SolveLayout(problem, kOptions).verdict == LayoutVerdict::kTooSmall);
}

TEST_CASE("intervals may have alignments of their own") {
  const LayoutProblem problem{.intervals = {{.begin = 0, .end = 1, .bytes = 1},
                                            {.begin = 0, .end = 1, .bytes = 4, .alignment = 4},
                                            {.begin = 0, .end = 1, .bytes = 3, .alignment = 2}},
                              .capacity = 8};
  RequireFits(problem);
}

TEST_CASE("others live in the gap of a swapped out tensor") {
  LayoutProblem problem{
      .intervals = {{.begin = 0, .end = 10, .bytes = 6, .gaps = {{.begin = 2, .end = 8}}},
                    {.begin = 2, .end = 8, .bytes = 5},
                    {.begin = 1, .end = 9, .bytes = 2}},
      .capacity = 8};
  const LayoutResult result = RequireFits(problem);
  REQUIRE(result.peak_bytes == 8);
  REQUIRE(result.peak_time == 1);
  problem.intervals[0].gaps.clear();
  REQUIRE(SolveLayout(problem, kOptions).verdict == LayoutVerdict::kTooSmall);
}

TEST_CASE("a tensor comes back to the same offset, though the gap was wide enough for another") {
  // The first and the second leave each other no room to lie anywhere but at the two ends.
  const LayoutProblem problem{
      .intervals = {{.begin = 0, .end = 9, .bytes = 3, .gaps = {{.begin = 3, .end = 6}}},
                    {.begin = 0, .end = 9, .bytes = 1},
                    {.begin = 3, .end = 6, .bytes = 3}},
      .capacity = 4};
  const LayoutResult result = RequireFits(problem);
  REQUIRE(result.offsets[0] == result.offsets[2]);
}

TEST_CASE("an instance on which the heuristics fail needs more steps than one") {
  LayoutProblem problem{.intervals = ReadIntervals(HMM_ALLOC_DATA "/A.1048576.csv"),
                        .capacity = 1048576};
  const LayoutResult result = SolveLayout(problem, {.steps_max = 1});
  REQUIRE(result.verdict == LayoutVerdict::kGaveUp);
  REQUIRE(result.offsets.empty());
  REQUIRE(Says(ExplainLayout(problem, result), "not known"));
  const LayoutResult least = MinimizeLayout(problem, {.steps_max = 1});
  REQUIRE(least.verdict == LayoutVerdict::kGaveUp);
  REQUIRE(least.high_water > problem.capacity);
  problem.capacity = least.high_water;
  RequireGood(problem, least);
}

TEST_CASE("problems that mean nothing are refused with the interval's index") {
  const auto refusal = [](const Interval& interval) {
    const absl::Status status =
        CheckLayoutProblem({.intervals = {{.begin = 0, .end = 1, .bytes = 1}, interval}});
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    REQUIRE(Says(std::string(status.message()), "interval 1: "));
    return ReasonOf(status);
  };
  REQUIRE(refusal({.begin = 1, .end = 1, .bytes = 1}) == Reason::kBadArgument);
  REQUIRE(refusal({.begin = 0, .end = 1, .bytes = 0}) == Reason::kBadSize);
  REQUIRE(refusal({.begin = 0, .end = 1, .bytes = Bytes{1} << 60}) == Reason::kBadSize);
  REQUIRE(refusal({.begin = 0, .end = 1, .bytes = ~Bytes{0}}) == Reason::kBadSize);
  REQUIRE(refusal({.begin = 0, .end = 1, .bytes = 1, .alignment = 0}) == Reason::kBadArgument);
  REQUIRE(refusal({.begin = 0, .end = 1, .bytes = 1, .alignment = 3}) == Reason::kBadArgument);
  const auto gaps = [&refusal](std::vector<TimeSpan> spans) {
    return refusal({.begin = 0, .end = 9, .bytes = 1, .gaps = std::move(spans)});
  };
  REQUIRE(gaps({{.begin = 0, .end = 2}}) == Reason::kBadArgument);
  REQUIRE(gaps({{.begin = 4, .end = 9}}) == Reason::kBadArgument);
  REQUIRE(gaps({{.begin = 4, .end = 4}}) == Reason::kBadArgument);
  REQUIRE(gaps({{.begin = 4, .end = 5}, {.begin = 5, .end = 6}}) == Reason::kBadArgument);
  REQUIRE(gaps({{.begin = 4, .end = 6}, {.begin = 2, .end = 3}}) == Reason::kBadArgument);
  REQUIRE_FALSE(CheckLayoutProblem({.alignment = 6}).ok());
  REQUIRE(CheckLayoutProblem(kPicture).ok());
}

TEST_CASE("the validator names the rule that is broken, and the pair") {
  LayoutProblem problem = kPicture;
  const LayoutResult good{.offsets = {0, 2, 2, 3}, .high_water = 5};
  REQUIRE(ValidateLayout(problem, good).ok());

  LayoutResult bad = good;
  bad.offsets.pop_back();
  REQUIRE(ValidateLayout(problem, bad).rule == LayoutRule::kCount);

  bad = good;
  bad.offsets[3] = 2;
  LayoutFault fault = ValidateLayout(problem, bad);
  REQUIRE(fault.rule == LayoutRule::kOverlap);
  REQUIRE(fault.first == 1);
  REQUIRE(fault.second == 3);
  REQUIRE(Says(DescribeFault(problem, bad, fault), "interval 1 (time 0 to 2, offset 2, 1 bytes)"));

  bad = good;
  bad.offsets[2] = 4;
  fault = ValidateLayout(problem, bad);
  REQUIRE(fault.rule == LayoutRule::kBounds);
  REQUIRE(fault.first == 2);

  bad = good;
  bad.high_water = 4;
  REQUIRE(ValidateLayout(problem, bad).rule == LayoutRule::kHighWater);

  problem.intervals[1].alignment = 4;
  fault = ValidateLayout(problem, good);
  REQUIRE(fault.rule == LayoutRule::kAlignment);
  REQUIRE(fault.first == 1);
}

TEST_CASE("the validator sees overlaps around gaps") {
  const Interval swapped{.begin = 0, .end = 10, .bytes = 2, .gaps = {{.begin = 2, .end = 8}}};
  const LayoutResult same{.offsets = {0, 0}, .high_water = 2};
  const auto rule = [&](std::int64_t begin, std::int64_t end) {
    const LayoutProblem problem{.intervals = {swapped, {.begin = begin, .end = end, .bytes = 1}},
                                .capacity = 2};
    return ValidateLayout(problem, same).rule;
  };
  REQUIRE(rule(2, 8) == LayoutRule::kGood);
  REQUIRE(rule(1, 3) == LayoutRule::kOverlap);
  REQUIRE(rule(7, 9) == LayoutRule::kOverlap);
  REQUIRE(rule(3, 20) == LayoutRule::kOverlap);
  REQUIRE(rule(-5, 20) == LayoutRule::kOverlap);
  REQUIRE(rule(10, 20) == LayoutRule::kGood);
}

struct Instance {
  const char* file;
  Bytes capacity;
  std::size_t intervals;
  bool tight;               // the capacity is the lower bound
  std::uint64_t steps_max;  // some times what it takes now: more is a step back
};

constexpr Instance kInstances[] = {
    {"A.1048576.csv", 1048576, 154, true, 100'000},
    {"B.1048576.csv", 1048576, 170, true, 100'000},
    {"D.1048576.csv", 1048576, 213, false, 100'000},
    {"E.1048576.csv", 1048576, 215, true, 100'000},
    {"G.1048576.csv", 1048576, 308, true, 100'000},
    {"I.1048576.csv", 1048576, 374, true, 100'000},
    {"J.1048576.csv", 1048576, 409, false, 100'000},
    {"input.12.csv", 12, 5, true, 100},
    {"bloom3_b2_s1024.csv", 3917574130, 483, true, 100'000},
};

TEST_CASE("every known instance is solved at its capacity") {
  for (const Instance& instance : kInstances) {
    const LayoutProblem problem{
        .intervals = ReadIntervals(std::string(HMM_ALLOC_DATA "/") + instance.file),
        .capacity = instance.capacity};
    REQUIRE(problem.intervals.size() == instance.intervals);
    const LayoutResult result = SolveLayout(problem, {.steps_max = instance.steps_max});
    INFO(instance.file << ": " << ExplainLayout(problem, result));
    REQUIRE(result.verdict == LayoutVerdict::kFits);
    RequireGood(problem, result);
    REQUIRE((result.lower_bound == instance.capacity) == instance.tight);
  }
}

TEST_CASE("the real training graph needs no byte more than what lives at once") {
  const LayoutProblem problem{.intervals = ReadIntervals(HMM_ALLOC_DATA "/bloom3_b2_s1024.csv"),
                              .capacity = ~Bytes{0}};
  const LayoutResult result = MinimizeLayout(problem, kOptions);
  REQUIRE(result.high_water == 3917574130);
  REQUIRE(result.lower_bound == 3917574130);
  RequireGood(problem, result);
}

TEST_CASE("neither the order nor the clock of the intervals changes what comes out") {
  LayoutProblem problem{.intervals = ReadIntervals(HMM_ALLOC_DATA "/E.1048576.csv"),
                        .capacity = 1048576};
  const LayoutResult before = RequireFits(problem);
  std::mt19937_64 random(1);
  std::shuffle(problem.intervals.begin(), problem.intervals.end(), random);
  for (Interval& interval : problem.intervals) {
    interval.begin = 3 * interval.begin - 1'000'000;
    interval.end = 3 * interval.end - 1'000'000;
  }
  const LayoutResult after = RequireFits(problem);
  REQUIRE(after.steps == before.steps);
  REQUIRE(after.high_water == before.high_water);
}

}  // namespace
}  // namespace hmm::plan
