// SPDX-License-Identifier: Apache-2.0
//
// Accepts the connections of one gRPC server, on one socket or several, and hands them over, after
// a look at who connects and how many are open. The only place that knows gRPC's external acceptor
// (an experimental API).
//
// A connection is counted until it is closed by either side: gRPC owns the descriptor, so a
// duplicate of it is watched for the hang-up.
//
// Threads: constructed before the server is built; Start and Stop on the io thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <deque>
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

  // Once for each socket; `name` is for the log. `connections_max`: of this socket, within those of
  // all; 0: no bound of its own. A uid, too, may have its core::TenantShare of all at most, but for
  // operators. REQUIRES: the server runs.
  void Start(share::UniqueFd listener, std::string name, std::size_t connections_max);
  // Open connections stay; gRPC ends them.
  void Stop();

 private:
  struct Socket {
    std::string name;
    int fd;
    std::size_t connections_max;
    AcceptLoop loop;
    std::size_t open = 0;
  };
  struct Connection {
    boost::asio::posix::stream_descriptor descriptor;
    Socket& from;
    std::uint32_t uid;
  };
  using Watched = std::list<Connection>;

  void HandOver(Socket& from, share::UniqueFd connection);
  // As many as may be of one socket and uid.
  bool HasItsShare(const Socket& from, std::uint32_t uid) const;
  void Watch(Socket& from, std::uint32_t uid, share::UniqueFd duplicate);
  void Forget(Watched::iterator it);
  void Turn(const Socket& from, const std::string& why);

  boost::asio::io_context& io_;
  const AcceptorOptions options_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc_;
  std::deque<Socket> sockets_;  // stay where they are: loops are running
  Watched watched_;
  bool stopped_ = false;
  LogLimit limit_;
};

}  // namespace hmm::daemon
