// SPDX-License-Identifier: Apache-2.0
//
// hmmctl stat: reports, or the live view.
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/ctl/stat_live.h"
#include "client/ctl/stop_signal.h"
#include "client/ctl/terminal.h"
#include "client/ctl/verbs.h"

namespace hmm::ctl {
namespace {

// Sleeps from beat to beat; false once somebody wants us to stop.
class Beat {
 public:
  Beat(double interval_s, std::stop_token stop)
      : interval_(std::chrono::duration_cast<std::chrono::nanoseconds>(
            std::chrono::duration<double>(interval_s))),
        stop_(std::move(stop)),
        next_(std::chrono::steady_clock::now()) {}

  bool Next() {
    std::unique_lock lock(mutex_);
    next_ += interval_;
    wake_.wait_until(lock, stop_, next_, [] { return false; });
    return !stop_.stop_requested();
  }

 private:
  const std::chrono::nanoseconds interval_;
  const std::stop_token stop_;
  std::chrono::steady_clock::time_point next_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
};

absl::Status Reports(const Command& command, DaemonLink& link, Beat& beat) {
  const std::unique_ptr<Printer> printer = MakePrinter(command.format, command.style);
  std::optional<v1::GetStatusResponse> before;
  const std::uint64_t count = command.interval_s > 0 ? command.count : 1;
  for (std::uint64_t n = 1;; ++n) {
    absl::StatusOr<v1::GetStatusResponse> now = link.GetStatus();
    if (!now.ok()) return now.status();
    HMM_RETURN_IF_ERROR(WriteOut(printer->Stat(MakeStatReport(before, *now))));
    if (n == count) return absl::OkStatus();
    before = *std::move(now);
    if (!beat.Next()) return absl::OkStatus();
  }
}

absl::Status Frames(const Command& command, DaemonLink& link, Beat& beat) {
  std::optional<v1::GetStatusResponse> before;
  for (;;) {
    absl::StatusOr<v1::GetStatusResponse> now = link.GetStatus();
    if (!now.ok()) return now.status();
    const absl::StatusOr<v1::ListSessionsResponse> sessions = link.ListSessions();
    if (!sessions.ok()) return sessions.status();
    const LiveFrame frame{*now, *sessions, MakeStatReport(before, *now), command.interval_s,
                          command.style.colour};
    HMM_RETURN_IF_ERROR(
        WriteOut(absl::StrCat(kLiveHome, LiveScreen(frame, TerminalSize()), kLiveRest)));
    before = *std::move(now);
    if (!beat.Next()) return absl::OkStatus();
  }
}

}  // namespace

absl::StatusOr<int> RunStat(const Command& command) {
  StopSignal stop;  // before gRPC starts its threads
  absl::StatusOr<std::unique_ptr<DaemonLink>> link = DaemonLink::Connect(command.dir);
  if (!link.ok()) return link.status();
  Beat beat(command.interval_s, stop.token());
  const bool live = command.interval_s > 0 && command.count == 0 && !command.scroll &&
                    command.format == Format::kTable && !command.style.tabs && OnDrawingTerminal();
  if (!live) {
    HMM_RETURN_IF_ERROR(Reports(command, **link, beat));
    return 0;
  }
  HMM_RETURN_IF_ERROR(WriteOut(kLiveBegin));
  const absl::Status shown = Frames(command, **link, beat);
  // Whatever ended it: the terminal comes first.
  const absl::Status restored = WriteOut(kLiveEnd);
  HMM_RETURN_IF_ERROR(shown);
  HMM_RETURN_IF_ERROR(restored);
  return 0;
}

}  // namespace hmm::ctl
