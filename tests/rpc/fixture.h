// SPDX-License-Identifier: Apache-2.0
//
// A daemon in this process, on a directory of its own with small tiers, and a client that speaks
// raw gRPC to it. One thread, but for what the daemon has of its own.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "daemon/config.h"
#include "daemon/daemon.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "hmm/v1/admin.grpc.pb.h"
#include "hmm/v1/inspection.grpc.pb.h"
#include "hmm/v1/memory.grpc.pb.h"
#include "hmm/v1/regions.grpc.pb.h"
#include "rpc/raw_session.h"
#include "support/temp_dir.h"

namespace hmm::testing {

// hbm0 2 MiB, ddr0 4 MiB, flash0 8 MiB; chunks of 64 KiB, no reserve.
daemon::Config SmallConfig(const std::string& dir);

class InProcessDaemon {
 public:
  InProcessDaemon() : InProcessDaemon([](daemon::Config&) {}) {}
  // `change` adjusts SmallConfig.
  explicit InProcessDaemon(const std::function<void(daemon::Config&)>& change);

  const std::string& dir() const { return dir_.path(); }
  daemon::Daemon& daemon() { return *daemon_; }

 private:
  TempDir dir_;
  std::unique_ptr<daemon::Daemon> daemon_;
};

// What a failed call says: "INVALID_ARGUMENT/BAD_ENUM". "OK" when it did not fail.
std::string CodeAndReason(const grpc::Status& status);
std::string CodeAndReason(const v1::ElementError& error);
// From ErrorInfo's metadata and RetryInfo; 0 when absent.
std::uint64_t EpochOf(const grpc::Status& status);
std::uint64_t RetryMsOf(const grpc::Status& status);

// Stubs on one of the daemon's sockets, on a connection of their own.
class Stubs {
 public:
  Stubs(const std::string& dir, const std::string& socket);
  std::unique_ptr<v1::Memory::Stub> memory;
  std::unique_ptr<v1::Regions::Stub> regions;
  std::unique_ptr<v1::Inspection::Stub> inspection;
  std::unique_ptr<v1::Admin::Stub> admin;
  std::unique_ptr<grpc::health::v1::Health::Stub> health;
};

// A session with its stubs: fills in tokens, call ids and a deadline.
class RawClient {
 public:
  explicit RawClient(const std::string& dir);

  RawSession& session() { return session_; }
  const share::Welcome& welcome() const { return welcome_; }
  Stubs& stubs() { return stubs_; }
  std::string token() const;
  // A context with the token and a deadline of 20 s.
  std::unique_ptr<grpc::ClientContext> Context() const;
  void Stamp(v1::CallHeader* header) { header->set_call_id(++last_call_); }

  // One tensor, pinned for writing. REQUIREs success.
  std::uint64_t Allocate(std::uint64_t bytes, const std::string& key = "");
  grpc::Status Allocate(const v1::AllocateRequest& request, v1::AllocateResponse& response);
  std::string Free(std::uint64_t handle);  // code and reason
  // Ends writing and gives the pin back.
  void SealAndUnpin(std::uint64_t handle);
  // Undoes the last call that pinned: its reply might have been lost.
  void ReleaseLast();
  v1::GetStatusResponse Status() const;

 private:
  RawSession session_;
  share::Welcome welcome_;
  Stubs stubs_;
  std::uint64_t last_call_ = 0;
};

// Used bytes of all tiers and pins and tensors, as the admin socket shows them: what must return to
// the baseline.
struct Books {
  std::uint64_t used = 0;
  std::uint64_t pins = 0;
  std::uint64_t tensors = 0;
  std::uint64_t sessions = 0;
  friend bool operator==(const Books&, const Books&) = default;
};
Books ReadBooks(const std::string& dir);

}  // namespace hmm::testing
