// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/plan_busy.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <stop_token>
#include <utility>

namespace hmm::ctl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kQuiet{500};  // what is quicker needs no line
constexpr std::chrono::milliseconds kInterval{200};

}  // namespace

Busy::Busy(std::string stage) : stage_(std::move(stage)) {
  if (isatty(STDERR_FILENO) == 0) return;
  thread_ = std::jthread([this, start = Clock::now()](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    const auto wait = [&](std::chrono::milliseconds span) {
      wake.wait_for(lock, stop, span, [] { return false; });
    };
    bool drawn = false;
    for (wait(kQuiet); !stop.stop_requested(); wait(kInterval)) {
      drawn = true;
      const std::chrono::duration<double> spent = Clock::now() - start;
      std::fprintf(stderr, "\r\033[K%s ... %.0f s", Stage().c_str(), spent.count());
    }
    if (drawn) std::fprintf(stderr, "\r\033[K");
  });
}

// The thread uses the other members: it ends before they do.
Busy::~Busy() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void Busy::SetStage(std::string stage) {
  const std::scoped_lock lock(mutex_);
  stage_ = std::move(stage);
}

std::string Busy::Stage() {
  const std::scoped_lock lock(mutex_);
  return stage_;
}

}  // namespace hmm::ctl
