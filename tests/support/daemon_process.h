// SPDX-License-Identifier: Apache-2.0
//
// A real hmmd in a directory of its own, for tests that need another process: started, waited for,
// killed, stopped, started again on the same directory; dead when the object or the test goes.
//
// One thread: the one that made it, which must outlive the daemon (it dies with that thread).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/temp_dir.h"

namespace hmm::testing {

// Three tiers that any machine can bear: hbm0 8 MiB (emulated), ddr0 16 MiB, flash0 32 MiB.
extern const char kSmallTiers[];

// A child process with its standard error in a file. SIGKILLed when the object goes.
class ChildProcess {
 public:
  ChildProcess(std::vector<std::string> command, std::string log_file);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // False once it has ended by itself.
  bool Running();
  void Signal(int signal);
  // SIGSTOP; returns when it stands still.
  void Stop();
  // Waits for its end. Exit status, or 128 + the signal.
  int Wait();

 private:
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

// KiB that a process has for itself: without what it shares, which the arenas are.
std::uint64_t OwnMemoryKib(pid_t pid);

class DaemonProcess {
 public:
  // `config`: TOML, without [daemon] dir and state_dir. Returns when the daemon listens; a daemon
  // that does not fails the test with its log.
  explicit DaemonProcess(std::string binary, const std::string& config = kSmallTiers);
  ~DaemonProcess();

  const std::string& dir() const { return dir_.path(); }
  pid_t pid() const { return child_->pid(); }
  std::string Log() const;

  void Start();     // REQUIRES: not running
  void Kill();      // SIGKILL, and waits for its end
  int Terminate();  // SIGTERM, and waits: the exit status
  void Stop();      // SIGSTOP, until it stands still
  void Continue();  // SIGCONT

 private:
  const std::string binary_;
  TempDir dir_;
  std::unique_ptr<ChildProcess> child_;
};

}  // namespace hmm::testing
