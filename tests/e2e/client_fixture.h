// SPDX-License-Identifier: Apache-2.0
//
// What the client's tests against a real daemon share: clients, blocks of recognisable bytes, and
// the daemon's books as its admin socket shows them. Test thread.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/lib/status_convert.h"
#include "hmm/client.h"
#include "hmm/v1/admin.grpc.pb.h"
#include "hmm/v1/inspection.grpc.pb.h"
#include "support/catch.h"
#include "support/daemon_process.h"
#include "support/wait_until.h"

namespace hmm::testing {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;

inline std::unique_ptr<Client> ConnectTo(const std::string& dir) {
  absl::StatusOr<std::unique_ptr<Client>> client =
      Client::Connect({.dir = dir, .connect_timeout = std::chrono::seconds(60)});
  INFO(client.status());
  REQUIRE(client.ok());
  return *std::move(client);
}

// Bytes that tell which block they are and where in it.
inline std::byte PatternAt(std::uint64_t seed, std::size_t at) {
  return static_cast<std::byte>((seed * 131 + at * 7 + (at >> 8)) & 0xff);
}
inline void FillPattern(const Pin& pin, std::uint64_t seed) {
  for (std::size_t i = 0; i < pin.size(); ++i) pin.data()[i] = PatternAt(seed, i);
}
inline bool HasPattern(const Pin& pin, std::uint64_t seed) {
  for (std::size_t i = 0; i < pin.size(); ++i) {
    if (pin.data()[i] != PatternAt(seed, i)) return false;
  }
  return true;
}

// A sealed block, unpinned.
inline Tensor Put(Client& client, std::uint64_t bytes, std::uint64_t seed,
                  const std::string& key = "") {
  absl::StatusOr<Held> held =
      client.Allocate({.bytes = bytes, .kind = Kind::kKvCache, .key = key}, {.wait = true});
  INFO(held.status());
  REQUIRE(held.ok());
  FillPattern(held->pin, seed);
  const absl::Status sealed = client.Seal(held->tensor, std::move(held->pin));
  INFO(sealed);
  REQUIRE(sealed.ok());
  return held->tensor;
}

// What must return when a client goes.
struct Books {
  std::uint64_t pins = 0;
  std::uint64_t tensors = 0;
  std::uint64_t sessions = 0;
  std::vector<std::uint64_t> used_bytes;
  friend bool operator==(const Books&, const Books&) = default;
};

inline v1::GetStatusResponse StatusOf(const std::string& dir) {
  const auto stub = v1::Inspection::NewStub(client_internal::UnixChannel(dir + "/admin.sock"));
  grpc::ClientContext context;
  v1::GetStatusResponse response;
  const grpc::Status status = stub->GetStatus(&context, {}, &response);
  INFO(status.error_message());
  REQUIRE(status.ok());
  return response;
}

// Bytes that links have moved into a tier.
inline std::uint64_t MovedTo(const std::string& dir, const std::string& tier) {
  const v1::GetStatusResponse status = StatusOf(dir);
  std::uint64_t bytes = 0;
  for (const v1::LinkInfo& link : status.links()) {
    if (link.to() == tier) bytes += link.moved_bytes();
  }
  return bytes;
}

inline Books ReadBooks(const std::string& dir) {
  const v1::GetStatusResponse status = StatusOf(dir);
  Books books{status.pins(), status.tensors(), status.sessions(), {}};
  for (const v1::TierInfo& tier : status.tiers()) books.used_bytes.push_back(tier.used_bytes());
  return books;
}

// Sends all that can go from a tier. Any thread: it asserts nothing.
inline bool Evict(const std::string& dir, const std::string& tier) {
  const auto stub = v1::Admin::NewStub(client_internal::UnixChannel(dir + "/admin.sock"));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::EvictRequest request;
  request.set_tier(tier);
  v1::EvictResponse response;
  return stub->Evict(&context, request, &response).ok();
}

inline std::vector<v1::SessionInfo> Sessions(const std::string& dir) {
  const auto stub = v1::Inspection::NewStub(client_internal::UnixChannel(dir + "/admin.sock"));
  grpc::ClientContext context;
  v1::ListSessionsResponse response;
  const grpc::Status status = stub->ListSessions(&context, {}, &response);
  INFO(status.error_message());
  REQUIRE(status.ok());
  return {response.sessions().begin(), response.sessions().end()};
}

}  // namespace hmm::testing
