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
#include "daemon/convert.h"
#include "daemon/log_format.h"
#include "daemon/service.h"
#include "daemon/topology_convert.h"
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
  void ResizeTier(Call<v1::ResizeTierRequest, v1::ResizeTierResponse>* call);
  void Compact(Call<v1::CompactRequest, v1::CompactResponse>* call);
  void SetLogLevel(Call<v1::SetLogLevelRequest, v1::SetLogLevelResponse>* call);
  void Swap(Call<v1::AdminSwapRequest, v1::AdminSwapResponse>* call);
  void Prefetch(Call<v1::AdminPrefetchRequest, v1::AdminPrefetchResponse>* call);

  // A call that waits: `launch` runs on the core's thread and gives the id to cancel. The op's id
  // lives on that thread alone.
  template <typename Request, typename Response, typename Launch>
  void Await(Call<Request, Response>* call, Launch launch) {
    const auto op = std::make_shared<core::Manager::OpId>(0);
    call->OnCancel([this, op] { gate_.ToCore([this, op] { manager_.Cancel(*op); }); });
    gate_.ToCore([this, call, op, launch = std::move(launch)]() mutable {
      call->response().set_epoch(manager_.boot_epoch());
      *op = launch();
    });
  }
  template <typename Request, typename Response>
  void FinishAtHome(Call<Request, Response>* call, const absl::Status& status) {
    gate_.ToHome([call, status] { call->Finish(status); });
  }
  void Calibrate(Call<v1::CalibrateRequest, v1::CalibrateResponse>* call);

  core::Manager& manager_;
  const CoreGate gate_;
  v1::Admin::AsyncService service_;
  Method<v1::SetWatermarksRequest, v1::SetWatermarksResponse> set_watermarks_;
  Method<v1::EvictRequest, v1::EvictResponse> evict_;
  Method<v1::DrainRequest, v1::DrainResponse> drain_;
  Method<v1::ResizeTierRequest, v1::ResizeTierResponse> resize_tier_;
  Method<v1::CompactRequest, v1::CompactResponse> compact_;
  Method<v1::SetLogLevelRequest, v1::SetLogLevelResponse> set_log_level_;
  Method<v1::AdminSwapRequest, v1::AdminSwapResponse> swap_;
  Method<v1::AdminPrefetchRequest, v1::AdminPrefetchResponse> prefetch_;
  Method<v1::CalibrateRequest, v1::CalibrateResponse> calibrate_;
};

void AdminService::Serve(CallScope& scope) {
  const auto arm = [&](auto& method, auto request, auto handle) {
    ArmMethod(scope, service_, method, request, handle);
  };
  using Async = v1::Admin::AsyncService;
  arm(set_watermarks_, &Async::RequestSetWatermarks, [this](auto* call) { SetWatermarks(call); });
  arm(evict_, &Async::RequestEvict, [this](auto* call) { Evict(call); });
  arm(drain_, &Async::RequestDrain, [this](auto* call) { Drain(call); });
  arm(resize_tier_, &Async::RequestResizeTier, [this](auto* call) { ResizeTier(call); });
  arm(compact_, &Async::RequestCompact, [this](auto* call) { Compact(call); });
  arm(set_log_level_, &Async::RequestSetLogLevel, [this](auto* call) { SetLogLevel(call); });
  arm(swap_, &Async::RequestSwap, [this](auto* call) { Swap(call); });
  arm(prefetch_, &Async::RequestPrefetch, [this](auto* call) { Prefetch(call); });
  arm(calibrate_, &Async::RequestCalibrate, [this](auto* call) { Calibrate(call); });
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
                             call->response().set_dropped_tensors(result->dropped);
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

void AdminService::ResizeTier(Call<v1::ResizeTierRequest, v1::ResizeTierResponse>* call) {
  Await(call, [this, call, deadline = call->deadline()] {
    return manager_.ResizeTier(call->request().tier(), call->request().bytes(), deadline,
                               [this, call](const absl::StatusOr<core::ResizeResult>& result) {
                                 if (result.ok()) {
                                   call->response().set_old_bytes(result->old_bytes);
                                   call->response().set_new_bytes(result->new_bytes);
                                   call->response().set_freed_bytes(result->freed_bytes);
                                   call->response().set_tensors(result->tensors);
                                   call->response().set_dropped_tensors(result->dropped);
                                 }
                                 FinishAtHome(call, result.status());
                               });
  });
}

void AdminService::Compact(Call<v1::CompactRequest, v1::CompactResponse>* call) {
  Await(call, [this, call, deadline = call->deadline()] {
    return manager_.Compact(call->request().tier(), deadline,
                            [this, call](const absl::StatusOr<core::CompactResult>& result) {
                              if (result.ok()) {
                                call->response().set_returned_bytes(result->returned_bytes);
                                call->response().set_moved_bytes(result->moved_bytes);
                                call->response().set_tensors(result->tensors);
                                call->response().set_pinned_chunks(result->pinned_windows);
                              }
                              FinishAtHome(call, result.status());
                            });
  });
}

void AdminService::SetLogLevel(Call<v1::SetLogLevelRequest, v1::SetLogLevelResponse>* call) {
  gate_.Run(
      [this, call] {
        call->response().set_epoch(manager_.boot_epoch());
        call->response().set_previous(LogLevel());
        const absl::Status status = daemon::SetLogLevel(call->request().level());
        manager_.NoteAdmin("SetLogLevel", call->request().level(), status);
        return status;
      },
      [call](const absl::Status& status) { call->Finish(status); });
}

void AdminService::Swap(Call<v1::AdminSwapRequest, v1::AdminSwapResponse>* call) {
  auto selector = Decode(call->request().tensors());
  if (!selector.ok()) return call->Finish(selector.status());
  Await(call, [this, call, deadline = call->deadline(), selector = *std::move(selector)]() mutable {
    return manager_.SwapMany(std::move(selector), call->request().tier(), deadline,
                             [this, call](const absl::StatusOr<core::SwapManyResult>& result) {
                               v1::AdminSwapResponse& out = call->response();
                               if (result.ok()) {
                                 out.set_tensors(result->tensors);
                                 out.set_moved_bytes(result->moved_bytes);
                                 out.set_there_tensors(result->there);
                                 out.set_left_tensors(result->left);
                                 out.set_pinned_tensors(result->pinned);
                                 out.set_failed_tensors(result->failed);
                                 if (!result->first_error.ok()) {
                                   EncodeError(result->first_error, *out.mutable_first_error());
                                 }
                               }
                               FinishAtHome(call, result.status());
                             });
  });
}

void AdminService::Prefetch(Call<v1::AdminPrefetchRequest, v1::AdminPrefetchResponse>* call) {
  gate_.Run(
      [this, call]() -> absl::Status {
        v1::AdminPrefetchResponse& out = call->response();
        out.set_epoch(manager_.boot_epoch());
        HMM_ASSIGN_OR_RETURN(core::TensorSelector selector, Decode(call->request().tensors()));
        HMM_ASSIGN_OR_RETURN(const core::PrefetchManyResult result,
                             manager_.PrefetchMany(std::move(selector), call->request().tier()));
        out.set_tensors(result.taken);
        out.set_dropped_tensors(result.dropped);
        if (!result.first_error.ok()) EncodeError(result.first_error, *out.mutable_first_error());
        return absl::OkStatus();
      },
      [call](const absl::Status& status) { call->Finish(status); });
}

// As Evict.
void AdminService::Calibrate(Call<v1::CalibrateRequest, v1::CalibrateResponse>* call) {
  const auto op = std::make_shared<core::Manager::OpId>(0);
  const TimePoint deadline = call->deadline();
  call->OnCancel([this, op] { gate_.ToCore([this, op] { manager_.Cancel(*op); }); });
  gate_.ToCore([this, call, op, deadline] {
    call->response().set_epoch(manager_.boot_epoch());
    *op = manager_.Calibrate(
        deadline, [this, call](absl::StatusOr<std::vector<copy::LinkModel>> links) {
          if (links.ok()) {
            const std::vector<std::string> names = TierNames(manager_);
            for (const copy::LinkModel& link : *links) {
              Encode(link, names, *call->response().add_links());
            }
          }
          gate_.ToHome([call, status = links.status()] { call->Finish(status); });
        });
  });
}

}  // namespace

std::unique_ptr<Service> CreateAdminService(core::Manager& manager, CoreGate gate) {
  return std::make_unique<AdminService>(manager, gate);
}

}  // namespace hmm::daemon
