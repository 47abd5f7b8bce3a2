// SPDX-License-Identifier: Apache-2.0
//
// hmmctl's way to the daemon: Inspection and Admin on <dir>/admin.sock. Every call has a deadline.
// Any thread.
#pragma once

#include <chrono>
#include <memory>
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
  // UNAVAILABLE/NO_DAEMON says where it looked and how to start one; PERMISSION_DENIED who may ask.
  static absl::StatusOr<std::unique_ptr<DaemonLink>> Connect(const std::string& dir);
  ~DaemonLink();

  absl::StatusOr<v1::GetStatusResponse> GetStatus();
  absl::StatusOr<v1::ListTiersResponse> ListTiers();
  absl::StatusOr<v1::ListTensorsResponse> ListTensors(const std::string& tier,
                                                      const std::string& page_token);
  absl::StatusOr<v1::ListSessionsResponse> ListSessions();
  absl::StatusOr<v1::SetWatermarksResponse> SetWatermarks(const v1::SetWatermarksRequest& request);
  absl::StatusOr<v1::EvictResponse> Evict(const v1::EvictRequest& request,
                                          std::chrono::milliseconds timeout);
  absl::StatusOr<v1::DrainResponse> Drain(bool off);

 private:
  struct Stubs;  // gRPC stays in the .cc
  explicit DaemonLink(const std::string& socket_path);

  std::unique_ptr<Stubs> stubs_;
};

}  // namespace hmm::ctl
