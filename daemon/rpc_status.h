// SPDX-License-Identifier: Apache-2.0
//
// Errors at the RPC boundary: absl::Status -> grpc::Status with google.rpc details. Any thread.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hmm::daemon {

// Code by number; message cut to kMessageBytesMax; grpc-status-details-bin holds google.rpc.Status
// with ErrorInfo{reason, domain "hmm", metadata epoch} and, where waiting helps, RetryInfo. All
// together stays under 4 KiB: gRPC loses a status whose metadata is too large.
grpc::Status ToGrpcStatus(const absl::Status& status, std::uint64_t epoch);

// Printable ASCII at most `max` bytes long; other bytes become \xNN, a cut ends in "...". Keys are
// bytes, and a message that is no UTF-8 cannot be parsed by its reader.
std::string PrintableMessage(std::string_view text, std::size_t max);

inline constexpr std::size_t kMessageBytesMax = 1024;

}  // namespace hmm::daemon
