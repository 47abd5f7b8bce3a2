// SPDX-License-Identifier: Apache-2.0
//
// grpc.reflection.v1alpha: lets a person with grpcurl see and call the admin server's services. One
// stream is one object; it reads, answers, reads again. Needs the queue's thread alone.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/call.h"
#include "daemon/service.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"

namespace hmm::daemon {
namespace {

namespace reflection = grpc::reflection::v1alpha;
using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using AsyncReflection = reflection::ServerReflection::AsyncService;

constexpr std::size_t kStreamsArmed = 2;

// A file and what it imports, imports first.
void AddFile(const FileDescriptor* file, std::set<const FileDescriptor*>& seen,
             reflection::FileDescriptorResponse& out) {
  if (!seen.insert(file).second) return;
  for (int i = 0; i < file->dependency_count(); ++i) AddFile(file->dependency(i), seen, out);
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  out.add_file_descriptor_proto(proto.SerializeAsString());
}

reflection::ServerReflectionResponse Answer(const reflection::ServerReflectionRequest& request,
                                            const std::vector<std::string>& services) {
  reflection::ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const FileDescriptor* file = nullptr;
  switch (request.message_request_case()) {
    case reflection::ServerReflectionRequest::kListServices:
      for (const std::string& name : services) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      return response;
    case reflection::ServerReflectionRequest::kFileByFilename:
      file = pool.FindFileByName(request.file_by_filename());
      break;
    case reflection::ServerReflectionRequest::kFileContainingSymbol:
      file = pool.FindFileContainingSymbol(request.file_containing_symbol());
      break;
    default:  // our messages have no extensions
      break;
  }
  if (file != nullptr) {
    std::set<const FileDescriptor*> seen;
    AddFile(file, seen, *response.mutable_file_descriptor_response());
  } else {
    response.mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
    response.mutable_error_response()->set_error_message("no such name here");
  }
  return response;
}

// Deletes itself at its end.
class Stream final : public CqTag {
 public:
  Stream(AsyncReflection& service, CallScope& scope, const std::vector<std::string>& services)
      : service_(service), scope_(scope), services_(services), stream_(&context_) {
    service_.RequestServerReflectionInfo(&context_, &stream_, scope_.queue, scope_.queue, this);
  }

  void Proceed(bool ok) override {
    switch (state_) {
      case State::kWaiting:
        if (!ok) return Delete();
        ++scope_.live;
        if (scope_.arming) new Stream(service_, scope_, services_);
        return Read();
      case State::kReading:
        if (!ok) return Finish();  // the client has no more questions
        state_ = State::kWriting;
        return stream_.Write(Answer(request_, services_), this);
      case State::kWriting:
        if (!ok) return Finish();
        return Read();
      case State::kFinishing:
        --scope_.live;
        return Delete();
    }
  }

 private:
  enum class State { kWaiting, kReading, kWriting, kFinishing };

  void Read() {
    state_ = State::kReading;
    stream_.Read(&request_, this);
  }
  void Finish() {
    state_ = State::kFinishing;
    stream_.Finish(grpc::Status::OK, this);
  }
  void Delete() { delete this; }

  AsyncReflection& service_;
  CallScope& scope_;
  const std::vector<std::string>& services_;
  grpc::ServerContext context_;
  reflection::ServerReflectionRequest request_;
  grpc::ServerAsyncReaderWriter<reflection::ServerReflectionResponse,
                                reflection::ServerReflectionRequest>
      stream_;
  State state_ = State::kWaiting;
};

class ReflectionService final : public Service {
 public:
  explicit ReflectionService(std::vector<std::string> services) : services_(std::move(services)) {}

  void Register(grpc::ServerBuilder& builder) override { builder.RegisterService(&service_); }
  void Serve(CallScope& scope) override {
    for (std::size_t i = 0; i < kStreamsArmed; ++i) new Stream(service_, scope, services_);
  }

 private:
  const std::vector<std::string> services_;
  AsyncReflection service_;
};

}  // namespace

std::unique_ptr<Service> CreateReflectionService(std::vector<std::string> services) {
  return std::make_unique<ReflectionService>(std::move(services));
}

}  // namespace hmm::daemon
