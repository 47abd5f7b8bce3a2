// SPDX-License-Identifier: Apache-2.0
//
// A long run at more than full: readers of a working set larger than all tiers, who make anew what
// they miss, verify every byte, and are killed now and then. Memory must stay flat. Two minutes;
// SOAK_SECONDS=1800 is half an hour.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "e2e/client_fixture.h"
#include "torture/ledger.h"
#include "torture/victim_host.h"

namespace hmm::testing {
namespace {

TEST_CASE("a long run over full, with kills: flat memory, no wrong byte") {
  const char* asked = std::getenv("SOAK_SECONDS");
  const auto length =
      std::chrono::seconds(asked == nullptr ? 120 : std::strtol(asked, nullptr, 10));
  // What is kept to be told of is full within the first rounds, not after ten minutes.
  DaemonProcess daemon(HMMD_BINARY, std::string(kSmallTiers) +
                                        "\n[limits]\nevents_kept = 1024\nmoves_kept = 1024\n");
  VictimHost victims(VICTIMS_BINARY, daemon.dir());
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t read = 0;
  std::uint64_t kib_warm = 0;
  std::uint64_t kib_most = 0;
  std::uint64_t rounds = 0;
  while (std::chrono::steady_clock::now() - start < length) {
    REQUIRE(victims.Ask("soak 4") == "soaking 4");
    std::this_thread::sleep_for(std::chrono::seconds(5));
    const std::string progress = victims.Ask("total");
    read += std::strtoull(progress.c_str() + std::strlen("total "), nullptr, 10);
    INFO("round " << rounds << "; log: " << daemon.Log());
    REQUIRE(victims.Ask("kill") == "killed 4 wrong 0 ended 0");
    REQUIRE(WaitUntil([&] { return ReadBooks(daemon.dir()).sessions == 0; }));
    CHECK(ReadBooks(daemon.dir()).pins == 0);
    const std::uint64_t kib = OwnMemoryKib(daemon.pid());
    if (++rounds == 3) kib_warm = kib;  // pools and tables have their size by then
    if (rounds > 3) kib_most = std::max(kib_most, kib);
  }
  const v1::Counters counters = StatusOf(daemon.dir()).counters();
  std::printf(
      "soak: %llu blocks verified, %llu evictions, %llu demotions; memory %llu KiB after "
      "the third round, at most %llu KiB later (%llu rounds)\n",
      static_cast<unsigned long long>(read), static_cast<unsigned long long>(counters.evictions()),
      static_cast<unsigned long long>(counters.demotions()),
      static_cast<unsigned long long>(kib_warm), static_cast<unsigned long long>(kib_most),
      static_cast<unsigned long long>(rounds));
  CHECK(read > 1000);
  CHECK(counters.evictions() > 0);  // it was over full
  CHECK(counters.lost_tensors() == 0);
  CHECK(kib_most <= kib_warm + kib_warm / 10 + 2048);
  CHECK(daemon.Terminate() == 0);
}

}  // namespace
}  // namespace hmm::testing
