// SPDX-License-Identifier: Apache-2.0
//
// Accepts the connections of one gRPC server and hands them over, after a look at who connects and
// how many are open. The only place that knows gRPC's external acceptor (an experimental API).
//
// A connection is counted until it is closed by either side: gRPC owns the descriptor, so a
// duplicate of it is watched for the hang-up.
//
// Threads: constructed before the server is built; Start and Stop on the io thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "daemon/accept_loop.h"
#include "daemon/log_limit.h"
#include "daemon/peer.h"

namespace grpc {
class ServerBuilder;
namespace experimental {
class ExternalConnectionAcceptor;
}
}  // namespace grpc

namespace hmm::daemon {

struct AcceptorOptions {
  std::string name;  // of the socket, for the log
  Role role = Role::kTenant;
  std::size_t connections_max = 1024;  // open at once; those beyond are closed at once
  std::uint32_t overflow_uid = 65534;
  // Told (io thread) whenever the number of open connections changed.
  std::function<void(std::size_t open)> on_count;
};

class Acceptor {
 public:
  Acceptor(boost::asio::io_context& io, grpc::ServerBuilder& builder, AcceptorOptions options);
  ~Acceptor();

  // REQUIRES: the server runs.
  void Start(share::UniqueFd listener);
  // Open connections stay; gRPC ends them.
  void Stop();

 private:
  using Watched = std::list<boost::asio::posix::stream_descriptor>;

  void HandOver(share::UniqueFd connection);
  void Watch(share::UniqueFd duplicate);
  void Forget(Watched::iterator it);
  void Turn(const std::string& why);

  boost::asio::io_context& io_;
  const AcceptorOptions options_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc_;
  AcceptLoop loop_;
  int listener_fd_ = -1;
  Watched watched_;
  bool stopped_ = false;
  LogLimit limit_;
};

}  // namespace hmm::daemon
