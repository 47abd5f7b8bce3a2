// SPDX-License-Identifier: Apache-2.0
//
// Cases about room: pools that are full, hoarded, leaked, or not there. Numbers as in
// docs/guarantees.md.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "e2e/case_peer.h"
#include "e2e/client_fixture.h"

namespace hmm::testing {
namespace {

using std::chrono::milliseconds;

// Tiers as kSmallTiers, of other sizes and with other lines under [daemon] and [limits].
std::string Tiers(int hbm_mib, int ddr_mib, int flash_mib, const std::string& daemon = "",
                  const std::string& limits = "") {
  const auto tier = [](const char* name, const char* kind, int mib, const char* more) {
    return "[[tier]]\nname = \"" + std::string(name) + "\"\nkind = \"" + kind +
           "\"\ncapacity = \"" + std::to_string(mib) + "MiB\"\nreserve = \"1MiB\"\n" + more + "\n";
  };
  const char* memory = "commit_chunk = \"64KiB\"\npages = \"small\"\n";
  return "[daemon]\ncommit_headroom = \"16MiB\"\n" + daemon + "\n[limits]\n" + limits + "\n" +
         tier("hbm0", "hbm", hbm_mib, (std::string("emulated = true\n") + memory).c_str()) +
         tier("ddr0", "ddr", ddr_mib, memory) + tier("flash0", "flash", flash_mib, "");
}

// Lets other uids in: through the directory, and through the sockets.
std::string Open(const DaemonProcess& daemon) {
  REQUIRE(::chmod(daemon.dir().c_str(), 0777) == 0);
  return daemon.dir();
}

// What the machine still has, as the daemon reads it.
std::uint64_t AvailableMib() {
  std::ifstream meminfo("/proc/meminfo");
  unsigned long kib = 0;
  for (std::string line; std::getline(meminfo, line);) {
    if (std::sscanf(line.c_str(), "MemAvailable: %lu", &kib) == 1) break;
  }
  REQUIRE(kib > 0);
  return kib / 1024;
}

TEST_CASE("case 1: memory that is not there is refused, and nobody dies of it", "[case 1]") {
  // The pool fits when the daemon starts; then another process takes what it counted on, bit by
  // bit, until blocks are refused that the pool and the quota have room for. (The headroom makes
  // the machine small, so that the test needs not fill it.)
  constexpr std::size_t kSteps = 48;
  constexpr std::uint64_t kBlock = 4 * kMiB;
  constexpr std::size_t kEaten = std::size_t{128} << 20;
  constexpr std::uint64_t kLeftMib = 2048;  // at first; what runs beside this test may take some
  REQUIRE(AvailableMib() > 3 * kLeftMib);
  std::string config = Tiers(128, 128, 32, "", "session_pinned_max = 1.0");
  const std::string headroom = "commit_headroom = \"16MiB\"";
  config.replace(config.find(headroom), headroom.size(),
                 "commit_headroom = \"" + std::to_string(AvailableMib() - kLeftMib) + "MiB\"");
  DaemonProcess daemon(HMMD_BINARY, config);
  const auto client = ConnectTo(daemon.dir());
  std::vector<std::vector<char>> eaten;
  std::vector<Held> got;
  absl::Status refused;
  while (got.size() < kSteps && refused.ok()) {
    auto held = client->Allocate({.bytes = kBlock}, {.allow_lower = true});
    refused = held.status();
    if (!held.ok()) break;
    FillPattern(held->pin, got.size());  // every page of it is really there
    got.push_back(*std::move(held));
    eaten.emplace_back(kEaten, 1);
  }
  INFO(eaten.size() * kEaten << " bytes eaten; after " << got.size() << " blocks: " << refused);
  CHECK_FALSE(got.empty());
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK(ReasonOfStatus(refused) == "NO_MEMORY");
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(HasPattern(got[i].pin, i));
  CHECK(ReadBooks(daemon.dir()).sessions == 1);
  // What was eaten is back, and so is the room.
  eaten.clear();
  CHECK(WaitUntil([&] { return client->Allocate({.bytes = kBlock}, {.allow_lower = true}).ok(); }));
}

TEST_CASE("case 1: a pool larger than what can back it is refused at the start", "[case 1]") {
  const std::string mib = std::to_string(AvailableMib() + 4096);
  const TempDir dir;
  dir.Write("hmmd.toml",
            "[[tier]]\nname = \"ddr0\"\nkind = \"ddr\"\ncapacity = \"" + mib + "MiB\"\n");
  ChildProcess daemon({HMMD_BINARY, "--config", dir.File("hmmd.toml"), "--dir", dir.path()},
                      dir.File("log"));
  CHECK(daemon.Wait() == 1);
  std::stringstream log;
  log << std::ifstream(dir.File("log")).rdbuf();
  INFO(log.str());
  CHECK(log.str().find("available now") != std::string::npos);
}

TEST_CASE("case 2: what one thread gives back, another that waits gets", "[case 2]") {
  DaemonProcess daemon(HMMD_BINARY);
  const auto client = ConnectTo(daemon.dir());
  std::vector<Held> full;
  for (auto held = client->Allocate({.bytes = 512 * kKiB}); held.ok();
       held = client->Allocate({.bytes = 512 * kKiB})) {
    full.push_back(*std::move(held));
  }
  REQUIRE(full.size() >= 4);
  for (int round = 0; round < 20; ++round) {
    absl::StatusOr<Held> got = absl::UnknownError("not answered");
    std::thread waits([&] {
      got = client->Allocate({.bytes = 512 * kKiB},
                             {.wait = true, .timeout = std::chrono::seconds(30)});
    });
    std::this_thread::sleep_for(milliseconds(5));
    const Tensor given = full.back().tensor;
    full.pop_back();  // unpinned
    CHECK(client->Free(given).ok());
    waits.join();
    INFO(got.status());
    REQUIRE(got.ok());
    full.push_back(*std::move(got));
  }
}

TEST_CASE("case 3: sessions hoard HBM; another tenant is answered at once", "[case 3]") {
  DaemonProcess daemon(HMMD_BINARY,
                       Tiers(8, 16, 32, "socket_mode = \"0666\"", "session_pinned_max = 0.5"));
  const std::string dir = Open(daemon);
  const auto hoard = [&](const std::string& name) {
    auto hoarder = std::make_unique<ChildProcess>(
        std::vector<std::string>{PEER_BINARY, "hoard", dir, dir + "/" + name},
        dir + "/" + name + "-log");
    REQUIRE(WaitUntil(
        [&] { return std::filesystem::exists(dir + "/" + name) || !hoarder->Running(); }));
    REQUIRE(hoarder->Running());
    std::uint64_t hoarded = 0;
    std::ifstream(dir + "/" + name) >> hoarded;
    CHECK(hoarded > 2 * kMiB);
    CHECK(hoarded <= 4 * kMiB);  // session_pinned_max of 8 MiB
    return hoarder;
  };
  // What 2 MiB, half of what a session may have, get as another tenant; without a wait, so long
  // before the deadline that calls have.
  const auto other = [&] {
    ChildProcess modest(AsOther({PEER_BINARY, "alloc", dir, dir + "/x", std::to_string(2 * kMiB)}),
                        dir + "/modest-log");
    const auto begin = std::chrono::steady_clock::now();
    const int answer = modest.Wait();
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
    return answer;
  };
  // One hoarder: the other tenant's share is there.
  const auto first = hoard("one");
  CHECK(other() == kGot);
  // Two of them: all of HBM is pinned, and the refusal says so.
  const auto second = hoard("two");
  CHECK(other() == kRefusedForOthers);
  // The hoarders' death gives it back.
  first->Signal(SIGKILL);
  first->Wait();
  CHECK(WaitUntil([&] { return other() == kGot; }));
}

TEST_CASE("case 6: allocated, never sealed, gone: a hundred times", "[case 6]") {
  DaemonProcess daemon(HMMD_BINARY, Tiers(512, 64, 32, "", "session_pinned_max = 1.0"));
  const Books before = ReadBooks(daemon.dir());
  for (int round = 0; round < 100; ++round) {
    const std::string log = daemon.dir() + "/leak-log";
    ChildProcess leak(
        {PEER_BINARY, "leak", daemon.dir(), log + "-ready", std::to_string(400 * kMiB)}, log);
    REQUIRE(leak.Wait() == kGot);
    INFO("round " << round);
    REQUIRE(WaitUntil([&] { return ReadBooks(daemon.dir()) == before; }, milliseconds(1000)));
  }
}

TEST_CASE("case 8: 200,000 small tensors leave a tier; other calls keep their pace", "[case 8]") {
  DaemonProcess daemon(HMMD_BINARY, Tiers(256, 320, 32, "", "session_pinned_max = 1.0"));
  const auto client = ConnectTo(daemon.dir());
  constexpr std::size_t kTensors = 200'000;
  constexpr std::size_t kBatch = 4000;
  const std::vector<AllocateOptions> specs(kBatch, {.bytes = kKiB, .kind = Kind::kKvCache});
  for (std::size_t made = 0; made < kTensors; made += kBatch) {
    auto held = client->AllocateBatch(specs, {.wait = true, .all = true});
    INFO(held.status());
    REQUIRE(held.ok());
    std::vector<Client::SealItem> seals;
    for (auto& one : *held) seals.push_back({one->tensor, std::move(one->pin), ""});
    REQUIRE(client->SealBatch(std::move(seals)).ok());
  }
  const Tensor other = Put(*client, 64 * kKiB, 3);
  std::atomic<bool> done{false};
  std::atomic<bool> evicted{false};
  std::thread evicting([&] {
    evicted = Evict(daemon.dir(), "hbm0");
    done = true;
  });
  double longest = 0;
  std::size_t calls = 0;
  const std::uint64_t kib_before = OwnMemoryKib(daemon.pid());
  std::uint64_t kib_most = 0;
  while (!done) {
    kib_most = std::max(kib_most, OwnMemoryKib(daemon.pid()));
    const auto start = std::chrono::steady_clock::now();
    REQUIRE(client->Acquire(other).ok());
    longest = std::max(
        longest, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                     .count());
    ++calls;
  }
  evicting.join();
  CHECK(evicted);
  std::printf("evicting %zu tensors: longest of %zu other calls %.1f ms, daemon %llu to %llu KiB\n",
              kTensors, calls, longest, static_cast<unsigned long long>(kib_before),
              static_cast<unsigned long long>(kib_most));
  CHECK(ReadBooks(daemon.dir()).used_bytes[0] <= 2 * 64 * kKiB);  // `other` came back
  CHECK(longest < 1000);  // a stall of the whole eviction would be seconds
  // A batch at a time: something kept for each at once would be tens of MiB.
  CHECK(kib_most < kib_before + 16 * 1024);
}

TEST_CASE("case 9: pins that are never used are seen, capped, and wedge nobody", "[case 9]") {
  DaemonProcess daemon(HMMD_BINARY, Tiers(8, 16, 32, "", "session_pinned_max = 0.5"));
  const auto idle = ConnectTo(daemon.dir());
  const auto other = ConnectTo(daemon.dir());
  std::vector<std::string> keys;
  for (int i = 0; i < 40; ++i) {
    keys.push_back("idle:" + std::to_string(i));
    Put(*other, 256 * kKiB, static_cast<std::uint64_t>(i), keys.back());
  }
  // More than it may hold: the run is cut where its share of a tier ends.
  const auto run = idle->Lookup(keys, {.timeout = milliseconds(5000)});
  REQUIRE(run.ok());
  CHECK(run->size() >= 4);
  CHECK(run->size() < keys.size());
  for (int i = 0; i < 100; ++i) {
    const Tensor fresh = Put(*other, 512 * kKiB, 100 + static_cast<std::uint64_t>(i));
    REQUIRE(other->Free(fresh).ok());
  }
  const auto shown = [&] {
    for (const v1::SessionInfo& session : Sessions(daemon.dir())) {
      if (session.session() == idle->session()) return session;
    }
    return v1::SessionInfo();
  };
  CHECK(shown().pins() == run->size());
  CHECK(shown().pinned_bytes() == run->size() * 256 * kKiB);
  // Since when, and on what: the audit of each second sees the pins, and from then on they age.
  CHECK(WaitUntil([&] { return shown().oldest_pin_ms() > 0; }));
  CHECK(shown().age_ms() >= shown().oldest_pin_ms());
  CHECK(std::any_of(run->begin(), run->end(), [&](const Held& held) {
    return held.tensor.handle() == shown().oldest_pin_handle();
  }));
  // By tier as the last audit found it: within the session's share of each.
  CHECK(WaitUntil([&] {
    const v1::GetStatusResponse status = StatusOf(daemon.dir());
    return std::all_of(status.tiers().begin(), status.tiers().end(), [](const v1::TierInfo& tier) {
      return tier.pinned_bytes() <= tier.capacity_bytes() / 2;
    });
  }));
}

TEST_CASE("case 30: nearly full of what may go: demotion starts at the mark", "[case 30]") {
  DaemonProcess daemon(HMMD_BINARY);  // hbm0 8 MiB: high 0.85, low 0.75
  const auto client = ConnectTo(daemon.dir());
  for (std::uint64_t i = 0; i < 31; ++i) Put(*client, 256 * kKiB, i);
  // In the background, without any call: below the high mark (0.85 of 8 MiB), and never by losing
  // anything.
  CHECK(WaitUntil([&] { return ReadBooks(daemon.dir()).used_bytes[0] <= 6963 * kKiB; }));
  CHECK(StatusOf(daemon.dir()).counters().demotions() >= 4);
  CHECK(ReadBooks(daemon.dir()).tensors >= 31);  // and what the library has allocated ahead
  // And an allocation that does not fit finds room at once.
  const auto large = client->Allocate({.bytes = 4 * kMiB}, {.wait = true});
  INFO(large.status());
  CHECK(large.ok());
}

TEST_CASE("case 31: a cold cache has no hits", "[case 31]") {
  DaemonProcess daemon(HMMD_BINARY);
  const auto client = ConnectTo(daemon.dir());
  std::vector<std::string> keys;
  for (int i = 0; i < 50; ++i) keys.push_back("cold:" + std::to_string(i));
  REQUIRE(client->Lookup(keys)->empty());
  v1::Counters counters = StatusOf(daemon.dir()).counters();
  CHECK(counters.lookups() == 50);
  CHECK(counters.lookup_hits() == 0);
  CHECK(counters.misses() == 50);
  // One block in the middle: the run ends before it, so it is a miss like the others.
  Put(*client, 64 * kKiB, 1, keys[25]);
  REQUIRE(client->Lookup(keys)->empty());
  counters = StatusOf(daemon.dir()).counters();
  CHECK(counters.lookup_hits() == 0);
  Put(*client, 64 * kKiB, 2, keys[0]);
  REQUIRE(client->Lookup(keys)->size() == 1);
  counters = StatusOf(daemon.dir()).counters();
  CHECK(counters.lookups() == 150);
  CHECK(counters.lookup_hits() == 1);
  CHECK(counters.misses() == 149);
}

TEST_CASE("case 32: chunks are punched and filled again under copies to flash", "[case 32]") {
  DaemonProcess daemon(HMMD_BINARY);
  const auto client = ConnectTo(daemon.dir());
  // Blocks go to flash, their chunks are freed and given to the next, and come back elsewhere: were
  // arena memory registered with the kernel, the old pages would be written and read.
  for (std::uint64_t round = 0; round < 12; ++round) {
    std::vector<Tensor> blocks;
    for (std::uint64_t i = 0; i < 24; ++i) {
      blocks.push_back(Put(*client, 192 * kKiB, round * 100 + i));
    }
    for (const Tensor& block : blocks) CHECK(client->Swap(block, {.tier = "flash0"}).ok());
    for (std::uint64_t i = 0; i < 24; ++i) {
      const auto pin = client->Acquire(blocks[i], {.tier = i % 2 == 0 ? "hbm0" : "ddr0"});
      INFO(pin.status());
      REQUIRE(pin.ok());
      CHECK(HasPattern(*pin, round * 100 + i));
    }
    for (const Tensor& block : blocks) CHECK(client->Free(block).ok());
  }
}

TEST_CASE("case 33: who commits memory behind our back is expelled, alone", "[case 33]") {
  DaemonProcess daemon(HMMD_BINARY, Tiers(16, 16, 32, "socket_mode = \"0666\""));
  const std::string dir = Open(daemon);
  const auto client = ConnectTo(dir);
  const Tensor mine = Put(*client, 64 * kKiB, 9, "mine");
  ChildProcess reader(
      AsOther({PEER_BINARY, "holes", dir, dir + "/read", std::to_string(12 * kMiB)}),
      dir + "/reader-log");
  REQUIRE(WaitUntil([&] { return std::filesystem::exists(dir + "/read") || !reader.Running(); }));
  REQUIRE(reader.Running());
  CHECK(WaitUntil([&] { return StatusOf(dir).counters().expelled_sessions() == 1; }));
  CHECK(StatusOf(dir).sessions() <= 2);
  const auto pin = client->Acquire(mine);
  REQUIRE(pin.ok());
  CHECK(HasPattern(*pin, 9));
}

}  // namespace
}  // namespace hmm::testing
