// SPDX-License-Identifier: Apache-2.0
#include "daemon/service.h"

#include <utility>

namespace hmm::daemon {

void CoreGate::Run(Work work, Then then) const {
  if (inline_) {
    then(work());
    return;
  }
  core_->Post([home = home_, work = std::move(work), then = std::move(then)]() mutable {
    home->Post([then = std::move(then), status = work()]() mutable { then(status); });
  });
}

void CoreGate::ToCore(Task task) const {
  if (inline_) {
    task();
  } else {
    core_->Post(std::move(task));
  }
}

void CoreGate::ToHome(Task task) const {
  if (inline_) {
    task();
  } else {
    home_->Post(std::move(task));
  }
}

}  // namespace hmm::daemon
