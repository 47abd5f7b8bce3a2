// SPDX-License-Identifier: Apache-2.0
#include "daemon/acceptor.h"

#include <fcntl.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "daemon/text.h"
#include "hmm/types.h"

namespace hmm::daemon {

using grpc::experimental::ExternalConnectionAcceptor;

Acceptor::Acceptor(boost::asio::io_context& io, grpc::ServerBuilder& builder,
                   AcceptorOptions options)
    : io_(io),
      options_(std::move(options)),
      grpc_(builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
          grpc::InsecureServerCredentials())) {
  HMM_CHECK(grpc_ != nullptr);
}

Acceptor::~Acceptor() = default;

void Acceptor::Start(share::UniqueFd listener, std::string name, std::size_t connections_max) {
  const std::size_t at = sockets_.size();
  const int fd = listener.get();
  sockets_.push_back(
      {name, fd, connections_max, AcceptLoop(io_, name, [this, at](share::UniqueFd connection) {
         HandOver(sockets_[at], std::move(connection));
       })});
  sockets_.back().loop.Start(std::move(listener));
}

void Acceptor::Stop() {
  for (Socket& socket : sockets_) socket.loop.Stop();
  stopped_ = true;  // a handler may be queued already, and `it` is gone
  watched_.clear();
}

void Acceptor::HandOver(Socket& from, share::UniqueFd connection) {
  const auto peer = GetPeer(connection.get());
  if (!peer.ok()) return Turn(from, std::string(MessageOf(peer.status())));
  if (const auto status = Authorize(*peer, options_.role, options_.overflow_uid); !status.ok()) {
    return Turn(from, std::string(MessageOf(status)));
  }
  if (watched_.size() >= options_.connections_max) {
    return Turn(from, Cat(options_.connections_max, " connections are open already"));
  }
  if (from.connections_max > 0 && from.open >= from.connections_max) {
    return Turn(from, Cat(from.connections_max, " connections of this tenant are open already"));
  }
  if (HasItsShare(from, peer->uid)) {
    return Turn(from, Cat("uid ", peer->uid, " has its share of connections already"));
  }
  share::UniqueFd duplicate(fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
  if (!duplicate.valid()) return Turn(from, "out of file descriptors");
  Watch(from, peer->uid, std::move(duplicate));
  ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.listener_fd = from.fd;
  parameters.fd = connection.Release();
  grpc_->HandleNewConnection(&parameters);
}

bool Acceptor::HasItsShare(const Socket& from, std::uint32_t uid) const {
  const std::size_t share = core::TenantShare(options_.connections_max);
  if (options_.role != Role::kTenant || watched_.size() < share) return false;
  const auto count = std::count_if(watched_.begin(), watched_.end(), [&](const Connection& one) {
    return &one.from == &from && one.uid == uid;
  });
  return static_cast<std::size_t>(count) >= share;
}

void Acceptor::Watch(Socket& from, std::uint32_t uid, share::UniqueFd duplicate) {
  const auto it = watched_.insert(
      watched_.end(),
      Connection{boost::asio::posix::stream_descriptor(io_, duplicate.Release()), from, uid});
  ++from.open;
  it->descriptor.async_wait(boost::asio::posix::descriptor_base::wait_error,
                            [this, it](boost::system::error_code error) {
                              if (error != boost::asio::error::operation_aborted && !stopped_)
                                Forget(it);
                            });
  if (options_.on_count) options_.on_count(watched_.size());
}

void Acceptor::Forget(Watched::iterator it) {
  --it->from.open;
  watched_.erase(it);
  if (options_.on_count) options_.on_count(watched_.size());
}

void Acceptor::Turn(const Socket& from, const std::string& why) {
  if (!limit_.Allow()) return;
  spdlog::warn("{}: turned a connection away: {}", from.name, why);
}

}  // namespace hmm::daemon
