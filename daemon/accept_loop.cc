// SPDX-License-Identifier: Apache-2.0
#include "daemon/accept_loop.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace hmm::daemon {
namespace {

using std::chrono::milliseconds;

// Accepted at one go before other sockets get their turn.
constexpr int kBurst = 16;
constexpr milliseconds kBackOff{20};

share::UniqueFd OpenSpare() { return share::UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

int AcceptOn(int listener) {
  return accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

}  // namespace

AcceptLoop::AcceptLoop(boost::asio::io_context& io, std::string name, OnAccept on_accept)
    : listener_(io), timer_(io), name_(std::move(name)), on_accept_(std::move(on_accept)) {}

void AcceptLoop::Start(share::UniqueFd listener) {
  spare_ = OpenSpare();
  listener_.assign(listener.Release());
  Wait();
}

void AcceptLoop::Stop() {
  stopped_ = true;
  boost::system::error_code ignored;
  listener_.close(ignored);
  timer_.cancel();
}

void AcceptLoop::Wait() {
  listener_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                       [this](boost::system::error_code error) {
                         if (!error && !stopped_) Accept();
                       });
}

void AcceptLoop::Accept() {
  for (int i = 0; i < kBurst; ++i) {
    share::UniqueFd connection(AcceptOn(listener_.native_handle()));
    if (connection.valid()) {
      on_accept_(std::move(connection));
      continue;
    }
    switch (errno) {
      case EAGAIN:
        return Wait();
      case ECONNABORTED:
      case EINTR:
        continue;
      case EMFILE:
      case ENFILE:
        Shed();
        return BackOff();
      default:
        if (limit_.Allow()) spdlog::error("{}: accept: {}", name_, std::strerror(errno));
        return BackOff();
    }
  }
  Wait();
}

// Whoever waits in the queue learns now that there is no place, instead of hanging until there is.
void AcceptLoop::Shed() {
  std::size_t shed = 0;
  for (int i = 0; i < kBurst; ++i) {
    spare_.Reset();
    share::UniqueFd connection(AcceptOn(listener_.native_handle()));
    if (connection.valid()) ++shed;
    const bool more = connection.valid();
    connection.Reset();
    if (!spare_.valid()) spare_ = OpenSpare();
    if (!more || !spare_.valid()) break;
  }
  if (!limit_.Allow()) return;
  spdlog::warn("{}: out of file descriptors, turned away {} connections (raise LimitNOFILE)", name_,
               shed);
}

void AcceptLoop::BackOff() {
  timer_.expires_after(kBackOff);
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error && !stopped_) Wait();
  });
}

}  // namespace hmm::daemon
