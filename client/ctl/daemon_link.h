// SPDX-License-Identifier: Apache-2.0
//
// hmmctl's way to the daemon: Inspection and Admin on <dir>/admin.sock. Every call has a deadline.
// Any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hmm/v1/admin.pb.h"
#include "hmm/v1/inspection.pb.h"

namespace hmm::ctl {

// $HMM_DIR, else /run/hmm.
std::string DefaultDir();

class DaemonLink {
 public:
  // Whether somebody answers on the socket, without any use of gRPC (safe before starting
  // children).
  static absl::Status Probe(const std::string& dir);
  // UNAVAILABLE/NO_DAEMON says where it looked and how to start one; PERMISSION_DENIED who may ask,
  // or that it is a tenant's directory, which has no socket of operators.
  static absl::StatusOr<std::unique_ptr<DaemonLink>> Connect(const std::string& dir);
  ~DaemonLink();

  absl::StatusOr<v1::GetStatusResponse> GetStatus();
  absl::StatusOr<v1::ListTiersResponse> ListTiers();
  absl::StatusOr<v1::ListTiersResponse> ListTiers(std::chrono::milliseconds timeout);
  // A page size is filled in.
  absl::StatusOr<v1::ListTensorsResponse> ListTensors(v1::ListTensorsRequest request);
  absl::StatusOr<v1::ListSessionsResponse> ListSessions();
  absl::StatusOr<v1::SetWatermarksResponse> SetWatermarks(const v1::SetWatermarksRequest& request);
  absl::StatusOr<v1::EvictResponse> Evict(const v1::EvictRequest& request,
                                          std::chrono::milliseconds timeout);
  absl::StatusOr<v1::DrainResponse> Drain(bool off);
  absl::StatusOr<v1::GetTopologyResponse> GetTopology();
  absl::StatusOr<v1::CalibrateResponse> Calibrate(std::chrono::milliseconds timeout);
  absl::StatusOr<v1::ExplainResponse> Explain(const v1::ExplainRequest& request);
  absl::StatusOr<v1::GetHealthResponse> GetHealth(const std::string& tier);
  absl::StatusOr<v1::ResizeTierResponse> ResizeTier(const v1::ResizeTierRequest& request,
                                                    std::chrono::milliseconds timeout);
  absl::StatusOr<v1::CompactResponse> Compact(const std::string& tier,
                                              std::chrono::milliseconds timeout);
  absl::StatusOr<v1::SetLogLevelResponse> SetLogLevel(const std::string& level);
  absl::StatusOr<v1::AdminSwapResponse> Swap(const v1::AdminSwapRequest& request,
                                             std::chrono::milliseconds timeout);
  absl::StatusOr<v1::AdminPrefetchResponse> Prefetch(const v1::AdminPrefetchRequest& request);
  // Without a deadline once the daemon answers: until `each` answers false or fails, `stop` is
  // requested, or the daemon ends it. RESOURCE_EXHAUSTED/SLOW_WATCHER also when it was broken off
  // for reading nothing.
  absl::Status Watch(const v1::WatchRequest& request, std::stop_token stop,
                     const std::function<absl::StatusOr<bool>(const v1::WatchResponse&)>& each);

 private:
  struct Stubs;  // gRPC stays in the .cc
  explicit DaemonLink(const std::string& socket_path);

  std::unique_ptr<Stubs> stubs_;
};

}  // namespace hmm::ctl
