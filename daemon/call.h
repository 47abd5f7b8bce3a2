// SPDX-License-Identifier: Apache-2.0
//
// One unary call on the async API, from arming to its last event.
//
//   armed --request--> live: handler runs (next one armed first) --Finish--> sent --+-> deleted
//     | shutdown                |                                                     |
//     `-> deleted               `-- done event (client gave up: on_cancel) ----------'
//
// A handler gets a Call* and must Finish it exactly once, on the queue's thread. Everything here is
// that thread's.
#pragma once

#include <google/protobuf/arena.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "base/check.h"
#include "base/executor.h"
#include "daemon/cq_executor.h"
#include "daemon/rpc_status.h"

namespace hmm::daemon {

// What the calls of one server share.
struct CallScope {
  grpc::ServerCompletionQueue* queue = nullptr;
  std::size_t armed_max = 16;  // requests armed per method; those beyond wait inside gRPC
  std::uint64_t epoch = 0;
  bool arming = true;    // false: calls under way finish, no new ones are taken
  std::size_t live = 0;  // calls with a handler or an event outstanding
};

// When a call has to be answered, on our clock: a little before the client's deadline (a fifth of
// what is left, kAnswerEarly at most); max() for none.
inline constexpr Duration kAnswerEarly = std::chrono::milliseconds(20);
TimePoint DeadlineOf(const grpc::ServerContext& context);
// First value of a metadata key.
std::optional<std::string_view> MetadataOf(const grpc::ServerContext& context,
                                           std::string_view key);

template <typename Request, typename Response>
class Call;

// Arms and handles one method. Outlives its calls.
template <typename Request, typename Response>
struct Method {
  using Writer = grpc::ServerAsyncResponseWriter<Response>;
  CallScope* scope = nullptr;
  // Asks gRPC for the next call of this method, `tag` being told when it is there.
  std::function<void(grpc::ServerContext*, Request*, Writer*, void* tag)> request;
  std::function<void(Call<Request, Response>*)> handle;

  void Arm() { new Call<Request, Response>(*this); }  // deletes itself
  void ArmAll() {
    for (std::size_t i = 0; i < scope->armed_max; ++i) Arm();
  }
};

template <typename Request, typename Response>
class Call {
 public:
  explicit Call(Method<Request, Response>& method)
      : method_(method), writer_(&context_), arrived_(*this), done_(*this), sent_(*this) {
    context_.AsyncNotifyWhenDone(&done_);
    method_.request(&context_, request_, &writer_, &arrived_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const Request& request() const { return *request_; }
  Response& response() { return *response_; }
  TimePoint deadline() const { return DeadlineOf(context_); }
  std::optional<std::string_view> Metadata(std::string_view key) const {
    return MetadataOf(context_, key);
  }

  // Runs at most once, before Finish, if the client gives up or its connection breaks.
  void OnCancel(absl::AnyInvocable<void()> on_cancel) { on_cancel_ = std::move(on_cancel); }

  // Sends the response or the error. The call is not the handler's any more.
  void Finish(const absl::Status& status) {
    HMM_CHECK(!finished_);
    finished_ = true;
    on_cancel_ = nullptr;
    ++events_;
    if (status.ok()) {
      writer_.Finish(*response_, grpc::Status::OK, &sent_);
    } else {
      writer_.FinishWithError(ToGrpcStatus(status, method_.scope->epoch), &sent_);
    }
  }

 private:
  // The three events of a call; each calls back with its own tag.
  template <void (Call::*kMember)(bool)>
  class Event final : public CqTag {
   public:
    explicit Event(Call& call) : call_(call) {}
    void Proceed(bool ok) override { (call_.*kMember)(ok); }

   private:
    Call& call_;
  };

  void Arrived(bool ok) {
    if (!ok) {  // the server shuts down; the done event never comes for a call that never began
      delete this;
      return;
    }
    ++events_;  // the done event
    ++method_.scope->live;
    if (method_.scope->arming) method_.Arm();
    method_.handle(this);
  }
  void Done(bool /*ok*/) {
    if (!finished_ && context_.IsCancelled() && on_cancel_) {
      // Usually ends in Finish, which clears on_cancel_: run a copy.
      absl::AnyInvocable<void()> on_cancel = std::move(on_cancel_);
      on_cancel_ = nullptr;
      on_cancel();
    }
    EndEvent();
  }
  void Sent(bool /*ok*/) { EndEvent(); }
  void EndEvent() {
    if (--events_ > 0 || !finished_) return;
    --method_.scope->live;
    delete this;
  }

  Method<Request, Response>& method_;
  grpc::ServerContext context_;
  // Both messages and all their parts in one piece: a batch has hundreds.
  alignas(8) char first_block_[1024];
  google::protobuf::Arena arena_{first_block_, sizeof(first_block_)};
  Request* const request_ = google::protobuf::Arena::CreateMessage<Request>(&arena_);
  Response* const response_ = google::protobuf::Arena::CreateMessage<Response>(&arena_);
  grpc::ServerAsyncResponseWriter<Response> writer_;
  Event<&Call::Arrived> arrived_;
  Event<&Call::Done> done_;
  Event<&Call::Sent> sent_;
  absl::AnyInvocable<void()> on_cancel_;
  int events_ = 0;  // outstanding: done, sent
  bool finished_ = false;
};

// Arms `method` of `service`, which outlives it. `request` is the service's member that asks gRPC
// for one call of it, `handle` gets each. Once a method, on the queue's thread or before it runs.
// Serves a StreamMethod as well.
template <typename AnyMethod, typename AsyncService, typename Request, typename Handle>
void ArmMethod(CallScope& scope, AsyncService& service, AnyMethod& method, Request request,
               Handle handle) {
  method.scope = &scope;
  method.request = [&service, request, queue = scope.queue](auto* context, auto* in, auto* writer,
                                                            void* tag) {
    (service.*request)(context, in, writer, queue, queue, tag);
  };
  method.handle = std::move(handle);
  method.ArmAll();
}

}  // namespace hmm::daemon
