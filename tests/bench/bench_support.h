// SPDX-License-Identifier: Apache-2.0
//
// What the programs of bench/ that need no framework share: a daemon of their own, clocks, and the
// rows of bench_row.h.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/bench_row.h"

extern char** environ;

namespace hmm::bench {

inline void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "bench: %s\n", status.ToString().c_str());
  std::exit(1);
}
template <typename T>
T Must(absl::StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

template <typename Body>
double Seconds(Body body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// As Seconds, but of this thread's CPU: what a busy machine took away is nobody's.
template <typename Body>
double CpuTime(Body body) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double start = now();
  body();
  return now() - start;
}

// hmmd in a directory of its own, until this object goes. Who connects waits until it listens.
class OwnDaemon {
 public:
  explicit OwnDaemon(const std::string& config) {
    if (mkdtemp(dir_.data()) == nullptr) {
      std::perror("bench: a directory");
      std::exit(1);
    }
    const std::string file = dir_ + "/bench.toml";
    std::ofstream(file) << "[daemon]\nstate_dir = \"" << dir_ << "\"\nlog_level = \"warn\"\n"
                        << config;
    std::vector<std::string> words{"setpriv",  "--pdeathsig", "KILL",  HMMD_BINARY,
                                   "--config", file,          "--dir", dir_};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (posix_spawnp(&pid_, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0) {
      std::perror("bench: hmmd");
      std::exit(1);
    }
  }
  ~OwnDaemon() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  OwnDaemon(const OwnDaemon&) = delete;
  OwnDaemon& operator=(const OwnDaemon&) = delete;

  const std::string& dir() const { return dir_; }
  pid_t pid() const { return pid_; }
  // CPU time of all its threads so far, in seconds.
  double CpuSeconds() const {
    double sum = 0;
    const std::string tasks = "/proc/" + std::to_string(pid_) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      double ns = 0;
      std::ifstream(task.path() / "schedstat") >> ns;
      sum += ns * 1e-9;
    }
    return sum;
  }
  // A line of /proc/PID/status in bytes, such as "RssAnon:".
  double Memory(const std::string& what) const {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    for (std::string word; status >> word;) {
      double kib = 0;
      if (word == what && status >> kib) return kib * 1024;
    }
    return 0;
  }

 private:
  std::string dir_ = std::filesystem::temp_directory_path().string() + "/hmm_bench.XXXXXX";
  pid_t pid_ = -1;
};

}  // namespace hmm::bench
