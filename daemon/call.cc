// SPDX-License-Identifier: Apache-2.0
#include "daemon/call.h"

#include <grpc/support/time.h>

#include <algorithm>

namespace hmm::daemon {

TimePoint DeadlineOf(const grpc::ServerContext& context) {
  const gpr_timespec deadline = context.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) return TimePoint::max();
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  // A wait of a year is no deadline; the sum below must not overflow.
  if (left.tv_sec > 365L * 24 * 3600) return TimePoint::max();
  const Duration wait = std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec);
  // An answer at the client's deadline is too late: it would see DEADLINE_EXCEEDED and not why.
  const Duration early = std::min<Duration>(kAnswerEarly, wait / 5);
  return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()) + wait - early;
}

std::optional<std::string_view> MetadataOf(const grpc::ServerContext& context,
                                           std::string_view key) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(grpc::string_ref(key.data(), key.size()));
  if (found == metadata.end()) return std::nullopt;
  return std::string_view(found->second.data(), found->second.size());
}

}  // namespace hmm::daemon
