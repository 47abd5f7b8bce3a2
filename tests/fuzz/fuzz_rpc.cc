// SPDX-License-Identifier: Apache-2.0
//
// Every method of every service, as bytes that any client may send: the daemon's own handlers
// behind gRPC (within the process, no network), over the core with small fake tiers. A script of
// calls by two sessions of two tenants, an operator and nobody. Whatever is asked: each call is
// answered, an answer is the type it should be, an error says its reason, none is INTERNAL, and the
// core stays whole.
#include <google/protobuf/stubs/logging.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/authenticate.h"
#include "daemon/call.h"
#include "daemon/service.h"
#include "fuzz/core_world.h"
#include "fuzz/message_mutator.h"
#include "fuzz/require.h"
#include "fuzz/rpc_script.h"
#include "google/rpc/errors.pb.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t size_max);

namespace {

using namespace hmm;
using fuzz::Require;
using fuzz::RpcRecord;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;
using google::protobuf::Reflection;
using std::chrono::milliseconds;

constexpr std::size_t kHandlesMax = 32;
constexpr int kReadsMax = 3;  // of a stream, then it is given up

// One call of a client, unary or a stream, whatever the method is. One event is under way at a
// time.
class ClientCall {
 public:
  ClientCall(grpc::GenericStub& stub, grpc::CompletionQueue& queue, const MethodDescriptor& method,
             const std::string& message, const std::string& token)
      : method_(method) {
    if (!token.empty()) context_.AddMetadata(std::string(daemon::kTokenKey), token);
    const grpc::Slice slice(message);
    request_ = grpc::ByteBuffer(&slice, 1);
    const std::string path = absl::StrCat("/", method.service()->full_name(), "/", method.name());
    if (method.client_streaming() || method.server_streaming()) {
      stream_ = stub.PrepareCall(&context_, path, &queue);
      stream_->StartCall(this);
    } else {
      unary_ = stub.PrepareUnaryCall(&context_, path, request_, &queue);
      unary_->StartCall();
      unary_->Finish(&response_, &status_, this);
      stage_ = Stage::kFinishing;
    }
  }

  void Proceed(bool ok) {
    if (stage_ == Stage::kReading && ok) responses_.push_back(response_);
    switch (stage_) {
      case Stage::kStarting:
        stage_ = Stage::kWriting;
        return ok ? stream_->WriteLast(request_, {}, this) : Finish();
      case Stage::kWriting:
      case Stage::kReading:
        if (!ok || responses_.size() >= kReadsMax) return Finish();
        stage_ = Stage::kReading;
        return stream_->Read(&response_, this);
      case Stage::kFinishing:
        stage_ = Stage::kDone;
        if (unary_ != nullptr && status_.ok()) responses_.push_back(response_);
        return;
      case Stage::kDone:
        return;
    }
  }
  void GiveUp() { context_.TryCancel(); }
  bool done() const { return stage_ == Stage::kDone; }
  const MethodDescriptor& method() const { return method_; }
  const grpc::Status& status() const { return status_; }
  std::vector<grpc::ByteBuffer>& responses() { return responses_; }

 private:
  enum class Stage { kStarting, kWriting, kReading, kFinishing, kDone };

  void Finish() {
    if (responses_.size() >= kReadsMax) context_.TryCancel();
    stage_ = Stage::kFinishing;
    stream_->Finish(&status_, this);
  }

  const MethodDescriptor& method_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  std::vector<grpc::ByteBuffer> responses_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> unary_;
  grpc::Status status_;
  Stage stage_ = Stage::kStarting;
};

// A server as the daemon has two, drained by hand.
class Side {
 public:
  explicit Side(std::vector<std::unique_ptr<daemon::Service>> services)
      : services_(std::move(services)) {
    grpc::ServerBuilder builder;
    queue_ = builder.AddCompletionQueue();
    for (const auto& service : services_) service->Register(builder);
    server_ = builder.BuildAndStart();
    Require(server_ != nullptr, "gRPC builds a server");
    scope_.queue = queue_.get();
    scope_.armed_max = 1;
    scope_.epoch = 7;
    for (const auto& service : services_) service->Serve(scope_);
    stub_ = std::make_unique<grpc::GenericStub>(server_->InProcessChannel({}));
  }
  grpc::GenericStub& stub() { return *stub_; }
  std::size_t live() const { return scope_.live; }
  // Handles what has come; false when there was nothing.
  bool Turn() {
    void* tag = nullptr;
    bool ok = false;
    if (queue_->AsyncNext(&tag, &ok, gpr_inf_past(GPR_CLOCK_MONOTONIC)) !=
        grpc::CompletionQueue::GOT_EVENT) {
      return false;
    }
    static_cast<daemon::CqTag*>(tag)->Proceed(ok);
    return true;
  }
  void EndStreams() {
    scope_.arming = false;
    for (const auto& service : services_) service->EndStreams();
  }
  void Shutdown() {
    server_->Shutdown(std::chrono::system_clock::now());
    queue_->Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) static_cast<daemon::CqTag*>(tag)->Proceed(ok);
    Require(scope_.live == 0, "no call lives on");
  }

 private:
  std::vector<std::unique_ptr<daemon::Service>> services_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  daemon::CallScope scope_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::GenericStub> stub_;
};

class RpcWorld {
 public:
  RpcWorld() {
    const daemon::CoreGate gate = daemon::CoreGate::Inline(world_.executor());
    core::Manager& manager = world_.manager();
    std::vector<std::unique_ptr<daemon::Service>> services;
    services.push_back(daemon::CreateMemoryService(manager, world_.options()));
    services.push_back(daemon::CreateRegionService(manager, world_.options()));
    services.push_back(daemon::CreateInspectionService(manager, gate, /*tenant_view=*/true, 8));
    services.push_back(daemon::CreateHealthService(manager, health_, gate));
    tenant_ = std::make_unique<Side>(std::exchange(services, {}));
    services.push_back(daemon::CreateAdminService(manager, gate));
    services.push_back(daemon::CreateInspectionService(manager, gate, /*tenant_view=*/false, 8));
    services.push_back(daemon::CreateHealthService(manager, health_, gate));
    services.push_back(daemon::CreateReflectionService({"hmm.v1.Admin"}));
    admin_ = std::make_unique<Side>(std::move(services));
    Attach();
  }

  void Play(const std::vector<RpcRecord>& records) {
    for (const RpcRecord& record : records) {
      Send(record);
      Pump();
      if ((record.flags & fuzz::kFlagGiveUp) != 0) calls_.back()->GiveUp();
      if ((record.flags & fuzz::kFlagPass) != 0) {
        world_.EndCopies(8);
        world_.Run(milliseconds(5));
      }
      if ((record.flags & fuzz::kFlagDie) != 0) Die();
      Pump();
      Judge();
      world_.Validate();
    }
    End();
  }

 private:
  void Attach() {
    for (const char* tenant : {"one", "two"}) {
      const auto grant = world_.Open(tenant);
      if (!grant.ok()) continue;  // draining
      sessions_.push_back(grant->session);
      tokens_[tenant == std::string("two")] = std::string(grant->token.begin(), grant->token.end());
    }
  }
  void Die() {
    for (const SessionId session : sessions_) world_.manager().ReapSession(session);
    sessions_.clear();
    Attach();
  }

  void Send(const RpcRecord& record) {
    const MethodDescriptor& method = fuzz::MethodOf(record);
    const std::string& service = method.service()->full_name();
    const bool admin_only = service == "hmm.v1.Admin" || service.starts_with("grpc.reflection");
    const bool tenant_only = service == "hmm.v1.Memory" || service == "hmm.v1.Regions";
    const bool admin = admin_only || (!tenant_only && (record.flags & fuzz::kFlagAdmin) != 0);
    Side& side = admin ? *admin_ : *tenant_;
    std::string message = record.message;
    if ((record.flags & fuzz::kFlagRaw) == 0) {
      const auto parsed = fuzz::NewMessage(*method.input_type());
      if (parsed->ParseFromString(message)) {
        Resolve(*parsed);
        message = parsed->SerializeAsString();
      }
    }
    const std::uint8_t who = record.flags & fuzz::kFlagWhoMask;
    const std::string token = who == 3 ? "" : tokens_[who == 2 ? 1 : 0];
    calls_.push_back(
        std::make_unique<ClientCall>(side.stub(), client_queue_, method, message, token));
  }

  // Small numbers stand for handles, calls and page tokens that were given out: nobody guesses
  // them.
  void Resolve(Message& message) {
    const Reflection& r = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    r.ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      const std::string& name = field->name();
      const bool list = field->is_repeated();
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        for (int i = 0; list && i < r.FieldSize(message, field); ++i) {
          Resolve(*r.MutableRepeatedMessage(&message, field, i));
        }
        if (!list) Resolve(*r.MutableMessage(&message, field));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64 &&
                 (name == "handle" || name == "handles" || name == "taken")) {
        for (int i = 0; list && i < r.FieldSize(message, field); ++i) {
          r.SetRepeatedUInt64(&message, field, i, Known(r.GetRepeatedUInt64(message, field, i)));
        }
        if (!list) r.SetUInt64(&message, field, Known(r.GetUInt64(message, field)));
      } else if (name == "call_id" && r.GetUInt64(message, field) < 16 &&
                 message.GetDescriptor()->name() == "CallHeader") {
        r.SetUInt64(&message, field, ++last_call_);
      } else if (name == "call_id" && r.GetUInt64(message, field) < 16) {
        r.SetUInt64(&message, field,
                    last_call_ - std::min(last_call_, r.GetUInt64(message, field)));
      } else if (name == "page_token" && r.GetString(message, field) == "t") {
        r.SetString(&message, field, page_token_);
      }
    }
  }
  std::uint64_t Known(std::uint64_t index) const {
    return index < 64 && !handles_.empty() ? handles_[index % handles_.size()] : index;
  }
  void Learn(const Message& message) {
    const Reflection& r = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    r.ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        for (int i = 0; field->is_repeated() && i < r.FieldSize(message, field); ++i) {
          Learn(r.GetRepeatedMessage(message, field, i));
        }
      } else if (field->name() == "handle" && handles_.size() < kHandlesMax) {
        handles_.push_back(r.GetUInt64(message, field));
      } else if (field->name() == "next_page_token") {
        page_token_ = r.GetString(message, field);
      } else if (field->name() == "epoch") {
        Require(r.GetUInt64(message, field) == world_.options().boot_epoch, "the epoch is told");
      }
    }
  }

  // All of the process's work, until there is none.
  void Pump() {
    constexpr int kRoundsMax = 200'000;
    constexpr int kIdleRounds = 3;
    int idle = 0;
    for (int round = 0; round < kRoundsMax && idle < kIdleRounds; ++round) {
      bool did = tenant_->Turn();
      did = admin_->Turn() || did;
      did = ClientTurn() || did;
      did = world_.executor().RunReady(100) > 0 || did;
      idle = did ? 0 : idle + 1;
    }
    Require(idle == kIdleRounds, "calls come to rest");
  }
  bool ClientTurn() {
    void* tag = nullptr;
    bool ok = false;
    if (client_queue_.AsyncNext(&tag, &ok, gpr_inf_past(GPR_CLOCK_MONOTONIC)) !=
        grpc::CompletionQueue::GOT_EVENT) {
      return false;
    }
    static_cast<ClientCall*>(tag)->Proceed(ok);
    return true;
  }

  // Looks at the calls that have ended, and forgets them.
  void Judge() {
    for (const auto& call : calls_) {
      if (!call->done()) continue;
      const std::string what = call->method().full_name();
      for (grpc::ByteBuffer& buffer : call->responses()) {
        grpc::Slice bytes;
        const auto response = fuzz::NewMessage(*call->method().output_type());
        Require(buffer.DumpToSingleSlice(&bytes).ok() &&
                    response->ParseFromArray(bytes.begin(), static_cast<int>(bytes.size())),
                what + " answers what it declares");
        Learn(*response);
      }
      if (!call->status().ok()) JudgeError(call->status(), what);
    }
    std::erase_if(calls_, [](const auto& call) { return call->done(); });
  }
  static void JudgeError(const grpc::Status& status, const std::string& what) {
    if (status.error_details().empty()) {
      // gRPC's own: cancelled by us, or bytes that are no message.
      Require(status.error_code() == grpc::StatusCode::CANCELLED ||
                  status.error_code() == grpc::StatusCode::INTERNAL || what.starts_with("grpc."),
              absl::StrCat(what, " is served: ", status.error_code(), " ", status.error_message()));
      return;
    }
    Require(status.error_details().size() < 4096, what + ": details below 4 KiB");
    google::rpc::Status rich;
    google::rpc::ErrorInfo info;
    Require(rich.ParseFromString(status.error_details()) && rich.details_size() > 0 &&
                rich.details(0).UnpackTo(&info),
            what + ": an error carries its ErrorInfo");
    Require(info.domain() == "hmm" && ReasonFromName(info.reason()).has_value(),
            what + ": a known reason");
    Require(info.reason() != "INTERNAL",
            absl::StrCat(what, " fails by our own fault: ", status.error_message()));
  }

  void End() {
    for (const auto& call : calls_) call->GiveUp();
    tenant_->EndStreams();
    admin_->EndStreams();
    const auto over = [&] {
      Pump();
      return std::all_of(calls_.begin(), calls_.end(), [](const auto& c) { return c->done(); }) &&
             tenant_->live() + admin_->live() == 0;
    };
    world_.RunUntil(over, "calls that are given up end");
    Judge();
    tenant_->Shutdown();
    admin_->Shutdown();
    client_queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (client_queue_.Next(&tag, &ok)) static_cast<ClientCall*>(tag)->Proceed(ok);
    world_.Validate();
    tenant_.reset();
    admin_.reset();
    world_.Empty();
  }

  fuzz::CoreWorld world_;
  daemon::HealthState health_;
  grpc::CompletionQueue client_queue_;
  std::unique_ptr<Side> tenant_;
  std::unique_ptr<Side> admin_;
  std::deque<std::unique_ptr<ClientCall>> calls_;
  std::vector<SessionId> sessions_;
  std::array<std::string, 2> tokens_;
  std::vector<std::uint64_t> handles_;
  std::string page_token_ = "t";
  std::uint64_t last_call_ = 0;
};

// One record's message, as a message.
void MutateMessage(RpcRecord& record, unsigned seed) {
  constexpr std::size_t kMessageMax = 1024;
  const auto message = fuzz::NewMessage(*fuzz::MethodOf(record).input_type());
  std::string bytes = record.message;
  const std::size_t size = std::min(bytes.size(), kMessageMax);
  bytes.resize(kMessageMax);
  bytes.resize(fuzz::MutateAsMessage(*message, /*text_too=*/false,
                                     reinterpret_cast<std::uint8_t*>(bytes.data()), size,
                                     kMessageMax, seed));
  record.message = std::move(bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  [[maybe_unused]] static const bool silent = [] {
    spdlog::set_default_logger(spdlog::null_logger_mt("fuzz"));
    google::protobuf::SetLogHandler(nullptr);
    return true;
  }();
  RpcWorld().Play(fuzz::ParseRpcScript({reinterpret_cast<const char*>(data), size}));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned seed) {
  constexpr std::size_t kRecordsMax = 24;
  std::vector<RpcRecord> records =
      fuzz::ParseRpcScript({reinterpret_cast<const char*>(data), size});
  std::mt19937 rng(seed);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(rng() % n); };
  if (records.empty() || pick(16) == 0) return LLVMFuzzerMutate(data, size, size_max);
  const std::size_t at = pick(records.size());
  switch (pick(10)) {
    case 0:
      records[at].method = static_cast<std::uint8_t>(pick(fuzz::RpcMethods().size()));
      break;
    case 1:
      records[at].flags ^= static_cast<std::uint8_t>(1u << pick(8));
      break;
    case 2:
      if (records.size() > 1) records.erase(records.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 3:
      if (records.size() < kRecordsMax)
        records.insert(records.begin() + static_cast<std::ptrdiff_t>(pick(records.size())),
                       RpcRecord(records[at]));
      break;
    case 4:
      std::swap(records[at], records[pick(records.size())]);
      break;
    default:
      MutateMessage(records[at], static_cast<unsigned>(rng()));
  }
  const std::string out = fuzz::FormatRpcScript(records);
  if (out.size() > size_max) return LLVMFuzzerMutate(data, size, size_max);
  std::copy(out.begin(), out.end(), data);
  return out.size();
}
