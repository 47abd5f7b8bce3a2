// SPDX-License-Identifier: Apache-2.0
//
// The processes of `hmmctl replay --tenant-processes N`: this program started N times before gRPC
// is used, each serving every Nth request. They talk in lines over pipes:
//
//   worker -> parent   "ready"            trace read, waiting
//   parent -> worker   one line of setup  (WorkerSetup as JSON): go
//   worker -> parent   "done N"           requests served until now, a few times a second
//   worker -> parent   the tally as JSON, then the end
//
// A worker whose parent is gone ends: its pipe closes, and the kernel signals it. One thread,
// except done().
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/units.h"
#include "client/ctl/replay_report.h"

namespace hmm::ctl {

// What only the parent knows, since it may use the admin socket.
struct WorkerSetup {
  std::string tier;
  Bytes window_bytes = 0;
  std::map<std::string, TierKind> tier_kinds;
};
std::string SetupToJson(const WorkerSetup& setup);
absl::StatusOr<WorkerSetup> SetupFromJson(const std::string& text);

class WorkerProcesses {
 public:
  // Starts `count` of this program with `arguments` and "--worker=I"; their signal mask is `mask`.
  static absl::StatusOr<std::unique_ptr<WorkerProcesses>> Start(
      const std::vector<std::string>& arguments, std::size_t count, const sigset_t& mask);
  ~WorkerProcesses();  // ends what still runs

  // Until all are ready; an error when one ended instead (it has said why on stderr).
  absl::Status WaitReady(const std::stop_token& stop);
  absl::Status Go(const WorkerSetup& setup);
  // Until all have ended. One that ends without its tally counts as an error. A stop is passed on,
  // once, and their tallies are still collected.
  ReplayTally Collect(const std::stop_token& stop);

  // Requests served until now, over all; any thread.
  std::size_t done() const;

 private:
  struct Worker;
  explicit WorkerProcesses(std::size_t count);
  absl::Status Spawn(const std::vector<std::string>& arguments, std::size_t index,
                     const sigset_t& mask);
  // Reads what has come, for at most a short while.
  void Poll();
  void TakeLine(Worker& worker, const std::string& line);
  bool AllEnded() const;

  std::vector<std::unique_ptr<Worker>> workers_;
};

// The worker's side: its ends of the pipes are standard input and output.
class WorkerPipe {
 public:
  WorkerPipe();
  // Says "ready" and waits to be told to go.
  absl::StatusOr<WorkerSetup> Ready();
  void Done(std::size_t requests);
  void Finish(const ReplayTally& tally);
};

}  // namespace hmm::ctl
