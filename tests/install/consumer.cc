// SPDX-License-Identifier: Apache-2.0
//
// What a user would write, built against the installed library alone. Without a daemon: prints the
// typed error, exit 0 if it is NO_DAEMON. With one: allocates, seals, finds, reads.
#include <hmm/client.h>

#include <array>
#include <cstring>
#include <iostream>
#include <string>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const bool expect_daemon = std::string(argv[2]) == "daemon";
  auto client = hmm::Client::Connect(
      {.dir = argv[1], .connect_timeout = std::chrono::milliseconds(expect_daemon ? 10'000 : 50)});
  if (!client.ok()) {
    std::cout << hmm::ReasonOfStatus(client.status()) << ": " << client.status() << "\n";
    return !expect_daemon && hmm::ReasonOfStatus(client.status()) == "NO_DAEMON" ? 0 : 1;
  }
  auto block = (*client)->Allocate({.bytes = 5, .kind = hmm::Kind::kKvCache, .key = "k"});
  if (!block.ok()) {
    std::cout << block.status() << "\n";
    return 1;
  }
  std::memcpy(block->pin.data(), "hello", 5);
  if (!(*client)->Seal(block->tensor, std::move(block->pin)).ok()) return 1;
  const std::array<std::string, 1> keys{"k"};
  const auto found = (*client)->Lookup(keys);
  if (!found.ok() || found->size() != 1) return 1;
  std::cout << std::string(reinterpret_cast<char*>((*found)[0].pin.data()), 5) << " from "
            << (*found)[0].pin.tier() << "\n";
  return std::memcmp((*found)[0].pin.data(), "hello", 5) == 0 && expect_daemon ? 0 : 1;
}
