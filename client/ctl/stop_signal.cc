// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/stop_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "base/check.h"

namespace hmm::ctl {

StopSignal::StopSignal() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  HMM_CHECK(pthread_sigmask(SIG_BLOCK, &signals_, &previous_) == 0);
  signal_fd_ = signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
  end_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (signal_fd_ < 0 || end_fd_ < 0) {  // out of descriptors: signals keep their default
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
    return;
  }
  thread_ = std::thread([this] { Wait(); });
}

StopSignal::~StopSignal() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    HMM_CHECK(write(end_fd_, &one, sizeof one) == sizeof one);
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  if (signal_fd_ >= 0) close(signal_fd_);
  if (end_fd_ >= 0) close(end_fd_);
}

void StopSignal::Wait() {
  std::array<pollfd, 2> fds{{{signal_fd_, POLLIN, 0}, {end_fd_, POLLIN, 0}}};
  for (;;) {
    if (poll(fds.data(), fds.size(), -1) < 0) {
      HMM_CHECK(errno == EINTR);
      continue;
    }
    if (fds[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signal_fd_, &info, sizeof info) != sizeof info) continue;
    if (source_.stop_requested()) _exit(1);
    source_.request_stop();
  }
}

}  // namespace hmm::ctl
