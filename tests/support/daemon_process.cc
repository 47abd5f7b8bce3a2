// SPDX-License-Identifier: Apache-2.0
#include "support/daemon_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "support/catch.h"
#include "support/wait_until.h"

extern char** environ;

namespace hmm::testing {

const char kSmallTiers[] = R"(
[daemon]
commit_headroom = "16MiB"

[calibration]
at_start = "never"

[[tier]]
name = "hbm0"
kind = "hbm"
emulated = true
capacity = "8MiB"
reserve = "1MiB"
commit_chunk = "64KiB"
pages = "small"

[[tier]]
name = "ddr0"
kind = "ddr"
capacity = "16MiB"
reserve = "1MiB"
commit_chunk = "64KiB"
pages = "small"

[[tier]]
name = "flash0"
kind = "flash"
capacity = "32MiB"
reserve = "1MiB"
)";

namespace {

bool Listens(const std::string& path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  REQUIRE(fd >= 0);
  const bool listens =
      ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  ::close(fd);
  return listens;
}

}  // namespace

ChildProcess::ChildProcess(std::vector<std::string> command, std::string log_file) {
  // Should this process die without its destructors, the child must not stay behind.
  command.insert(command.begin(), {"setpriv", "--pdeathsig", "KILL"});
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  REQUIRE(posix_spawn_file_actions_init(&files) == 0);
  REQUIRE(posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log_file.c_str(),
                                           O_WRONLY | O_CREAT | O_APPEND, 0600) == 0);
  REQUIRE(posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0) == 0);
  const int error = posix_spawnp(&pid_, words[0], &files, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  REQUIRE(error == 0);
}

ChildProcess::~ChildProcess() {
  if (ended_) return;
  ::kill(pid_, SIGKILL);
  Wait();
}

bool ChildProcess::Running() {
  if (!ended_ && ::waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
  return !ended_;
}

void ChildProcess::Signal(int signal) {
  if (Running()) ::kill(pid_, signal);
}

void ChildProcess::Stop() {
  Signal(SIGSTOP);
  // The signal is on its way when kill returns; the process stands still when its parent is told.
  while (!ended_) {
    const pid_t told = ::waitpid(pid_, &status_, WUNTRACED);
    if (told == pid_ && WIFSTOPPED(status_)) return;
    if (told == pid_ || errno != EINTR) ended_ = true;
  }
}

int ChildProcess::Wait() {
  while (!ended_) {
    if (::waitpid(pid_, &status_, 0) == pid_ || errno != EINTR) ended_ = true;
  }
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

DaemonProcess::DaemonProcess(std::string binary, const std::string& config)
    : binary_(std::move(binary)) {
  dir_.Write("hmmd.toml", config);
  Start();
}

DaemonProcess::~DaemonProcess() = default;

std::string DaemonProcess::Log() const {
  std::stringstream text;
  text << std::ifstream(dir_.File("log")).rdbuf();
  return text.str();
}

void DaemonProcess::Start() {
  child_ = std::make_unique<ChildProcess>(
      std::vector<std::string>{binary_, "--config", dir_.File("hmmd.toml"), "--dir", dir()},
      dir_.File("log"));
  // A daemon that was killed leaves its sockets, and connecting to them is refused.
  const bool ready = WaitUntil([&] {
    if (!child_->Running()) return true;
    return Listens(dir() + "/session.sock", SOCK_SEQPACKET) &&
           Listens(dir() + "/hmm.sock", SOCK_STREAM) && Listens(dir() + "/admin.sock", SOCK_STREAM);
  });
  INFO("hmmd said:\n" << Log());
  REQUIRE(ready);
  REQUIRE(child_->Running());
}

void DaemonProcess::Kill() {
  child_->Signal(SIGKILL);
  child_->Wait();
}

int DaemonProcess::Terminate() {
  child_->Signal(SIGTERM);
  return child_->Wait();
}

void DaemonProcess::Stop() { child_->Stop(); }
void DaemonProcess::Continue() { child_->Signal(SIGCONT); }

std::uint64_t OwnMemoryKib(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  unsigned long kib = 0;
  for (std::string line; std::getline(status, line);) {
    if (std::sscanf(line.c_str(), "RssAnon: %lu", &kib) == 1) break;
  }
  return kib;
}

}  // namespace hmm::testing
