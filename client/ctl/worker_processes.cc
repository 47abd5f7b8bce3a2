// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/worker_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

extern char** environ;

namespace hmm::ctl {
namespace {

using nlohmann::json;

constexpr int kPollMs = 100;
constexpr std::size_t kLineMax = 1 << 20;  // a tally is some kilobytes

struct Pipe {
  int read = -1;
  int write = -1;
};

absl::StatusOr<Pipe> MakePipe() {
  std::array<int, 2> fds{};
  if (pipe2(fds.data(), O_CLOEXEC) != 0) return PosixError("pipe", errno);
  return Pipe{fds[0], fds[1]};
}

// This program's file, so that its name shows in `session list`; the link itself where the file is
// not there any more (an upgrade while it runs).
std::string OwnPath() {
  const std::string link = "/proc/self/exe";
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink(link, error);
  return !error && std::filesystem::exists(path, error) ? path.string() : link;
}

void Close(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

}  // namespace

struct WorkerProcesses::Worker {
  std::size_t index = 0;
  pid_t pid = -1;
  int to = -1;
  int from = -1;  // -1: ended
  bool ready = false;
  std::string partial;  // a line that has not ended yet
  std::optional<ReplayTally> tally;
  std::string fault;
  std::atomic<std::size_t> done{0};
};

std::string SetupToJson(const WorkerSetup& setup) {
  json out;
  out["tier"] = setup.tier;
  out["window_bytes"] = setup.window_bytes;
  out["tier_kinds"] = json::object();
  for (const auto& [name, kind] : setup.tier_kinds) {
    out["tier_kinds"][name] = static_cast<int>(kind);
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<WorkerSetup> SetupFromJson(const std::string& text) {
  try {
    const json in = json::parse(text);
    WorkerSetup setup;
    in.at("tier").get_to(setup.tier);
    in.at("window_bytes").get_to(setup.window_bytes);
    for (const auto& [name, kind] : in.at("tier_kinds").items()) {
      const int number = kind.get<int>();
      if (number < 1 || number > 3) continue;
      setup.tier_kinds[name] = static_cast<TierKind>(number);
    }
    return setup;
  } catch (const json::exception& e) {  // what the library throws ends here
    return Error(absl::StatusCode::kInvalidArgument, Reason::kProtocol,
                 std::string("the setup line is malformed: ") + e.what());
  }
}

WorkerProcesses::WorkerProcesses(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    workers_.push_back(std::make_unique<Worker>());
    workers_.back()->index = i;
  }
}

absl::StatusOr<std::unique_ptr<WorkerProcesses>> WorkerProcesses::Start(
    const std::vector<std::string>& arguments, std::size_t count, const sigset_t& mask) {
  std::unique_ptr<WorkerProcesses> all(new WorkerProcesses(count));
  for (std::size_t i = 0; i < count; ++i) HMM_RETURN_IF_ERROR(all->Spawn(arguments, i, mask));
  return all;
}

absl::Status WorkerProcesses::Spawn(const std::vector<std::string>& arguments, std::size_t index,
                                    const sigset_t& mask) {
  Worker& worker = *workers_[index];
  absl::StatusOr<Pipe> down = MakePipe();
  if (!down.ok()) return down.status();
  absl::StatusOr<Pipe> up = MakePipe();
  if (!up.ok()) {
    Close(&down->read);
    Close(&down->write);
    return up.status();
  }
  std::vector<std::string> texts = arguments;
  texts.push_back(absl::StrCat("--worker=", index));
  std::vector<char*> argv;
  for (std::string& text : texts) argv.push_back(text.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, down->read, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, up->write, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A group of its own: a Ctrl-C reaches the parent alone, which passes it on once.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &mask);
  const int error =
      posix_spawn(&worker.pid, OwnPath().c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  Close(&down->read);
  Close(&up->write);
  worker.to = down->write;
  worker.from = up->read;
  if (error != 0) {
    worker.pid = -1;
    return PosixError("posix_spawn", error);
  }
  return absl::OkStatus();
}

WorkerProcesses::~WorkerProcesses() {
  for (const auto& worker : workers_) {
    Close(&worker->to);
    const bool running = worker->from >= 0;
    Close(&worker->from);
    if (worker->pid <= 0) continue;
    if (running) kill(worker->pid, SIGKILL);  // its session is reaped by the daemon
    waitpid(worker->pid, nullptr, 0);
  }
}

absl::Status WorkerProcesses::WaitReady(const std::stop_token& stop) {
  for (;;) {
    bool all = true;
    for (const auto& worker : workers_) {
      if (worker->from < 0 && !worker->ready) {
        return Error(absl::StatusCode::kInternal, Reason::kInternal,
                     absl::StrCat("worker ", worker->index, " ended before it began"));
      }
      all = all && worker->ready;
    }
    if (all) return absl::OkStatus();
    if (stop.stop_requested()) {
      return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "interrupted");
    }
    Poll();
  }
}

absl::Status WorkerProcesses::Go(const WorkerSetup& setup) {
  const std::string line = SetupToJson(setup) + "\n";
  for (const auto& worker : workers_) {
    // One small line into an empty pipe: never partial. SIGPIPE is ignored by main.
    if (write(worker->to, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      return PosixError(absl::StrCat("worker ", worker->index), errno);
    }
  }
  return absl::OkStatus();
}

ReplayTally WorkerProcesses::Collect(const std::stop_token& stop) {
  bool passed_on = false;
  while (!AllEnded()) {
    Poll();
    if (!stop.stop_requested() || passed_on) continue;
    passed_on = true;
    for (const auto& worker : workers_) {
      if (worker->from >= 0) kill(worker->pid, SIGTERM);
    }
  }
  ReplayTally all;
  for (const auto& worker : workers_) {
    int status = 0;
    waitpid(worker->pid, &status, 0);
    worker->pid = -1;
    if (worker->tally) {
      all.Merge(*worker->tally);
      continue;
    }
    all.AddError(absl::StrCat("worker ", worker->index,
                              WIFSIGNALED(status)
                                  ? absl::StrCat(" was killed by signal ", WTERMSIG(status))
                                  : absl::StrCat(" ended with code ", WEXITSTATUS(status)),
                              worker->fault.empty() ? "" : ": ", worker->fault));
  }
  return all;
}

std::size_t WorkerProcesses::done() const {
  std::size_t done = 0;
  for (const auto& worker : workers_) done += worker->done.load(std::memory_order_relaxed);
  return done;
}

bool WorkerProcesses::AllEnded() const {
  for (const auto& worker : workers_) {
    if (worker->from >= 0) return false;
  }
  return true;
}

void WorkerProcesses::Poll() {
  std::vector<pollfd> fds;
  for (const auto& worker : workers_) fds.push_back({worker->from, POLLIN, 0});
  if (poll(fds.data(), fds.size(), kPollMs) <= 0) return;
  for (std::size_t i = 0; i < fds.size(); ++i) {
    if (fds[i].revents == 0) continue;
    Worker& worker = *workers_[i];
    std::array<char, 16 * 1024> buffer;
    const ssize_t got = read(worker.from, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || worker.partial.size() > kLineMax) {
      Close(&worker.from);
      continue;
    }
    worker.partial.append(buffer.data(), static_cast<std::size_t>(got));
    for (std::size_t end = worker.partial.find('\n'); end != std::string::npos;
         end = worker.partial.find('\n')) {
      TakeLine(worker, worker.partial.substr(0, end));
      worker.partial.erase(0, end + 1);
    }
  }
}

void WorkerProcesses::TakeLine(Worker& worker, const std::string& line) {
  if (line == "ready") {
    worker.ready = true;
  } else if (line.rfind("done ", 0) == 0) {
    worker.done.store(std::strtoull(line.c_str() + 5, nullptr, 10), std::memory_order_relaxed);
  } else {
    absl::StatusOr<ReplayTally> tally = TallyFromJson(line);
    if (tally.ok()) {
      worker.done.store(tally->requests, std::memory_order_relaxed);
      worker.tally = *std::move(tally);
    } else {
      worker.fault = std::string(tally.status().message());
    }
  }
}

WorkerPipe::WorkerPipe() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

absl::StatusOr<WorkerSetup> WorkerPipe::Ready() {
  std::cout << "ready" << std::endl;
  std::string line;
  if (!std::getline(std::cin, line)) {
    return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the parent is gone");
  }
  return SetupFromJson(line);
}

void WorkerPipe::Done(std::size_t requests) { std::cout << "done " << requests << std::endl; }

void WorkerPipe::Finish(const ReplayTally& tally) { std::cout << TallyToJson(tally) << std::endl; }

}  // namespace hmm::ctl
