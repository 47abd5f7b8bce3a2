// SPDX-License-Identifier: Apache-2.0
//
// What a million tensors cost the daemon: keyed (16 bytes, as a hash is), sealed, at rest. Counted
// is all that grows with them: its own memory, the tenant's residency table and the session's page
// (both shared with the client, but the daemon's). Not the tensors' bytes.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bench/bench_support.h"
#include "hmm/client.h"
#include "share/layout.h"

namespace hmm::bench {
namespace {

constexpr std::size_t kTensors = 1'000'000;
constexpr std::size_t kBatch = 4000;

std::string KeyOf(std::uint64_t i) {
  const std::uint64_t halves[2] = {i * 0x9e3779b97f4a7c15, ~i};
  std::string key(16, '\0');
  std::memcpy(key.data(), halves, 16);
  return key;
}

int Run() {
  OwnDaemon daemon(R"(
[[tier]]
name = "hbm0"
kind = "hbm"
emulated = true
capacity = "128MiB"
)");
  auto client =
      Must(Client::Connect({.dir = daemon.dir(), .connect_timeout = std::chrono::seconds(30)}));
  const double before = daemon.Memory("RssAnon:");
  for (std::size_t done = 0; done < kTensors; done += kBatch) {
    std::vector<AllocateOptions> what;
    for (std::size_t i = 0; i < kBatch; ++i) {
      what.push_back({.bytes = 64, .kind = Kind::kKvCache, .key = KeyOf(done + i)});
    }
    std::vector<Client::SealItem> items;
    for (auto& held : Must(client->AllocateBatch(what))) {
      Must(held.status());
      items.push_back({held->tensor, std::move(held->pin), ""});
    }
    for (const absl::Status& sealed : Must(client->SealBatch(std::move(items)))) Must(sealed);
  }
  const double own = (daemon.Memory("RssAnon:") - before) / kTensors;
  const double shared = sizeof(share::TableSlot) + sizeof(std::uint32_t);
  std::printf("memory/per_tensor: %.0f own, %.0f in the table and the page\n", own, shared);
  Row("memory/per_tensor_at_a_million", own + shared, 256, "B", (own + shared) / 256, Bar::kAtMost,
      1);
  return 0;
}

}  // namespace
}  // namespace hmm::bench

int main() { return hmm::bench::Run(); }
