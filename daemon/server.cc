// SPDX-License-Identifier: Apache-2.0
#include "daemon/server.h"

#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <future>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace hmm::daemon {
namespace {

// Plugins register themselves when a library is loaded, for every server of the process (reflection
// does): none of them may appear on a server that did not ask.
class WithoutPlugins final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->clear();
  }
};

constexpr int kHandshakeMs = 5000;
constexpr std::size_t kRequestsMax = 8;                        // of the largest size at once
constexpr std::size_t kRequestsBytes = std::size_t{64} << 20;  // of small ones

}  // namespace

RpcServer::RpcServer(boost::asio::io_context& io, RpcServerOptions options)
    : options_(std::move(options)), builder_(std::make_unique<grpc::ServerBuilder>()) {
  std::unique_ptr<grpc::ServerCompletionQueue> queue = builder_->AddCompletionQueue();
  scope_.queue = queue.get();
  scope_.armed_max = options_.armed_max;
  executor_ = std::make_unique<CqExecutor>(std::move(queue));
  AcceptorOptions acceptor = options_.acceptor;
  acceptor.on_count = [this](std::size_t open) {
    std::lock_guard lock(mutex_);
    connections_ = open;
    changed_.notify_all();
  };
  acceptor_ = std::make_unique<Acceptor>(io, *builder_, std::move(acceptor));
}

RpcServer::~RpcServer() {
  Shutdown(std::chrono::milliseconds(0));
  // A server ends before its services, and before its queue.
  server_.reset();
}

absl::Status RpcServer::Start(std::vector<std::unique_ptr<Service>> services, std::uint64_t epoch) {
  services_ = std::move(services);
  scope_.epoch = epoch;
  builder_->SetOption(std::make_unique<WithoutPlugins>());
  builder_->SetMaxReceiveMessageSize(options_.message_bytes_max);
  builder_->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options_.streams_max);
  // Requests that are begun and never ended lie in memory, whoever sends them; over this bound of
  // all of them gRPC ends calls with RESOURCE_EXHAUSTED.
  const std::size_t requests_bytes_max =
      std::max(kRequestsBytes, kRequestsMax * static_cast<std::size_t>(options_.message_bytes_max));
  builder_->SetResourceQuota(grpc::ResourceQuota("hmmd").Resize(requests_bytes_max));
  // Who connects and says nothing gives its place back.
  builder_->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  for (const auto& service : services_) service->Register(*builder_);
  server_ = builder_->BuildAndStart();
  builder_.reset();
  if (server_ == nullptr) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal, "gRPC did not build a server");
  }
  for (const auto& service : services_) service->Serve(scope_);
  thread_ = std::thread([this] { Serve(); });
  return absl::OkStatus();
}

void RpcServer::Serve() {
  while (options_.park_when_idle) {
    {
      std::unique_lock lock(mutex_);
      // Events of the last call may come after its connection is gone.
      changed_.wait(lock, [this] { return closing_ || connections_ > 0 || scope_.live > 0; });
      if (closing_) break;
    }
    executor_->RunFor(std::chrono::milliseconds(50));
  }
  executor_->Run();
}

void RpcServer::AwaitIdle(std::chrono::steady_clock::time_point until) {
  std::promise<void> idle;
  // Looks again every millisecond; owned by itself so that it can post itself.
  struct Look {
    RpcServer& server;
    std::promise<void>& idle;
    std::chrono::steady_clock::time_point until;
    void operator()() {
      if (server.scope_.live == 0 || std::chrono::steady_clock::now() >= until) {
        return idle.set_value();
      }
      server.executor_->PostAfter(std::chrono::milliseconds(1), *this);
    }
  };
  executor_->Post(Look{*this, idle, until});
  idle.get_future().wait();
}

void RpcServer::Shutdown(std::chrono::milliseconds deadline) {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  // 1. No call is armed any more: arming on a queue that is shut is fatal.
  std::promise<void> disarmed;
  executor_->Post([&] {
    scope_.arming = false;
    for (const auto& service : services_) service->EndStreams();
    disarmed.set_value();
  });
  disarmed.get_future().wait();
  // 2. Calls under way end; those that are left at the deadline are cancelled, which ends them too.
  // The waiting is ours: gRPC's own would also wait for clients that are only connected.
  AwaitIdle(std::chrono::steady_clock::now() + deadline);
  server_->Shutdown(std::chrono::system_clock::now());
  AwaitIdle(std::chrono::steady_clock::time_point::max());
  // 3. The queue drains what is left (requests that never began) and its thread ends.
  executor_->Shutdown();
  thread_.join();
  HMM_CHECK(scope_.live == 0);
}

}  // namespace hmm::daemon
