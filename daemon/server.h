// SPDX-License-Identifier: Apache-2.0
//
// One gRPC server: its queue with the thread that drains it, its acceptor, its services. The daemon
// has two. The tenant server's queue is the core's executor.
//
//   construct -> executor() exists, tasks queue up
//   Start     -> thread runs, methods armed (no connection yet)
//   Listen    -> connections come in, for each socket    (io thread)
//   StopListening                                        (io thread)
//   Shutdown  -> calls under way end, at the latest cancelled at the deadline; thread joined
//
// Threads: the main thread, but for the two said otherwise.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "daemon/acceptor.h"
#include "daemon/call.h"
#include "daemon/cq_executor.h"
#include "daemon/service.h"

namespace grpc {
class Server;
class ServerBuilder;
}  // namespace grpc

namespace hmm::daemon {

struct RpcServerOptions {
  AcceptorOptions acceptor;
  std::size_t armed_max = 16;                // requests armed per method
  int message_bytes_max = 16 * 1024 * 1024;  // a longer request gets RESOURCE_EXHAUSTED
  int streams_max = 1024;                    // calls at once on one connection
  // The thread sleeps while no connection is open. gRPC's threads share one poll set: a second one
  // that waits there takes turns with the first, and costs each tenant call a thread hop (95 -> 117
  // us).
  bool park_when_idle = false;
};

class RpcServer {
 public:
  RpcServer(boost::asio::io_context& io, RpcServerOptions options);
  ~RpcServer();

  CqExecutor& executor() { return *executor_; }

  absl::Status Start(std::vector<std::unique_ptr<Service>> services, std::uint64_t epoch);
  // `connections_max`: Acceptor::Start.
  void Listen(share::UniqueFd listener, std::string name, std::size_t connections_max = 0) {
    acceptor_->Start(std::move(listener), std::move(name), connections_max);
  }
  void StopListening() { acceptor_->Stop(); }
  // REQUIRES: StopListening has run. Idempotent.
  void Shutdown(std::chrono::milliseconds deadline);

 private:
  void Serve();
  // Until no call is live; the queue must not be shut before.
  void AwaitIdle(std::chrono::steady_clock::time_point until);

  const RpcServerOptions options_;
  std::unique_ptr<grpc::ServerBuilder> builder_;
  CallScope scope_;
  std::unique_ptr<CqExecutor> executor_;
  std::unique_ptr<Acceptor> acceptor_;
  std::vector<std::unique_ptr<Service>> services_;
  std::unique_ptr<grpc::Server> server_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_:
  std::size_t connections_ = 0;
  bool closing_ = false;

  std::thread thread_;
};

}  // namespace hmm::daemon
