// SPDX-License-Identifier: Apache-2.0
//
// `hmmctl replay`: reads the trace, runs it here or in worker processes, and takes the daemon's
// counters before and after, so that the report can say what moved.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/ctl/client_block_store.h"
#include "client/ctl/daemon_link.h"
#include "client/ctl/lru_forecast.h"
#include "client/ctl/printer.h"
#include "client/ctl/progress.h"
#include "client/ctl/replay.h"
#include "client/ctl/replay_traffic.h"
#include "client/ctl/stop_signal.h"
#include "client/ctl/trace_reader.h"
#include "client/ctl/verbs.h"
#include "client/ctl/worker_processes.h"
#include "hmm/client.h"

namespace hmm::ctl {
namespace {

constexpr std::chrono::milliseconds kReportInterval{200};

ReplayOptions MakeOptions(const ReplayArgs& args, const Trace& trace, const WorkerSetup& setup) {
  ReplayOptions options;
  options.block_bytes = args.block_bytes;
  options.requests_max = args.requests;
  options.speed = args.speed;
  options.threads = args.threads;
  options.seed = args.seed;
  options.key_prefix = args.key_prefix.empty() ? trace.format : args.key_prefix;
  options.window_bytes = setup.window_bytes;
  options.tier_kinds = setup.tier_kinds;
  if (args.worker) {
    options.part = *args.worker;
    options.parts = args.processes;
  }
  return options;
}

std::vector<std::string> WorkerArguments(const Command& command) {
  const ReplayArgs& args = command.replay;
  std::vector<std::string> out = {"hmmctl", "--dir", command.dir, "replay"};
  out.push_back(absl::StrCat("--block-bytes=", args.block_bytes));
  if (args.requests != 0) out.push_back(absl::StrCat("--requests=", args.requests));
  out.push_back("--speed=" + std::to_string(args.speed));
  out.push_back(absl::StrCat("--concurrency=", args.threads));
  out.push_back(absl::StrCat("--tenant-processes=", args.processes));
  out.push_back(absl::StrCat("--seed=", args.seed));
  if (!args.key_prefix.empty()) out.push_back("--key-prefix=" + args.key_prefix);
  // A path that looks like an option stays a path.
  out.push_back(args.trace.rfind("-", 0) == 0 ? "./" + args.trace : args.trace);
  return out;
}

// What the daemon's counters say; nullopt where its admin socket is not ours to use.
absl::StatusOr<std::optional<v1::GetStatusResponse>> TakeStatus(DaemonLink* link) {
  if (link == nullptr) return std::optional<v1::GetStatusResponse>();
  absl::StatusOr<v1::GetStatusResponse> status = link->GetStatus();
  if (!status.ok()) return status.status();
  return std::optional<v1::GetStatusResponse>(*std::move(status));
}

bool HasTier(const v1::GetStatusResponse& status, const std::string& name) {
  return std::any_of(status.tiers().begin(), status.tiers().end(),
                     [&](const v1::TierInfo& tier) { return tier.name() == name; });
}

absl::StatusOr<std::unique_ptr<DaemonLink>> ConnectIfAllowed(const std::string& dir) {
  absl::StatusOr<std::unique_ptr<DaemonLink>> link = DaemonLink::Connect(dir);
  if (link.ok() || !absl::IsPermissionDenied(link.status())) return link;
  std::fprintf(stderr, "hmmctl: moved bytes and evictions are not known: %s\n",
               std::string(link.status().message()).c_str());
  return std::unique_ptr<DaemonLink>();
}

absl::StatusOr<std::unique_ptr<Client>> ConnectClient(const std::string& dir) {
  ConnectOptions options;
  options.dir = dir;
  return Client::Connect(options);
}

// Serves the trace in this process.
absl::StatusOr<ReplayTally> RunHere(const Command& command, const Trace& trace,
                                    const WorkerSetup& setup, const StopSignal& stop) {
  absl::StatusOr<std::unique_ptr<Client>> client = ConnectClient(command.dir);
  if (!client.ok()) return client.status();
  ClientBlockStore store(**client, setup.tier);
  Replayer replayer(trace, MakeOptions(command.replay, trace, setup), store);
  const Progress progress([&] { return replayer.done(); }, replayer.total());
  return replayer.Run(stop.token());
}

// The hidden side of --tenant-processes.
absl::StatusOr<int> RunWorker(const Command& command) {
  WorkerPipe pipe;
  const StopSignal stop;
  const absl::StatusOr<Trace> trace = ReadTrace(command.replay.trace);
  if (!trace.ok()) return trace.status();
  absl::StatusOr<std::unique_ptr<Client>> client = ConnectClient(command.dir);
  if (!client.ok()) return client.status();
  const absl::StatusOr<WorkerSetup> setup = pipe.Ready();
  if (!setup.ok()) return setup.status();
  ClientBlockStore store(**client, setup->tier);
  Replayer replayer(*trace, MakeOptions(command.replay, *trace, *setup), store);
  ReplayTally tally;
  {
    const std::jthread report([&](const std::stop_token& end) {
      std::mutex mutex;
      std::condition_variable_any wake;
      std::unique_lock lock(mutex);
      while (!wake.wait_for(lock, end, kReportInterval, [] { return false; }) &&
             !end.stop_requested()) {
        pipe.Done(replayer.done());
      }
    });
    tally = replayer.Run(stop.token());
  }
  client->reset();  // the session ends before the parent hears that we are done
  pipe.Finish(tally);
  return 0;
}

// Opened before the run: nobody wants to hear of a wrong path after it. nullptr: no path.
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
absl::StatusOr<File> OpenReport(const std::string& path) {
  if (path.empty()) return File(nullptr, &std::fclose);
  File file(std::fopen(path.c_str(), "we"), &std::fclose);
  if (file == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadArgument,
                 absl::StrCat("--report ", path, ": ", std::strerror(errno)));
  }
  return file;
}

absl::Status WriteReport(File file, const std::string& path, const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (std::fclose(file.release()) == 0 && written) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable, Reason::kIo,
               absl::StrCat("--report ", path, ": ", std::strerror(errno)));
}

void TellFaults(const ReplayTally& tally) {
  for (const std::string& message : tally.messages) {
    std::fprintf(stderr, "hmmctl: %s\n", message.c_str());
  }
  if (tally.errors > tally.messages.size()) {
    std::fprintf(stderr, "hmmctl: and %llu more errors\n",
                 static_cast<unsigned long long>(tally.errors - tally.messages.size()));
  }
  if (tally.interrupted) {
    std::fprintf(stderr, "hmmctl: stopped after %llu requests\n",
                 static_cast<unsigned long long>(tally.requests));
  }
}

absl::StatusOr<int> RunForecast(const Command& command, const Trace& trace) {
  std::size_t requests = trace.requests.size();
  if (command.replay.requests != 0) requests = std::min(requests, command.replay.requests);
  const LruForecast forecast = ForecastLru(absl::MakeConstSpan(trace.requests).subspan(0, requests),
                                           command.replay.forecast);
  HMM_RETURN_IF_ERROR(WriteOut(MakePrinter(command.format)->Forecast(forecast)));
  return 0;
}

}  // namespace

absl::StatusOr<int> RunReplay(const Command& command) {
  const ReplayArgs& args = command.replay;
  if (args.worker) return RunWorker(command);
  StopSignal stop;
  const absl::StatusOr<Trace> trace = ReadTrace(args.trace);
  if (!trace.ok()) return trace.status();
  if (!args.forecast.empty()) return RunForecast(command, *trace);

  absl::StatusOr<File> file = OpenReport(args.report);
  if (!file.ok()) return file.status();

  // Phase 1: is anybody there? Then the workers, before gRPC's threads exist.
  if (const absl::Status probe = DaemonLink::Probe(command.dir);
      !probe.ok() && !absl::IsPermissionDenied(probe)) {
    return probe;
  }
  std::unique_ptr<WorkerProcesses> workers;
  if (args.processes > 1) {
    auto started =
        WorkerProcesses::Start(WorkerArguments(command), args.processes, stop.previous_mask());
    if (!started.ok()) return started.status();
    workers = *std::move(started);
    HMM_RETURN_IF_ERROR(workers->WaitReady(stop.token()));
  }

  // Phase 2: the counters before.
  absl::StatusOr<std::unique_ptr<DaemonLink>> link = ConnectIfAllowed(command.dir);
  if (!link.ok()) return link.status();
  const absl::StatusOr<std::optional<v1::GetStatusResponse>> before = TakeStatus(link->get());
  if (!before.ok()) return before.status();
  if (*before && !args.tier.empty() && !HasTier(**before, args.tier)) {
    return Error(absl::StatusCode::kNotFound, Reason::kNotFound,
                 absl::StrCat("--tier ", args.tier,
                              ": the daemon has no such tier; see `hmmctl tier "
                              "list`"));
  }
  const WorkerSetup setup = MakeSetup(args, *before);

  // Phase 3: the run.
  ReplayReport report;
  const auto start = std::chrono::steady_clock::now();
  if (workers != nullptr) {
    HMM_RETURN_IF_ERROR(workers->Go(setup));
    std::size_t requests = trace->requests.size();
    if (args.requests != 0) requests = std::min(requests, args.requests);
    const Progress progress([&] { return workers->done(); }, requests);
    report.tally = workers->Collect(stop.token());
  } else {
    absl::StatusOr<ReplayTally> tally = RunHere(command, *trace, setup, stop);
    if (!tally.ok()) return tally.status();
    report.tally = *std::move(tally);
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  // Phase 4: the counters after, and the report.
  const absl::StatusOr<std::optional<v1::GetStatusResponse>> after = TakeStatus(link->get());
  if (!after.ok()) {
    report.tally.AddError(
        absl::StrCat("status after the run: ", std::string(after.status().message())));
  } else if (*before && *after) {
    report.traffic = TrafficBetween(**before, **after);
    report.hbm_emulated = HasEmulatedHbm(**after);
  }
  HMM_RETURN_IF_ERROR(WriteOut(MakePrinter(command.format)->Replay(report)));
  if (*file != nullptr) {
    HMM_RETURN_IF_ERROR(
        WriteReport(*std::move(file), args.report, MakePrinter(Format::kJson)->Replay(report)));
  }
  TellFaults(report.tally);
  const bool good =
      report.tally.wrong_bytes == 0 && report.tally.errors == 0 && !report.tally.interrupted;
  return good ? 0 : 1;
}

}  // namespace hmm::ctl
