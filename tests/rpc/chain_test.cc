// SPDX-License-Identifier: Apache-2.0
//
// An executor that is never idle. The daemon is in a process of its own: in one process with its
// client, the client's thread would look at the daemon's sockets as well.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <string>

#include "rpc/fixture.h"
#include "share/memory_file.h"
#include "support/catch.h"
#include "support/wait_until.h"

namespace hmm::testing {
namespace {

// Each posts the next.
struct Chain {
  Executor& executor;
  void operator()() const { executor.Post(*this); }
};

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    REQUIRE(pipe(ends.data()) == 0);
    read = share::UniqueFd(ends[0]);
    write = share::UniqueFd(ends[1]);
  }
  share::UniqueFd read;
  share::UniqueFd write;
};

// Serves until its parent closes `stop`.
[[noreturn]] void Serve(Pipe& ready, Pipe& stop) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  stop.write.Reset();
  {
    InProcessDaemon daemon;
    daemon.daemon().executor().Post(Chain{daemon.daemon().executor()});
    const std::string dir = daemon.dir() + "\n";
    (void)!write(ready.write.get(), dir.data(), dir.size());
    char closed = 0;
    (void)!read(stop.read.get(), &closed, 1);
  }
  _exit(0);
}

}  // namespace

TEST_CASE("a chain of tasks on the executor keeps no call out, nor the end") {
  Pipe ready;
  Pipe stop;
  const pid_t child = fork();  // before gRPC is initialised here
  REQUIRE(child >= 0);
  if (child == 0) Serve(ready, stop);
  ready.write.Reset();
  std::string dir;
  for (char c = 0; read(ready.read.get(), &c, 1) == 1 && c != '\n';) dir.push_back(c);
  REQUIRE(!dir.empty());
  {
    Stubs stubs(dir, "hmm.sock");
    for (int i = 0; i < 10; ++i) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
      grpc::health::v1::HealthCheckResponse response;
      CHECK(stubs.health->Check(&context, {}, &response).ok());
    }
  }
  stop.write.Reset();
  int status = -1;
  const bool ended = WaitUntil([&] { return waitpid(child, &status, WNOHANG) == child; });
  CHECK(ended);
  CHECK(status == 0);
  if (!ended) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

}  // namespace hmm::testing
