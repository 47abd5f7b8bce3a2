// SPDX-License-Identifier: Apache-2.0
#include "daemon/acceptor.h"

#include <fcntl.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <utility>

#include "base/check.h"
#include "daemon/text.h"

namespace hmm::daemon {

using grpc::experimental::ExternalConnectionAcceptor;

Acceptor::Acceptor(boost::asio::io_context& io, grpc::ServerBuilder& builder,
                   AcceptorOptions options)
    : io_(io),
      options_(std::move(options)),
      grpc_(builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
          grpc::InsecureServerCredentials())),
      loop_(io, options_.name,
            [this](share::UniqueFd connection) { HandOver(std::move(connection)); }) {
  HMM_CHECK(grpc_ != nullptr);
}

Acceptor::~Acceptor() = default;

void Acceptor::Start(share::UniqueFd listener) {
  listener_fd_ = listener.get();
  loop_.Start(std::move(listener));
}

void Acceptor::Stop() {
  loop_.Stop();
  stopped_ = true;  // a handler may be queued already, and `it` is gone
  watched_.clear();
}

void Acceptor::HandOver(share::UniqueFd connection) {
  const auto peer = GetPeer(connection.get());
  if (!peer.ok()) return Turn(std::string(MessageOf(peer.status())));
  if (const auto status = Authorize(*peer, options_.role, options_.overflow_uid); !status.ok()) {
    return Turn(std::string(MessageOf(status)));
  }
  if (watched_.size() >= options_.connections_max) {
    return Turn(Cat(options_.connections_max, " connections are open already"));
  }
  share::UniqueFd duplicate(fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
  if (!duplicate.valid()) return Turn("out of file descriptors");
  Watch(std::move(duplicate));
  ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.listener_fd = listener_fd_;
  parameters.fd = connection.Release();
  grpc_->HandleNewConnection(&parameters);
}

void Acceptor::Watch(share::UniqueFd duplicate) {
  const auto it = watched_.emplace(watched_.end(), io_, duplicate.Release());
  it->async_wait(boost::asio::posix::descriptor_base::wait_error,
                 [this, it](boost::system::error_code error) {
                   if (error != boost::asio::error::operation_aborted && !stopped_) Forget(it);
                 });
  if (options_.on_count) options_.on_count(watched_.size());
}

void Acceptor::Forget(Watched::iterator it) {
  watched_.erase(it);
  if (options_.on_count) options_.on_count(watched_.size());
}

void Acceptor::Turn(const std::string& why) {
  if (!limit_.Allow()) return;
  spdlog::warn("{}: turned a connection away: {}", options_.name, why);
}

}  // namespace hmm::daemon
