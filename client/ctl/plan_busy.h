// SPDX-License-Identifier: Apache-2.0
//
// A line on standard error that says what is being worked on and for how long, from half a second
// on, while the object lives; nothing at all where standard error is not a terminal.
#pragma once

#include <mutex>
#include <string>
#include <thread>

namespace hmm::ctl {

class Busy {
 public:
  explicit Busy(std::string stage);
  ~Busy();
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

  // From any thread.
  void SetStage(std::string stage);

 private:
  std::string Stage();

  std::mutex mutex_;
  std::string stage_;
  std::jthread thread_;
};

}  // namespace hmm::ctl
