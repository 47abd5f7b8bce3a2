// SPDX-License-Identifier: Apache-2.0
//
// The one thread on which all metadata lives. In the daemon it is the thread that drains the gRPC
// completion queue; in tests it is a queue the test drains by hand, in an order it chooses.
#pragma once

#include "absl/functional/any_invocable.h"
#include "base/units.h"

namespace hmm {

using Task = absl::AnyInvocable<void()>;

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `task` once on the executor's thread, later, never inside Post. Callable from any thread;
  // tasks posted by one thread run in the order posted. After shutdown tasks are destroyed unrun.
  virtual void Post(Task task) = 0;
  // As Post, not before `delay` has passed.
  virtual void PostAfter(Duration delay, Task task) = 0;
};

}  // namespace hmm
