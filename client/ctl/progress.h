// SPDX-License-Identifier: Apache-2.0
//
// A progress bar on standard error, drawn a few times a second while the object lives; nothing at
// all where standard error is not a terminal.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>

namespace hmm::ctl {

class Progress {
 public:
  // `done` is called from the object's own thread.
  Progress(std::function<std::size_t()> done, std::size_t total);

 private:
  std::jthread thread_;
};

}  // namespace hmm::ctl
