// SPDX-License-Identifier: Apache-2.0
//
// daemon_peer DIR READY_FILE: attaches with the bare session socket, allocates nothing, forks a
// child that keeps the socket, writes the child's pid to READY_FILE and waits to be killed.
#include <unistd.h>

#include <fstream>

#include "rpc/raw_session.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  hmm::testing::RawSession session(argv[1]);
  session.Attach();
  const pid_t child = fork();
  if (child < 0) return 1;
  if (child > 0) std::ofstream(argv[2]) << child << std::endl;
  for (;;) pause();
}
