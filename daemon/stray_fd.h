// SPDX-License-Identifier: Apache-2.0
//
// Descriptors that clients sent and that are not what they should be. To close one may wait for
// whoever serves its file (FUSE), who may be the client: it is closed by a thread that nothing
// waits for, and which may outlive this object. Any thread.
#pragma once

#include <atomic>
#include <memory>

#include "share/memory_file.h"

namespace hmm::daemon {

class StrayFds {
 public:
  // Whether one more may be taken from a socket: only so many closes may hang at a time.
  bool MayTake() const;
  // Closes it, here when it is a memory file, elsewhere otherwise.
  void Close(share::UniqueFd fd);

 private:
  std::shared_ptr<std::atomic<int>> closing_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace hmm::daemon
