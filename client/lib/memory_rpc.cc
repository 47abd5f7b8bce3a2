// SPDX-License-Identifier: Apache-2.0
#include "client/lib/memory_rpc.h"

#include <grpc/support/time.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "client/lib/status_convert.h"
#include "hmm/v1/inspection.grpc.pb.h"
#include "hmm/v1/memory.grpc.pb.h"
#include "hmm/v1/regions.grpc.pb.h"

namespace hmm::client_internal {
namespace {

constexpr char kTokenKey[] = "hmm-token-bin";

// On the monotonic clock: a step of the wall clock must not end or stretch a call.
gpr_timespec ToGrpc(TimePoint deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(
      deadline - std::chrono::steady_clock::now());
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_micros(std::max<std::int64_t>(left.count(), 0), GPR_TIMESPAN));
}

}  // namespace

struct MemoryRpc::Wire {
  std::string token;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Memory::Stub> stub;
  std::unique_ptr<v1::Regions::Stub> regions;
  std::unique_ptr<v1::Inspection::Stub> inspection;

  std::mutex mutex;
  grpc::ClientContext* release = nullptr;  // the Release under way
  bool cancelled = false;

  void Prepare(grpc::ClientContext& context, TimePoint deadline) const {
    context.set_deadline(ToGrpc(deadline));
    context.AddMetadata(kTokenKey, token);
  }

  template <typename Stub, typename Request, typename Response>
  absl::Status Call(const std::unique_ptr<Stub>& on,
                    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& in, Response& out, TimePoint deadline) {
    grpc::ClientContext context;
    Prepare(context, deadline);
    return DecodeGrpc((on.get()->*method)(&context, in, &out));
  }
};

MemoryRpc::MemoryRpc(const std::string& socket_path, const share::Token& token)
    : wire_(std::make_unique<Wire>()) {
  wire_->token.assign(reinterpret_cast<const char*>(token.data()), token.size());
  wire_->channel = UnixChannel(socket_path);
  wire_->stub = v1::Memory::NewStub(wire_->channel);
  wire_->regions = v1::Regions::NewStub(wire_->channel);
  wire_->inspection = v1::Inspection::NewStub(wire_->channel);
}

MemoryRpc::~MemoryRpc() = default;

absl::Status MemoryRpc::Call(const v1::AllocateRequest& in, v1::AllocateResponse& out,
                             TimePoint deadline) {
  return wire_->Call(wire_->stub, &v1::Memory::Stub::Allocate, in, out, deadline);
}
absl::Status MemoryRpc::Call(const v1::SealRequest& in, v1::SealResponse& out, TimePoint deadline) {
  return wire_->Call(wire_->stub, &v1::Memory::Stub::Seal, in, out, deadline);
}
absl::Status MemoryRpc::Call(const v1::AcquireRequest& in, v1::AcquireResponse& out,
                             TimePoint deadline) {
  return wire_->Call(wire_->stub, &v1::Memory::Stub::Acquire, in, out, deadline);
}
absl::Status MemoryRpc::Call(const v1::LookupRequest& in, v1::LookupResponse& out,
                             TimePoint deadline) {
  return wire_->Call(wire_->stub, &v1::Memory::Stub::Lookup, in, out, deadline);
}
absl::Status MemoryRpc::Call(const v1::PrefetchRequest& in, v1::PrefetchResponse& out,
                             TimePoint deadline) {
  return wire_->Call(wire_->stub, &v1::Memory::Stub::Prefetch, in, out, deadline);
}
absl::Status MemoryRpc::Call(const v1::SwapRequest& in, v1::SwapResponse& out, TimePoint deadline) {
  return wire_->Call(wire_->stub, &v1::Memory::Stub::Swap, in, out, deadline);
}
absl::Status MemoryRpc::Call(const v1::FreeRequest& in, v1::FreeResponse& out, TimePoint deadline) {
  return wire_->Call(wire_->stub, &v1::Memory::Stub::Free, in, out, deadline);
}
absl::Status MemoryRpc::Call(const v1::DescribeRequest& in, v1::DescribeResponse& out,
                             TimePoint deadline) {
  return wire_->Call(wire_->stub, &v1::Memory::Stub::Describe, in, out, deadline);
}
absl::Status MemoryRpc::Call(const v1::ListTiersRequest& in, v1::ListTiersResponse& out,
                             TimePoint deadline) {
  return wire_->Call(wire_->inspection, &v1::Inspection::Stub::ListTiers, in, out, deadline);
}

absl::Status MemoryRpc::Call(const v1::ReleaseRequest& in, v1::ReleaseResponse& out,
                             TimePoint deadline) {
  grpc::ClientContext context;
  wire_->Prepare(context, deadline);
  {
    std::lock_guard lock(wire_->mutex);
    if (wire_->cancelled) return absl::CancelledError("the client is going away");
    wire_->release = &context;
  }
  const grpc::Status status = wire_->stub->Release(&context, in, &out);
  {
    std::lock_guard lock(wire_->mutex);
    wire_->release = nullptr;
  }
  return DecodeGrpc(status);
}

void MemoryRpc::CancelReleases() {
  std::lock_guard lock(wire_->mutex);
  wire_->cancelled = true;
  if (wire_->release != nullptr) wire_->release->TryCancel();
}

absl::Status MemoryRpc::Call(const v1::LeaseRegionRequest& in, v1::LeaseRegionResponse& out,
                             TimePoint deadline) {
  return wire_->Call(wire_->regions, &v1::Regions::Stub::LeaseRegion, in, out, deadline);
}
absl::Status MemoryRpc::Call(const v1::ReleaseRegionRequest& in, v1::ReleaseRegionResponse& out,
                             TimePoint deadline) {
  return wire_->Call(wire_->regions, &v1::Regions::Stub::ReleaseRegion, in, out, deadline);
}
absl::Status MemoryRpc::Call(const v1::DrainRegionRequest& in, v1::DrainRegionResponse& out,
                             TimePoint deadline) {
  return wire_->Call(wire_->regions, &v1::Regions::Stub::DrainRegion, in, out, deadline);
}
absl::Status MemoryRpc::Call(const v1::StoreRequest& in, v1::StoreResponse& out,
                             TimePoint deadline) {
  return wire_->Call(wire_->regions, &v1::Regions::Stub::Store, in, out, deadline);
}
absl::Status MemoryRpc::Call(const v1::LoadRequest& in, v1::LoadResponse& out, TimePoint deadline) {
  return wire_->Call(wire_->regions, &v1::Regions::Stub::Load, in, out, deadline);
}
absl::Status MemoryRpc::Call(const v1::PollJobsRequest& in, v1::PollJobsResponse& out,
                             TimePoint deadline) {
  return wire_->Call(wire_->regions, &v1::Regions::Stub::PollJobs, in, out, deadline);
}
absl::Status MemoryRpc::Call(const v1::CancelJobsRequest& in, v1::CancelJobsResponse& out,
                             TimePoint deadline) {
  return wire_->Call(wire_->regions, &v1::Regions::Stub::CancelJobs, in, out, deadline);
}

}  // namespace hmm::client_internal
