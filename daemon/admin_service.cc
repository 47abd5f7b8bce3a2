// SPDX-License-Identifier: Apache-2.0
//
// hmm.v1.Admin: steers the pools. On the admin server, whose thread is not the manager's: work hops
// to the core and its result hops back.
#include <grpcpp/server_builder.h>

#include <memory>
#include <optional>
#include <utility>

#include "base/status.h"
#include "daemon/call.h"
#include "daemon/service.h"
#include "hmm/v1/admin.grpc.pb.h"

namespace hmm::daemon {
namespace {

class AdminService final : public Service {
 public:
  AdminService(core::Manager& manager, CoreGate gate) : manager_(manager), gate_(gate) {}

  void Register(grpc::ServerBuilder& builder) override { builder.RegisterService(&service_); }
  void Serve(CallScope& scope) override;

 private:
  void SetWatermarks(Call<v1::SetWatermarksRequest, v1::SetWatermarksResponse>* call);
  void Evict(Call<v1::EvictRequest, v1::EvictResponse>* call);
  void Drain(Call<v1::DrainRequest, v1::DrainResponse>* call);

  core::Manager& manager_;
  const CoreGate gate_;
  v1::Admin::AsyncService service_;
  Method<v1::SetWatermarksRequest, v1::SetWatermarksResponse> set_watermarks_;
  Method<v1::EvictRequest, v1::EvictResponse> evict_;
  Method<v1::DrainRequest, v1::DrainResponse> drain_;
};

void AdminService::Serve(CallScope& scope) {
  grpc::ServerCompletionQueue* const queue = scope.queue;
  const auto arm = [&](auto& method, auto request, auto handle) {
    method.scope = &scope;
    method.request = [this, queue, request](auto* context, auto* in, auto* writer, void* tag) {
      (service_.*request)(context, in, writer, queue, queue, tag);
    };
    method.handle = handle;
    method.ArmAll();
  };
  using Async = v1::Admin::AsyncService;
  arm(set_watermarks_, &Async::RequestSetWatermarks, [this](auto* call) { SetWatermarks(call); });
  arm(evict_, &Async::RequestEvict, [this](auto* call) { Evict(call); });
  arm(drain_, &Async::RequestDrain, [this](auto* call) { Drain(call); });
}

void AdminService::SetWatermarks(Call<v1::SetWatermarksRequest, v1::SetWatermarksResponse>* call) {
  gate_.Run(
      [this, call] {
        const v1::SetWatermarksRequest& request = call->request();
        call->response().set_epoch(manager_.boot_epoch());
        std::optional<Bytes> reserve;
        if (request.has_reserve_bytes()) reserve = request.reserve_bytes();
        return manager_.SetWatermarks(request.tier(), request.high(), request.low(), reserve);
      },
      [call](const absl::Status& status) { call->Finish(status); });
}

// Waits, so it can be cancelled: the op's id lives on the core's thread alone.
void AdminService::Evict(Call<v1::EvictRequest, v1::EvictResponse>* call) {
  const auto op = std::make_shared<core::Manager::OpId>(0);
  const TimePoint deadline = call->deadline();
  call->OnCancel([this, op] { gate_.ToCore([this, op] { manager_.Cancel(*op); }); });
  gate_.ToCore([this, call, op, deadline] {
    const v1::EvictRequest& request = call->request();
    call->response().set_epoch(manager_.boot_epoch());
    *op = manager_.Evict(request.tier(), request.used_bytes_max(), deadline,
                         [this, call](absl::StatusOr<core::EvictResult> result) {
                           if (result.ok()) {
                             call->response().set_freed_bytes(result->freed_bytes);
                             call->response().set_tensors(result->tensors);
                             call->response().set_pinned_tensors(result->pinned_tensors);
                             call->response().set_kept_tensors(result->kept_tensors);
                           }
                           gate_.ToHome([call, status = result.status()] { call->Finish(status); });
                         });
  });
}

void AdminService::Drain(Call<v1::DrainRequest, v1::DrainResponse>* call) {
  gate_.Run(
      [this, call] {
        call->response().set_epoch(manager_.boot_epoch());
        call->response().set_sessions(manager_.Drain(!call->request().off()));
        return absl::OkStatus();
      },
      [call](const absl::Status& status) { call->Finish(status); });
}

}  // namespace

std::unique_ptr<Service> CreateAdminService(core::Manager& manager, CoreGate gate) {
  return std::make_unique<AdminService>(manager, gate);
}

}  // namespace hmm::daemon
