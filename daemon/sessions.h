// SPDX-License-Identifier: Apache-2.0
//
// The session sockets (share/session_wire.h): one connection is one session of one process, whose
// tenant is that of the socket, or its uid.
//
//   accepted --Hello--> opening --grant--> active --EOF, garbage, expelled--> closed, process
//   watched
//      | time-out, garbage, death             |                                   |
//      `-> dropped                            `---- process dead (pidfd) ---------`--> reaped, gone
//
// The manager hears CloseSession and ReapSession at most once each. What keeps the socket open (a
// forked child) does not matter: the process that connected is the session.
//
// Threads: the constructor anywhere, Expel from any thread, the rest on the io thread. The manager
// is called on the executor only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "base/executor.h"
#include "base/ids.h"
#include "daemon/accept_loop.h"
#include "daemon/log_limit.h"
#include "daemon/stray_fd.h"
#include "hmm/manager.h"

namespace hmm::daemon {

struct SessionsOptions {
  // Of both a tenant may have its core::TenantShare.
  std::size_t connections_max = 1024;  // open at once, whatever their state
  std::size_t handshakes_max = 64;     // of them, those that have not said Hello
  std::chrono::milliseconds handshake_timeout{5000};
  std::uint32_t overflow_uid = 65534;
};

class Sessions {
 public:
  // Executor and manager outlive it. The caller routes Manager::OnExpel to Expel.
  Sessions(boost::asio::io_context& io, Executor& executor, core::Manager& manager,
           SessionsOptions options);
  ~Sessions();

  // Once for each socket. Who comes through it is `tenant`; empty: "uid:1000".
  void Start(share::UniqueFd listener, std::string tenant);
  // Closes the sockets without a word to the manager, which is about to go.
  void Stop();
  // Throws a session out: its socket is shut down, the session closed.
  void Expel(SessionId session, std::string_view why);

 private:
  class Connection;
  friend class Connection;

  // `pod`: whose own socket it came from; empty: the one of all, where a tenant is a uid.
  void OnAccept(share::UniqueFd socket, const std::string& pod);
  absl::Status CheckRoomFor(const std::string& tenant) const;
  void Remove(std::uint64_t id);

  boost::asio::io_context& io_;
  Executor& executor_;
  core::Manager& manager_;
  const SessionsOptions options_;
  std::deque<AcceptLoop> loops_;  // stay where they are
  std::uint64_t next_id_ = 1;
  std::size_t handshakes_ = 0;
  std::size_t open_sockets_ = 0;
  LogLimit limit_;
  StrayFds strays_;
  // Until the process is dead and its socket closed; a closed session's process is still watched.
  std::map<std::uint64_t, std::shared_ptr<Connection>> connections_;
};

}  // namespace hmm::daemon
