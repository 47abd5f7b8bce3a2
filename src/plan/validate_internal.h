// SPDX-License-Identifier: Apache-2.0
//
// What the parts of validate share. Nothing else may include it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/validate.h"

namespace hmm::plan::internal {

class FaultList {
 public:
  void Add(Rule rule, TaskIndex task, StorageIndex storage, std::string text) {
    if (faults_.size() < kMax) faults_.push_back({rule, task, storage, std::move(text)});
  }
  bool empty() const { return faults_.empty(); }
  std::vector<PlanFault> Take() { return std::move(faults_); }

 private:
  static constexpr std::size_t kMax = 32;
  std::vector<PlanFault> faults_;
};

// "a has ended before b starts" from the waits and the channels' order alone.
class Before {
 public:
  Before(const Graph& graph, const Plan& plan);
  bool operator()(TaskIndex a, TaskIndex b) const {
    return lane_[a] != kNone && seen_[b * lanes_ + lane_[a]] > rank_[a];
  }
  std::uint32_t lanes() const { return static_cast<std::uint32_t>(lanes_); }
  std::uint32_t lane(TaskIndex t) const { return lane_[t]; }
  std::uint32_t rank(TaskIndex t) const { return rank_[t]; }
  // How many tasks of the lane have ended before b starts.
  std::uint32_t seen(TaskIndex b, std::uint32_t lane) const { return seen_[b * lanes_ + lane]; }

 private:
  std::size_t lanes_;
  std::vector<std::uint32_t> lane_, rank_, seen_;
};

// Bytes of a tier from the start of a task to the end of others.
struct Holding {
  TaskIndex begin = kNone;  // kNone: there when the step starts
  Bytes bytes = 0;
  bool forever = false;
  std::vector<TaskIndex> until;
  StorageIndex storage = kNone;  // in HBM; kNone: workspace or fetched members
};

// The most the holdings can add up to, for any durations, and the task at which; kNone: the start.
std::pair<Bytes, TaskIndex> WorstCase(const std::vector<Holding>& holdings, const Before& before,
                                      std::size_t tasks);

bool CheckShape(const Graph& graph, const Machine& machine, const Plan& plan, FaultList& faults);
// Walks the storages' states; returns what HBM holds, and DDR besides the homes.
struct Held {
  std::vector<Holding> hbm;
  // Staging on the way to and from flash: bounded one by one, as neither waits for the other.
  std::vector<Holding> ddr_out;
  std::vector<Holding> ddr_in;
};
Held CheckStates(const Graph& graph, const Plan& plan, const Before& before, FaultList& faults);
// Addresses, where the plan has a layout.
void CheckPlaces(const Graph& graph, const Plan& plan, const std::vector<Holding>& hbm,
                 const Before& before, FaultList& faults);
// Ops wait for what they depend on, and fetches for what decides them.
void CheckDependencies(const Graph& graph, const Plan& plan, const Before& before,
                       FaultList& faults);

}  // namespace hmm::plan::internal
