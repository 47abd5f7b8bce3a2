// SPDX-License-Identifier: Apache-2.0
#include "torture/victim_host.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "support/catch.h"

extern char** environ;

namespace hmm::testing {

VictimHost::VictimHost(const std::string& binary, const std::string& dir) {
  int commands[2];
  int answers[2];
  REQUIRE(::pipe2(commands, O_CLOEXEC) == 0);
  REQUIRE(::pipe2(answers, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t files;
  REQUIRE(posix_spawn_file_actions_init(&files) == 0);
  REQUIRE(posix_spawn_file_actions_adddup2(&files, commands[0], STDIN_FILENO) == 0);
  REQUIRE(posix_spawn_file_actions_adddup2(&files, answers[1], STDOUT_FILENO) == 0);
  std::vector<std::string> command{"setpriv", "--pdeathsig", "KILL", binary, dir};
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  const int error = posix_spawnp(&pid_, words[0], &files, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  ::close(commands[0]);
  ::close(answers[1]);
  REQUIRE(error == 0);
  in_ = ::fdopen(commands[1], "w");
  out_ = ::fdopen(answers[0], "r");
  REQUIRE(in_ != nullptr);
  REQUIRE(out_ != nullptr);
}

VictimHost::~VictimHost() {
  if (in_ != nullptr) std::fclose(in_);
  ::kill(pid_, SIGKILL);  // its victims die with it (PR_SET_PDEATHSIG)
  ::waitpid(pid_, nullptr, 0);
  if (out_ != nullptr) std::fclose(out_);
}

std::string VictimHost::Ask(const std::string& command) {
  std::fprintf(in_, "%s\n", command.c_str());
  std::fflush(in_);
  std::string answer;
  for (int c = std::fgetc(out_); c != '\n'; c = std::fgetc(out_)) {
    if (c == EOF) return "gone, asked to " + command;
    answer.push_back(static_cast<char>(c));
  }
  return answer;
}

}  // namespace hmm::testing
