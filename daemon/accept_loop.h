// SPDX-License-Identifier: Apache-2.0
//
// Accepts connections on one listening socket and survives running out of descriptors: then it
// sheds the waiting connections with a descriptor kept in reserve, backs off, and goes on.
//
// Threads: the constructor anywhere, everything else on the io thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <string>

#include "daemon/log_limit.h"
#include "share/memory_file.h"

namespace hmm::daemon {

class AcceptLoop {
 public:
  using OnAccept = std::function<void(share::UniqueFd)>;

  // `name` is for the log.
  AcceptLoop(boost::asio::io_context& io, std::string name, OnAccept on_accept);

  void Start(share::UniqueFd listener);
  void Stop();

 private:
  void Wait();
  void Accept();
  void Shed();
  void BackOff();

  boost::asio::posix::stream_descriptor listener_;
  boost::asio::steady_timer timer_;
  const std::string name_;
  const OnAccept on_accept_;
  share::UniqueFd spare_;
  LogLimit limit_;
  bool stopped_ = false;
};

}  // namespace hmm::daemon
