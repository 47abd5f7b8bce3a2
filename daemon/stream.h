// SPDX-License-Identifier: Apache-2.0
//
// One server-streaming call on the async API, from arming to its last event.
//
//   armed --request--> live: handler runs --Write, written, Write ...--> Finish --sent--> gone
//     | shutdown          `-- done event (client gave up) : ends by itself
//     `-> gone
//
// One message is under way at a time: a client that does not read keeps Write from being written,
// and the stream holds no more than that one message. Finish waits for it; Break does not.
//
// Shared ownership: gRPC's events hold the stream until the last has come, whoever writes into it
// may hold it longer; a stream that has ended takes what it is given and does nothing. Everything
// here is the queue thread's.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "base/check.h"
#include "daemon/call.h"

namespace hmm::daemon {

template <typename Request, typename Response>
class Stream;

// Arms and handles one method. Outlives its streams.
template <typename Request, typename Response>
struct StreamMethod {
  using Writer = grpc::ServerAsyncWriter<Response>;
  CallScope* scope = nullptr;
  std::size_t armed_max = 4;
  std::function<void(grpc::ServerContext*, Request*, Writer*, void* tag)> request;
  std::function<void(std::shared_ptr<Stream<Request, Response>>)> handle;

  void Arm() { Stream<Request, Response>::Arm(*this); }
  void ArmAll() {
    for (std::size_t i = 0; i < armed_max; ++i) Arm();
  }
};

template <typename Request, typename Response>
class Stream : public std::enable_shared_from_this<Stream<Request, Response>> {
 public:
  using Method = StreamMethod<Request, Response>;
  using Written = absl::AnyInvocable<void(bool ok)>;

  static void Arm(Method& method) {
    std::shared_ptr<Stream> stream(new Stream(method));
    stream->self_ = stream;
    stream->context_.AsyncNotifyWhenDone(&stream->done_);
    method.request(&stream->context_, &stream->request_, &stream->writer_, &stream->arrived_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const Request& request() const { return request_; }
  std::optional<std::string_view> Metadata(std::string_view key) const {
    return MetadataOf(context_, key);
  }
  // Runs once, when nothing more can be written: finished, or the client is gone.
  void OnEnd(absl::AnyInvocable<void()> on_end) { on_end_ = std::move(on_end); }
  bool ended() const { return finish_.has_value() || gone_; }

  // REQUIRES: no message is under way. `written` runs when it has left, with false when it cannot.
  void Write(const Response& response, Written written) {
    HMM_CHECK(!writing_);
    if (ended()) return written(false);
    writing_ = true;
    written_ = std::move(written);
    ++events_;
    writer_.Write(response, &wrote_);
  }
  // Ends the stream with `status` when the message under way, if any, has left. The first counts.
  void Finish(const absl::Status& status) {
    if (ended()) return;
    finish_ = status;
    End();
    if (!writing_) SendFinish();
  }
  // Breaks it off: the message under way is lost.
  void Break() {
    if (!sent_finish_ && !gone_) context_.TryCancel();
  }

 private:
  template <void (Stream::*kMember)(bool)>
  class Event final : public CqTag {
   public:
    explicit Event(Stream& stream) : stream_(stream) {}
    void Proceed(bool ok) override { (stream_.*kMember)(ok); }

   private:
    Stream& stream_;
  };

  explicit Stream(Method& method)
      : method_(method),
        writer_(&context_),
        arrived_(*this),
        done_(*this),
        wrote_(*this),
        sent_(*this) {}

  void Arrived(bool ok) {
    const std::shared_ptr<Stream> self = self_;
    if (!ok) {  // the server shuts down; the done event never comes for a call that never began
      self_.reset();
      return;
    }
    ++events_;  // the done event
    ++method_.scope->live;
    if (method_.scope->arming) method_.Arm();
    method_.handle(self);
  }
  void Done(bool /*ok*/) {
    const std::shared_ptr<Stream> self = self_;
    gone_ = true;
    End();
    // gRPC wants a call finished even when nobody listens.
    if (!writing_ && !sent_finish_) SendFinish();
    EndEvent();
  }
  void Wrote(bool ok) {
    const std::shared_ptr<Stream> self = self_;
    writing_ = false;
    if (Written written = std::move(written_)) written(ok && !ended());
    if (!writing_ && ended() && !sent_finish_) SendFinish();
    EndEvent();
  }
  void Sent(bool /*ok*/) {
    const std::shared_ptr<Stream> self = self_;
    EndEvent();
  }

  void SendFinish() {
    sent_finish_ = true;
    ++events_;
    const absl::Status status = finish_.value_or(absl::CancelledError());
    writer_.Finish(status.ok() ? grpc::Status::OK : ToGrpcStatus(status, method_.scope->epoch),
                   &sent_);
  }
  void End() {
    if (absl::AnyInvocable<void()> on_end = std::exchange(on_end_, nullptr)) on_end();
  }
  void EndEvent() {
    if (--events_ > 0 || !sent_finish_) return;
    --method_.scope->live;
    self_.reset();
  }

  Method& method_;
  grpc::ServerContext context_;
  Request request_;
  grpc::ServerAsyncWriter<Response> writer_;
  Event<&Stream::Arrived> arrived_;
  Event<&Stream::Done> done_;
  Event<&Stream::Wrote> wrote_;
  Event<&Stream::Sent> sent_;
  absl::AnyInvocable<void()> on_end_;
  Written written_;
  std::optional<absl::Status> finish_;
  int events_ = 0;  // outstanding: done, wrote, sent
  bool writing_ = false;
  bool sent_finish_ = false;
  bool gone_ = false;
  std::shared_ptr<Stream> self_;  // while an event may come
};

}  // namespace hmm::daemon
