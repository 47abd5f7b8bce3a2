// SPDX-License-Identifier: Apache-2.0
//
// The executor on a gRPC completion queue: whoever calls Run() is its thread, and between two RPC
// events it runs what was posted. So a request is decoded, served and answered without a thread
// hop.
//
//   Post ----> tasks_ --(one wake-up alarm)--> queue --> Run(): the tasks, in order
//   PostAfter -> one alarm each ------------------^
//   gRPC events (calls) --------------------------^
//
// What a task posts needs no wake-up: the thread looks before it sleeps. In between it takes what
// has come from the network; by alarms alone it would not, for gRPC looks at no socket while
// anything is in the queue, and a chain of tasks that post the next would keep all calls out.
//
// Threads: Post, PostAfter and Shutdown from any thread; Run from exactly one.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/executor.h"

namespace hmm::daemon {

// What a completion queue carries as its tag.
class CqTag {
 public:
  virtual ~CqTag() = default;
  virtual void Proceed(bool ok) = 0;
};

class CqExecutor final : public Executor {
 public:
  // Takes the queue, which may already serve a server.
  explicit CqExecutor(std::unique_ptr<grpc::CompletionQueue> queue);
  ~CqExecutor() override;  // REQUIRES: Run has returned after Shutdown, or never began

  void Post(Task task) override;
  void PostAfter(Duration delay, Task task) override;

  // Serves the queue until Shutdown; then drains it and returns. All that is still posted by then
  // is destroyed unrun.
  void Run();
  // As Run, for about `span`. False once the queue is shut down and drained.
  bool RunFor(Duration span);

  // From here on tasks are destroyed unrun. REQUIRES: no call of a server on this queue is live and
  // none will be armed (see RpcServer::Shutdown).
  void Shutdown();

 private:
  class Wake final : public CqTag {
   public:
    explicit Wake(CqExecutor& owner) : owner_(owner) {}
    void Proceed(bool ok) override;
    grpc::Alarm alarm;

   private:
    CqExecutor& owner_;
  };
  struct Timer;

  // Runs what the queue gave out.
  void Dispatch(void* tag, bool ok);
  // Some events and all tasks that are there, or one event by `until`. False: shut down, drained.
  bool Turn(gpr_timespec until, bool& timed_out);
  bool HasTasks();
  void RunTasks();
  void RunTimer(Timer* timer, bool ok);

  const std::unique_ptr<grpc::CompletionQueue> queue_;
  Wake wake_;
  std::mutex mutex_;
  // Under mutex_:
  bool closed_ = false;
  std::thread::id runner_;  // who is in Run or RunFor
  bool waking_ = false;     // the wake-up alarm is set and has not been delivered
  std::deque<Task> tasks_;
  std::unordered_map<Timer*, std::unique_ptr<Timer>> timers_;
};

}  // namespace hmm::daemon
