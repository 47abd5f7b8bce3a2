// SPDX-License-Identifier: Apache-2.0
//
// The Memory, Regions and Inspection services as one session sees them: a channel and the session's
// token. Hides gRPC, so that the rest of the library includes messages alone.
//
// Any thread. Each call blocks its caller, at the longest until the deadline.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/units.h"
#include "hmm/v1/inspection.pb.h"
#include "hmm/v1/memory.pb.h"
#include "hmm/v1/regions.pb.h"
#include "share/session_wire.h"

namespace hmm::client_internal {

class MemoryRpc {
 public:
  MemoryRpc(const std::string& socket_path, const share::Token& token);
  ~MemoryRpc();

  // A status without a reason came from the transport (status_convert.h).
  absl::Status Call(const v1::AllocateRequest& in, v1::AllocateResponse& out, TimePoint deadline);
  absl::Status Call(const v1::SealRequest& in, v1::SealResponse& out, TimePoint deadline);
  absl::Status Call(const v1::AcquireRequest& in, v1::AcquireResponse& out, TimePoint deadline);
  absl::Status Call(const v1::LookupRequest& in, v1::LookupResponse& out, TimePoint deadline);
  absl::Status Call(const v1::PrefetchRequest& in, v1::PrefetchResponse& out, TimePoint deadline);
  absl::Status Call(const v1::SwapRequest& in, v1::SwapResponse& out, TimePoint deadline);
  absl::Status Call(const v1::FreeRequest& in, v1::FreeResponse& out, TimePoint deadline);
  absl::Status Call(const v1::DescribeRequest& in, v1::DescribeResponse& out, TimePoint deadline);
  absl::Status Call(const v1::ListTiersRequest& in, v1::ListTiersResponse& out, TimePoint deadline);

  // Regions and jobs.
  absl::Status Call(const v1::LeaseRegionRequest& in, v1::LeaseRegionResponse& out,
                    TimePoint deadline);
  absl::Status Call(const v1::ReleaseRegionRequest& in, v1::ReleaseRegionResponse& out,
                    TimePoint deadline);
  absl::Status Call(const v1::DrainRegionRequest& in, v1::DrainRegionResponse& out,
                    TimePoint deadline);
  absl::Status Call(const v1::StoreRequest& in, v1::StoreResponse& out, TimePoint deadline);
  absl::Status Call(const v1::LoadRequest& in, v1::LoadResponse& out, TimePoint deadline);
  absl::Status Call(const v1::PollJobsRequest& in, v1::PollJobsResponse& out, TimePoint deadline);
  absl::Status Call(const v1::CancelJobsRequest& in, v1::CancelJobsResponse& out,
                    TimePoint deadline);

  // Release, by one thread at a time. CancelReleases ends one under way and every later one, so
  // that the thread can be joined.
  absl::Status Call(const v1::ReleaseRequest& in, v1::ReleaseResponse& out, TimePoint deadline);
  void CancelReleases();

 private:
  struct Wire;
  std::unique_ptr<Wire> wire_;
};

}  // namespace hmm::client_internal
