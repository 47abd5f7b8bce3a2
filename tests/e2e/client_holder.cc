// SPDX-License-Identifier: Apache-2.0
//
// client_holder DIR READY_FILE: a client that holds all that a client can hold (a pin on a shared
// tensor, tensors of its own, sealed and not), makes READY_FILE and waits to be killed.
#include <unistd.h>

#include <array>
#include <fstream>
#include <iostream>
#include <string>

#include "hmm/client.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto client = hmm::Client::Connect({.dir = argv[1]});
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return 1;
  }
  const std::array<std::string, 1> keys{"shared"};
  const auto shared = (*client)->Lookup(keys);
  const auto writing = (*client)->Allocate({.bytes = 1 << 20, .key = "never sealed"});
  auto own = (*client)->Allocate({.bytes = 1 << 19});
  if (!shared.ok() || shared->size() != 1 || !writing.ok() || !own.ok() ||
      !(*client)->Seal(own->tensor).ok()) {
    std::cerr << shared.status() << writing.status() << own.status() << "\n";
    return 1;
  }
  std::ofstream(argv[2]) << "ready\n";
  for (;;) ::pause();
}
