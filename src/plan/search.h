// SPDX-License-Identifier: Apache-2.0
//
// Tries choices of gaps for one order of ops and keeps the best: fit, then least exposed time, then
// least bytes moved. Every try costs steps of a budget, so that the result depends on nothing but
// the input. Not shared between threads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/assemble.h"
#include "plan/choose.h"
#include "plan/schedule.h"

namespace hmm::plan {

struct Candidate {
  std::vector<GapPlan> gaps;
  Assembled assembled;
  double step_us = 0;  // with contention of the links where there is any
  double stall_us = 0;
};
// Less exposed time by more than rounding, or the same and fewer bytes.
bool Better(const Candidate& a, const Candidate& b);

class Search {
 public:
  // `steps` is spent from, one a task placed, by all tries.
  Search(const Problem& problem, std::uint64_t& steps);

  // The heuristics: each rule with several margins, every set where there are few gaps, and then
  // improvement of the best. nullopt: nothing fits, or the steps ran out before anything did.
  void Run();
  // As Run, one rule and margin only: a quick look at what an order is worth.
  void Glance();
  // Also consider these decisions (a baseline's).
  void Consider(std::vector<GapPlan> plans);

  const std::optional<Candidate>& best() const { return best_; }
  bool homes_short() const { return homes_short_.has_value(); }
  const HomeTiers& short_homes() const { return *homes_short_; }

 private:
  std::optional<Candidate> Evaluate(std::vector<GapPlan> plans);
  bool TryChosen(const std::vector<std::uint32_t>& chosen);
  bool TryRule(ChooseRule rule, Bytes margin, const std::vector<bool>* banned);
  bool Keep(std::optional<Candidate> candidate);
  bool Fits(const std::vector<std::uint32_t>& chosen) const;
  void TryEverySet();
  void Improve();
  bool ImproveSets();
  bool ImprovePlaces();
  std::vector<std::uint32_t> OtherPlaces(const GapPlan& plan) const;
  bool NothingLeft() const;
  bool OutOfSteps() const { return steps_ == 0; }

  const Problem& problem_;
  std::uint64_t& steps_;
  std::vector<std::vector<std::uint32_t>> tried_;  // sets, to try none twice
  std::vector<Bytes> margins_;
  std::optional<Candidate> best_;
  std::optional<HomeTiers> homes_short_;
};

}  // namespace hmm::plan
