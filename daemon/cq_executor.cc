// SPDX-License-Identifier: Apache-2.0
#include "daemon/cq_executor.h"

#include <grpc/support/time.h>

#include <utility>

#include "base/check.h"

namespace hmm::daemon {
namespace {

// Taken from the network between two rounds of tasks: a call is a few of them.
constexpr int kEventsPerTurn = 16;

}  // namespace

// One PostAfter. Owned by timers_ until its alarm is delivered; gRPC knows it by its address.
struct CqExecutor::Timer final : CqTag {
  Timer(CqExecutor& executor, Task work) : owner(executor), task(std::move(work)) {}
  void Proceed(bool ok) override { owner.RunTimer(this, ok); }

  CqExecutor& owner;
  Task task;
  grpc::Alarm alarm;
};

CqExecutor::CqExecutor(std::unique_ptr<grpc::CompletionQueue> queue)
    : queue_(std::move(queue)), wake_(*this) {}

CqExecutor::~CqExecutor() {
  Shutdown();
  // Nobody ran the queue: what Shutdown cancelled is still in it, and gRPC wants it taken out.
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) static_cast<CqTag*>(tag)->Proceed(false);
}

void CqExecutor::Post(Task task) {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  tasks_.push_back(std::move(task));
  if (waking_ || runner_ == std::this_thread::get_id()) return;
  waking_ = true;
  wake_.alarm.Set(queue_.get(), gpr_time_0(GPR_CLOCK_MONOTONIC), &wake_);
}

void CqExecutor::PostAfter(Duration delay, Task task) {
  auto timer = std::make_unique<Timer>(*this, std::move(task));
  Timer* const tag = timer.get();
  const gpr_timespec when =
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(delay.count(), GPR_TIMESPAN));
  std::lock_guard lock(mutex_);
  if (closed_) return;
  timers_.emplace(tag, std::move(timer));
  tag->alarm.Set(queue_.get(), when, tag);
}

void CqExecutor::Run() {
  {
    std::lock_guard lock(mutex_);
    runner_ = std::this_thread::get_id();
  }
  bool timed_out = false;
  while (Turn(gpr_inf_future(GPR_CLOCK_MONOTONIC), timed_out)) {
  }
}

bool CqExecutor::HasTasks() {
  std::lock_guard lock(mutex_);
  return !tasks_.empty();
}

bool CqExecutor::Turn(gpr_timespec until, bool& timed_out) {
  const bool tasks = HasTasks();
  // With tasks there: what has come, without sleeping, and not without end.
  for (int left = tasks ? kEventsPerTurn : 1; left > 0; --left) {
    void* tag = nullptr;
    bool ok = false;
    const auto next =
        queue_->AsyncNext(&tag, &ok, tasks ? gpr_inf_past(GPR_CLOCK_MONOTONIC) : until);
    if (next == grpc::CompletionQueue::SHUTDOWN) return false;
    timed_out = next == grpc::CompletionQueue::TIMEOUT;
    if (timed_out) break;
    Dispatch(tag, ok);
  }
  if (tasks) RunTasks();
  timed_out = timed_out && !tasks;
  return true;
}

void CqExecutor::Dispatch(void* tag, bool ok) {
#if defined(__SANITIZE_THREAD__)
  // Debian's gRPC is not instrumented: that its queue orders a timer's making before its firing is
  // shown to ThreadSanitizer by the lock under which the alarm was set.
  { std::lock_guard lock(mutex_); }
#endif
  static_cast<CqTag*>(tag)->Proceed(ok);
}

bool CqExecutor::RunFor(Duration span) {
  const gpr_timespec until =
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(span.count(), GPR_TIMESPAN));
  {
    std::lock_guard lock(mutex_);
    runner_ = std::this_thread::get_id();
  }
  for (bool timed_out = false; !timed_out;) {
    if (!Turn(until, timed_out)) return false;
  }
  // Until it runs again, wake-ups are needed as from anywhere else.
  std::lock_guard lock(mutex_);
  runner_ = {};
  return true;
}

void CqExecutor::Shutdown() {
  std::deque<Task> unrun;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    unrun.swap(tasks_);
    for (auto& [tag, timer] : timers_) timer->alarm.Cancel();
    queue_->Shutdown();
  }
  // Outside the lock: a task's destructor may post.
}

void CqExecutor::Wake::Proceed(bool /*ok*/) {
  {
    std::lock_guard lock(owner_.mutex_);
    owner_.waking_ = false;
  }
  owner_.RunTasks();
}

void CqExecutor::RunTasks() {
  std::deque<Task> ready;
  {
    std::lock_guard lock(mutex_);
    ready.swap(tasks_);
  }
  // Those posted meanwhile get a wake-up of their own, so that calls are served in between.
  for (Task& task : ready) {
    task();
    task = nullptr;
  }
}

void CqExecutor::RunTimer(Timer* timer, bool ok) {
  std::unique_ptr<Timer> own;
  bool run = ok;
  {
    std::lock_guard lock(mutex_);
    const auto found = timers_.find(timer);
    HMM_CHECK(found != timers_.end());
    own = std::move(found->second);
    timers_.erase(found);
    run = run && !closed_;
  }
  if (run) own->task();
}

}  // namespace hmm::daemon
