// SPDX-License-Identifier: Apache-2.0
#include "daemon/sessions.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <utility>

#include "base/status.h"
#include "daemon/peer.h"
#include "daemon/session_message.h"
#include "daemon/text.h"
#include "share/foreign_file.h"

namespace hmm::daemon {

namespace asio = boost::asio;
using asio::posix::descriptor_base;

namespace {

// The last word on a socket. What is unread when a socket is closed costs its peer the answer
// (ECONNRESET), so nothing more is let in and the rest is thrown away.
void SendRefusal(int socket, const absl::Status& status) {
  shutdown(socket, SHUT_RD);
  char ignored = 0;
  while (recv(socket, &ignored, sizeof ignored, MSG_DONTWAIT | MSG_TRUNC) > 0) {
  }
  // A peer that does not even read its refusal loses nothing.
  SendMessage(socket, MakeRefusal(status)).IgnoreError();
}

}  // namespace

// All methods on the io thread, and so the destructor: a task of the executor moves its reference
// on to the io thread. Handlers hold a shared_ptr, so that a connection that is removed while one
// is queued stays valid; `state_` tells them that it is over.
class Sessions::Connection : public std::enable_shared_from_this<Sessions::Connection> {
 public:
  Connection(Sessions& owner, std::uint64_t id, share::UniqueFd socket, share::UniqueFd pidfd,
             Peer peer, std::string tenant)
      : owner_(owner),
        id_(id),
        peer_(peer),
        tenant_(std::move(tenant)),
        socket_(owner.io_, socket.Release()),
        process_(owner.io_, pidfd.Release()),
        timer_(owner.io_) {}

  void Start() {
    ++owner_.handshakes_;
    ++owner_.open_sockets_;
    timer_.expires_after(owner_.options_.handshake_timeout);
    timer_.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (!error && self->state_ == State::kGreeting) self->Close("no Hello in time");
    });
    process_.async_wait(descriptor_base::wait_read,
                        [self = shared_from_this()](boost::system::error_code error) {
                          if (!error) self->OnDeath();
                        });
    Read();
  }

  SessionId session() const { return session_; }
  const std::string& tenant() const { return tenant_; }
  bool open() const { return socket_.is_open(); }
  bool greeting() const { return open() && state_ == State::kGreeting; }

  // The socket's end of the session. The process is watched on if there is a session to reap.
  void Close(std::string_view why) {
    if (!socket_.is_open()) return;
    if (!why.empty() && owner_.limit_.Allow()) {
      spdlog::info("session {} (pid {}): closed: {}", session_, peer_.pid, why);
    }
    LeaveGreeting();
    // Also a duplicate in a forked child hears of it.
    shutdown(socket_.native_handle(), SHUT_RDWR);
    boost::system::error_code ignored;
    socket_.close(ignored);
    --owner_.open_sockets_;
    if (state_ == State::kActive) {
      owner_.executor_.Post(
          [manager = &owner_.manager_, session = session_] { manager->CloseSession(session); });
    }
    if (state_ == State::kGreeting) {
      state_ = State::kOver;
      Release();
    } else if (state_ == State::kActive) {
      state_ = State::kClosed;
    }
  }

  // Without a word to anybody.
  void Abandon() {
    state_ = State::kOver;
    Release();
  }

 private:
  enum class State {
    kGreeting,  // waits for Hello
    kOpening,   // the manager is asked
    kActive,
    kClosed,  // no socket; the process lives
    kOver,
  };

  void Read() {
    socket_.async_wait(descriptor_base::wait_read,
                       [self = shared_from_this()](boost::system::error_code error) {
                         if (!error && self->socket_.is_open()) self->OnReadable();
                       });
  }

  void OnReadable() {
    absl::StatusOr<SessionMessage> message =
        ReceiveMessage(socket_.native_handle(), owner_.strays_);
    if (!message.ok()) return Close(MessageOf(message.status()));
    if (std::holds_alternative<NothingYet>(*message)) return Read();
    if (std::holds_alternative<EndOfFile>(*message)) return Close("");
    if (const auto* hello = std::get_if<share::Hello>(&*message)) {
      if (state_ != State::kGreeting) return Close("a second Hello");
      return OnHello(*hello);
    }
    if (state_ != State::kActive) return Close("no Hello first");
    if (std::holds_alternative<share::Goodbye>(*message)) return OnEnd();
    if (auto* attach = std::get_if<Attach>(&*message)) return OnAttach(*attach);
    if (std::holds_alternative<share::EventsRequest>(*message)) return OnEventsRequest();
    OnSegmentRequest(std::get<share::SegmentRequest>(*message).segment);
  }

  // Nothing is read until the manager has answered: one question at a time.
  void OnHello(const share::Hello& hello) {
    const absl::StatusOr<std::string> device = CheckHello(hello);
    if (!device.ok()) return Refuse(device.status());
    LeaveGreeting();
    state_ = State::kOpening;
    core::SessionInfo info{.tenant = tenant_,
                           .uid = peer_.uid,
                           .pid = peer_.pid,
                           .command = CommandOf(peer_.pid),
                           .device = *device};
    owner_.executor_.Post([self = shared_from_this(), manager = &owner_.manager_, io = &owner_.io_,
                           info = std::move(info)]() mutable {
      asio::post(*io, [self = std::move(self), grant = manager->OpenSession(info)]() mutable {
        self->OnGrant(std::move(grant));
      });
    });
  }

  void OnGrant(absl::StatusOr<core::SessionGrant> grant) {
    if (state_ == State::kOver) return;  // stopping
    if (!grant.ok()) {
      state_ = State::kGreeting;  // there is no session
      if (dead_) return Abandon();
      return Refuse(grant.status());
    }
    session_ = grant->session;
    state_ = State::kActive;
    if (dead_) return OnDeath();
    const std::array<int, 2> descriptors = {grant->table.get(), grant->page.get()};
    const absl::Status sent = SendMessage(
        socket_.native_handle(), MakeWelcome(*grant, owner_.manager_.boot_epoch()), descriptors);
    if (!sent.ok()) return Close(MessageOf(sent));
    Read();
  }

  void OnSegmentRequest(SegmentId segment) {
    owner_.executor_.Post([self = shared_from_this(), manager = &owner_.manager_, io = &owner_.io_,
                           session = session_, segment]() mutable {
      share::SegmentReply reply;
      reply.segment = segment;
      share::UniqueFd fd;
      absl::StatusOr<tier::SegmentInfo> info = manager->GetSegment(session, segment);
      absl::Status status = info.status();
      if (info.ok()) {
        // The descriptor stays the tier's, which may close it before the io thread sends it.
        fd = share::UniqueFd(fcntl(info->fd, F_DUPFD_CLOEXEC, 0));
        reply.bytes = info->bytes;
        if (!fd.valid()) status = PosixError("segment", errno);
      }
      reply.status = static_cast<std::uint32_t>(status.code());
      asio::post(*io,
                 [self = std::move(self), reply, fd = std::move(fd)] { self->Reply(reply, fd); });
    });
  }

  // The answer to a request; `fd` goes along where it is valid. Then the next one is read.
  template <typename Struct>
  void Reply(const Struct& reply, const share::UniqueFd& fd) {
    if (!socket_.is_open()) return;
    const int descriptor = fd.get();
    const absl::Status sent =
        SendMessage(socket_.native_handle(), reply,
                    fd.valid() ? std::span(&descriptor, 1) : std::span<const int>());
    if (!sent.ok()) return Close(MessageOf(sent));
    Read();
  }

  // Mapped here, so that a file that is slow to map delays nobody's calls.
  void OnAttach(Attach& attach) {
    const share::AttachRequest request = attach.request;
    absl::StatusOr<share::Mapping> mapping =
        attach.file.valid()
            ? share::MapForeign(attach.file.get(), request.bytes)
            : absl::StatusOr<share::Mapping>(Error(
                  absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                  "no memory file came with the request (make it with memfd_create), or the daemon "
                  "has no descriptor left"));
    if (!mapping.ok()) return Reply(MakeAttachReply(request.region, mapping.status()), {});
    owner_.executor_.Post([self = shared_from_this(), manager = &owner_.manager_, io = &owner_.io_,
                           session = session_, request, mapping = *std::move(mapping)]() mutable {
      const absl::Status attached =
          manager->AttachRegion(session, request.region, std::move(mapping), request.bytes);
      asio::post(*io, [self = std::move(self), reply = MakeAttachReply(request.region, attached)] {
        self->Reply(reply, {});
      });
    });
  }

  void OnEventsRequest() {
    owner_.executor_.Post([self = shared_from_this(), manager = &owner_.manager_, io = &owner_.io_,
                           session = session_]() mutable {
      absl::StatusOr<share::UniqueFd> bell = manager->OpenJobEvents(session);
      share::EventsReply reply;
      reply.status = static_cast<std::uint32_t>(bell.status().code());
      share::UniqueFd fd;
      if (bell.ok()) fd = *std::move(bell);
      asio::post(*io,
                 [self = std::move(self), reply, fd = std::move(fd)] { self->Reply(reply, fd); });
    });
  }

  // The process that connected is dead, whoever still holds its socket.
  void OnDeath() {
    dead_ = true;
    OnEnd();
  }

  // Nobody will touch anything of this session any more.
  void OnEnd() {
    if (state_ == State::kOver || state_ == State::kOpening) return;  // OnGrant looks again
    const bool reap = state_ != State::kGreeting;
    state_ = State::kOver;
    if (reap) {
      owner_.executor_.Post(
          [manager = &owner_.manager_, session = session_] { manager->ReapSession(session); });
    }
    Release();
  }

  void Refuse(const absl::Status& status) {
    if (owner_.limit_.Allow()) {
      spdlog::info("session of pid {} (uid {}) refused: {}", peer_.pid, peer_.uid,
                   MessageOf(status));
    }
    SendRefusal(socket_.native_handle(), status);
    Close("");
  }

  void LeaveGreeting() {
    if (std::exchange(greeting_, false)) --owner_.handshakes_;
    timer_.cancel();
  }

  // Closes what is open and takes the connection off the list; `this` lives on in its handlers.
  void Release() {
    LeaveGreeting();
    boost::system::error_code ignored;
    if (socket_.is_open()) {
      shutdown(socket_.native_handle(), SHUT_RDWR);
      socket_.close(ignored);
      --owner_.open_sockets_;
    }
    process_.close(ignored);
    owner_.Remove(id_);
  }

  Sessions& owner_;
  const std::uint64_t id_;
  const Peer peer_;
  const std::string tenant_;
  asio::posix::stream_descriptor socket_;
  asio::posix::stream_descriptor process_;  // pidfd: readable when the process is dead
  asio::steady_timer timer_;
  State state_ = State::kGreeting;
  SessionId session_ = 0;
  bool greeting_ = true;  // counted in handshakes_
  bool dead_ = false;
};

Sessions::Sessions(asio::io_context& io, Executor& executor, core::Manager& manager,
                   SessionsOptions options)
    : io_(io), executor_(executor), manager_(manager), options_(options) {}

Sessions::~Sessions() = default;

void Sessions::Start(share::UniqueFd listener, std::string tenant) {
  std::string name = tenant.empty() ? "session.sock" : Cat("session.sock of ", tenant);
  loops_.emplace_back(io_, std::move(name),
                      [this, tenant = std::move(tenant)](share::UniqueFd socket) {
                        OnAccept(std::move(socket), tenant);
                      });
  loops_.back().Start(std::move(listener));
}

void Sessions::Stop() {
  for (AcceptLoop& loop : loops_) loop.Stop();
  while (!connections_.empty()) {
    const std::shared_ptr<Connection> connection = connections_.begin()->second;
    connection->Abandon();
  }
}

void Sessions::Expel(SessionId session, std::string_view why) {
  asio::post(io_, [this, session, why = std::string(why)] {
    for (const auto& [id, connection] : connections_) {
      if (connection->session() != session) continue;
      spdlog::warn("session {}: expelled: {}", session, why);
      const std::shared_ptr<Connection> keep = connection;
      return keep->Close("expelled");
    }
  });
}

absl::Status Sessions::CheckRoomFor(const std::string& tenant) const {
  const auto refuse = [](std::string_view whose) {
    return WithRetry(Error(absl::StatusCode::kResourceExhausted, Reason::kRefused,
                           Cat("too many connections", whose, " to the session socket")),
                     std::chrono::milliseconds(100));
  };
  if (open_sockets_ >= options_.connections_max || handshakes_ >= options_.handshakes_max) {
    return refuse("");
  }
  const std::size_t open_max = core::TenantShare(options_.connections_max);
  const std::size_t greeting_max = core::TenantShare(options_.handshakes_max);
  if (open_sockets_ < open_max && handshakes_ < greeting_max) return absl::OkStatus();
  std::size_t open = 0;
  std::size_t greeting = 0;
  for (const auto& [id, connection] : connections_) {
    if (connection->tenant() != tenant) continue;
    if (connection->open()) ++open;
    if (connection->greeting()) ++greeting;
  }
  return open < open_max && greeting < greeting_max ? absl::OkStatus() : refuse(" of this tenant");
}

void Sessions::OnAccept(share::UniqueFd socket, const std::string& pod) {
  const absl::StatusOr<Peer> peer = GetPeer(socket.get());
  if (!peer.ok()) return;
  const std::string tenant = pod.empty() ? Cat("uid:", peer->uid) : pod;
  absl::Status status = Authorize(*peer, Role::kTenant, options_.overflow_uid);
  if (status.ok()) status = CheckRoomFor(tenant);
  share::UniqueFd pidfd;
  if (status.ok()) {
    absl::StatusOr<share::UniqueFd> opened = OpenPeerPidfd(socket.get(), *peer);
    status = opened.status();
    if (opened.ok()) pidfd = *std::move(opened);
  }
  if (!status.ok()) {
    SendRefusal(socket.get(), status);
    return;
  }
  const std::uint64_t id = next_id_++;
  auto connection =
      std::make_shared<Connection>(*this, id, std::move(socket), std::move(pidfd), *peer, tenant);
  connections_.emplace(id, connection);
  connection->Start();
}

void Sessions::Remove(std::uint64_t id) { connections_.erase(id); }

}  // namespace hmm::daemon
