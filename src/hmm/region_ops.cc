// SPDX-License-Identifier: Apache-2.0
#include "hmm/region_ops.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace hmm::core {

DrainOp::DrainOp(Core& core, const CallContext& call, const DrainArgs& args, Region& region,
                 Callback<bool> done)
    : Op(core, call), args_(args), serial_(region.serial), done_(std::move(done)) {
  ++region.drains;
  if (!args_.cancel) return;
  core_.jobs.CancelRegion(region, Error(absl::StatusCode::kCancelled, Reason::kCancelled,
                                        "the region was drained before the key was done"));
}

void DrainOp::Answer(absl::StatusOr<bool> result) {
  Region* region = core_.regions.Find(call_.session, args_.region);
  if (region != nullptr && region->serial == serial_) --region->drains;
  std::move(done_)(std::move(result));
}

bool DrainOp::Step() {
  // One that was released meanwhile must be quiet too.
  if (core_.regions.InUse(serial_)) return false;
  Answer(true);
  return true;
}

void DrainOp::End(const absl::Status& why) {
  if (!why.ok()) return Answer(why);
  Answer(Error(absl::StatusCode::kDeadlineExceeded, Reason::kDeadline,
               absl::StrCat("jobs still use region ", args_.region,
                            " at the deadline; drain with cancel, or wait longer")));
}

bool AwaitJobsOp::Step() {
  const bool all = std::all_of(jobs_.begin(), jobs_.end(),
                               [&](JobId job) { return core_.jobs.Ended(call_.session, job); });
  if (all) Answer();
  return all;
}

void AwaitJobsOp::Answer() {
  std::vector<absl::StatusOr<JobStatus>> result;
  result.reserve(jobs_.size());
  for (const JobId job : jobs_) result.push_back(core_.jobs.Status(call_.session, job));
  std::move(done_)(std::move(result));
}

void AwaitJobsOp::End(const absl::Status& why) {
  if (!why.ok()) return std::move(done_)(why);
  Answer();  // how far they are
}

}  // namespace hmm::core
