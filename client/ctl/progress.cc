// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/progress.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>

namespace hmm::ctl {
namespace {

constexpr std::size_t kWidth = 40;
constexpr std::chrono::milliseconds kInterval{200};

void Draw(std::size_t done, std::size_t total) {
  const std::size_t full = total == 0 ? kWidth : kWidth * done / total;
  std::fprintf(stderr, "\r[%s%s] %zu/%zu requests", std::string(full, '=').c_str(),
               std::string(kWidth - full, ' ').c_str(), done, total);
}

}  // namespace

Progress::Progress(std::function<std::size_t()> done, std::size_t total) {
  if (isatty(STDERR_FILENO) == 0) return;
  thread_ = std::jthread([done = std::move(done), total](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      Draw(done(), total);
      wake.wait_for(lock, stop, kInterval, [] { return false; });
    }
    std::fprintf(stderr, "\r\033[K");
  });
}

}  // namespace hmm::ctl
