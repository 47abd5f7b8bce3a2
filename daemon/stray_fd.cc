// SPDX-License-Identifier: Apache-2.0
#include "daemon/stray_fd.h"

#include <fcntl.h>

#include <system_error>
#include <thread>
#include <utility>

namespace hmm::daemon {
namespace {

constexpr int kClosingMax = 16;

}  // namespace

bool StrayFds::MayTake() const { return closing_->load() < kClosingMax; }

void StrayFds::Close(share::UniqueFd fd) {
  if (!fd.valid() || fcntl(fd.get(), F_GET_SEALS) >= 0) return;
  const int number = fd.Release();
  ++*closing_;
  try {
    std::thread([number, closing = closing_] {
      share::UniqueFd closed(number);
      closed.Reset();
      --*closing;
    }).detach();
  } catch (const std::system_error&) {
    // No thread to be had: it stays open, counted, rather than stop us.
  }
}

}  // namespace hmm::daemon
