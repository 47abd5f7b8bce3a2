// SPDX-License-Identifier: Apache-2.0
//
// Errors as they arrive: gRPC's status with its google.rpc details, and the error of a batch
// element, become absl statuses with the reason and the retry delay of base/status.h. Any thread.
// Shared with hmmctl (target hmm_client_status); free of gRPC's headers for those who include it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace grpc {
class Channel;
class Status;
}  // namespace grpc

namespace hmm::v1 {
class ElementError;
}

namespace hmm::client_internal {

// Code, message, reason and retry delay. A status that carries no reason did not come from the
// daemon but from the transport; it stays without one, see IsTransportError.
absl::Status DecodeGrpc(const grpc::Status& status);
bool IsTransportError(const absl::Status& status);

// DecodeGrpc, and a transport error gets the reason that its code suggests.
absl::Status FromGrpc(const grpc::Status& status);
absl::Status WithTransportReason(absl::Status status);

// The error of one element; OK when its code is 0.
absl::Status FromElement(const v1::ElementError& error);

// A channel to a unix socket that shares no connection and no back-off with any other channel of
// the process, so that a new one connects at once. Connects with the first call.
std::shared_ptr<grpc::Channel> UnixChannel(const std::string& socket_path);

// Runtime directory of the daemon: `dir`, else $HMM_DIR, else /run/hmm.
std::string RuntimeDir(const std::string& dir);

}  // namespace hmm::client_internal
