// SPDX-License-Identifier: Apache-2.0
//
// What a user would write, built against the installed library alone. Without a daemon: prints the
// typed error, exit 0 if it is NO_DAEMON. With one: allocates, seals, finds, reads; caches a block.
#include <hmm/client.h>
#include <hmm/kv_cache.h>

#include <array>
#include <cstring>
#include <iostream>
#include <string>

// A block of one token is computed, sealed, and found by a second sequence.
bool CacheABlock(hmm::Client& client) {
  auto cache = hmm::KvCache::Create(
      client, {.layers = 1, .block_tokens = 1, .token_bytes = 8, .model_digest = "consumer"});
  if (!cache.ok()) return false;
  const std::array<std::int32_t, 1> tokens{42};
  hmm::KvSequence first = (*cache)->Open();
  if (first.Match(tokens) != 0 || !first.Append(tokens).ok()) return false;
  std::memset(first.Writable(0, 0).data(), 7, 8);
  hmm::KvSequence second = (*cache)->Open();
  return first.Commit().ok() && second.Match(tokens) == 1;
}

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
  if (!CacheABlock(**client)) return 1;
  return std::memcmp((*found)[0].pin.data(), "hello", 5) == 0 && expect_daemon ? 0 : 1;
}
