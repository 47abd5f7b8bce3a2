// SPDX-License-Identifier: Apache-2.0
//
// Calls about regions and jobs that may wait: until a region is quiet, until jobs have ended. They
// name what they wait for by id, so it may go meanwhile. The executor's thread; the core owns each
// until it has called `done`, which it does once.
#pragma once

#include <vector>

#include "hmm/core.h"
#include "hmm/region_types.h"

namespace hmm::core {

// No key of a job uses the region any more. While it waits, new jobs that name the region are
// refused. Answers true; DEADLINE_EXCEEDED/DEADLINE while jobs still use it, or why it was ended.
class DrainOp final : public Op {
 public:
  DrainOp(Core& core, const CallContext& call, const DrainArgs& args, Region& region,
          Callback<bool> done);
  bool Step() override;
  void End(const absl::Status& why) override;

 private:
  void Answer(absl::StatusOr<bool> result);

  const DrainArgs args_;
  const std::uint64_t serial_;  // of the region: another may get its id meanwhile
  Callback<bool> done_;
};

// All named jobs have ended (or are unknown). Answers with each one's state, at the deadline too,
// and NOT_FOUND for those unknown; or with why it was ended.
class AwaitJobsOp final : public Op {
 public:
  AwaitJobsOp(Core& core, const CallContext& call, std::vector<JobId> jobs,
              Callback<std::vector<absl::StatusOr<JobStatus>>> done)
      : Op(core, call), jobs_(std::move(jobs)), done_(std::move(done)) {}
  bool Step() override;
  void End(const absl::Status& why) override;

 private:
  void Answer();

  const std::vector<JobId> jobs_;
  Callback<std::vector<absl::StatusOr<JobStatus>>> done_;
};

}  // namespace hmm::core
