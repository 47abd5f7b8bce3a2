// SPDX-License-Identifier: Apache-2.0
//
// Tensors made of fragments come back exactly, to the byte, from a real daemon: random cuts of
// leased and attached regions, stored, sent to random tiers, loaded into other cuts. TEST_SEED
// (default 1, 0: random) replays a run.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "e2e/client_fixture.h"
#include "hmm/region.h"

namespace hmm::testing {
namespace {

constexpr std::size_t kRegionBytes = 2 * kMiB;
constexpr int kRounds = 60;

using Bytes = std::vector<std::byte>;

// A region and what the test sees of it.
struct Seen {
  Region region;
  std::byte* data = nullptr;
};

// A memfd of the test's own: stays open and mapped until the test ends.
std::byte* OwnMemory(int& fd) {
  fd = memfd_create("own", MFD_ALLOW_SEALING | MFD_CLOEXEC);
  REQUIRE(fd >= 0);
  REQUIRE(ftruncate(fd, kRegionBytes) == 0);
  REQUIRE(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  void* at = mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  REQUIRE(at != MAP_FAILED);
  return static_cast<std::byte*>(at);
}

class Rounds {
 public:
  Rounds(const std::string& dir, std::uint64_t seed)
      : client_(ConnectTo(dir)), regions_(*client_), rng_(seed) {
    for (const char* tier : {"ddr0", "hbm0"}) {
      auto lease = regions_.Lease(kRegionBytes, {.tier = tier});
      INFO(lease.status());
      REQUIRE(lease.ok());
      std::byte* data = lease->data();
      seen_.push_back({*std::move(lease), data});
    }
    int fd = -1;
    std::byte* own = OwnMemory(fd);
    auto attached = regions_.Attach(fd, kRegionBytes);
    INFO(attached.status());
    REQUIRE(attached.ok());
    seen_.push_back({*std::move(attached), own});
    close(fd);
  }
  ~Rounds() { munmap(seen_.back().data, kRegionBytes); }

  void Run(int round) {
    CAPTURE(round);
    for (const Seen& one : seen_) {
      for (std::size_t i = 0; i < kRegionBytes; i += 8) {
        const std::uint64_t noise = rng_();
        std::memcpy(one.data + i, &noise, 8);
      }
    }
    // 1. Out of any bytes, some named more than once.
    const std::size_t keys = 1 + Pick(4);
    std::vector<StoreItem> items(keys);
    std::vector<Bytes> expected(keys);
    for (std::size_t k = 0; k < keys; ++k) {
      items[k].key = std::to_string(round) + "." + std::to_string(k);
      items[k].kind = Kind::kKvCache;
      for (std::size_t n = 1 + Pick(40); n > 0; --n) {
        const Seen& from = seen_[Pick(seen_.size())];
        const std::size_t bytes = 1 + Pick(Pick(2) == 0 ? 100 : 20'000);
        const std::size_t at = Pick(kRegionBytes - bytes + 1);
        items[k].fragments.push_back({&from.region, at, bytes});
        expected[k].insert(expected[k].end(), from.data + at, from.data + at + bytes);
      }
    }
    End(regions_.Store(items, {.tier = Pick(2) == 0 ? "ddr0" : "hbm0", .allow_lower = true}));
    Disturb(items);
    Fetch(items, expected);
    Forget(items);
  }

 private:
  std::size_t Pick(std::size_t n) { return static_cast<std::size_t>(rng_() % n); }

  void End(absl::StatusOr<Job> job) {
    INFO(job.status());
    REQUIRE(job.ok());
    const auto ended = regions_.Wait(*job, std::chrono::seconds(60));
    INFO(ended.status());
    REQUIRE(ended.ok());
    REQUIRE(ended->ended);
    for (const absl::Status& one : ended->done) {
      INFO(one);
      REQUIRE(one.ok());
    }
  }

  // 2. Their sources are overwritten; each goes wherever chance sends it.
  void Disturb(const std::vector<StoreItem>& items) {
    for (const Seen& one : seen_) std::fill_n(one.data, kRegionBytes, std::byte{0x5a});
    constexpr std::array kTiers{"hbm0", "ddr0", "flash0"};
    for (const StoreItem& item : items) {
      const std::array<std::string, 1> key{item.key};
      Tensor tensor;
      {
        auto found = client_->Lookup(key);
        REQUIRE(found.ok());
        REQUIRE(found->size() == 1);
        tensor = (*found)[0].tensor;
      }
      const absl::Status moved = client_->Swap(tensor, {.tier = kTiers[Pick(kTiers.size())]});
      INFO(moved);
      REQUIRE(moved.ok());
    }
  }

  // 3. Into another cut, ascending with gaps in each region; all else stays as it was.
  void Fetch(const std::vector<StoreItem>& items, const std::vector<Bytes>& expected) {
    std::vector<LoadItem> loads(items.size());
    std::vector<std::size_t> next(seen_.size(), 0);
    std::vector<Bytes> want(seen_.size(), Bytes(kRegionBytes, std::byte{0x5a}));
    for (std::size_t k = 0; k < items.size(); ++k) {
      loads[k].key = items[k].key;
      for (std::size_t done = 0; done < expected[k].size();) {
        const std::size_t to = Pick(seen_.size());
        const std::size_t left = expected[k].size() - done;
        next[to] += Pick(300);
        const std::size_t room = kRegionBytes - std::min(kRegionBytes, next[to]);
        if (room == 0) continue;  // three regions hold far more than is stored
        const std::size_t bytes = std::min({left, room, 1 + Pick(30'000)});
        loads[k].fragments.push_back({&seen_[to].region, next[to], bytes});
        std::copy_n(expected[k].begin() + static_cast<std::ptrdiff_t>(done), bytes,
                    want[to].begin() + static_cast<std::ptrdiff_t>(next[to]));
        next[to] += bytes;
        done += bytes;
      }
    }
    std::shuffle(loads.begin(), loads.end(), rng_);
    End(regions_.Load(loads));
    for (std::size_t r = 0; r < seen_.size(); ++r) {
      REQUIRE(std::memcmp(seen_[r].data, want[r].data(), kRegionBytes) == 0);
    }
  }

  void Forget(const std::vector<StoreItem>& items) {
    for (const StoreItem& item : items) {
      const std::array<std::string, 1> key{item.key};
      auto found = client_->Lookup(key);
      REQUIRE(found.ok());
      for (const Held& held : *found) REQUIRE(client_->Free(held.tensor).ok());
    }
  }

  std::unique_ptr<Client> client_;
  Regions regions_;
  std::vector<Seen> seen_;
  std::mt19937_64 rng_;
};

TEST_CASE("what was stored out of fragments is loaded into others exactly") {
  const char* base = std::getenv("TEST_SEED");
  std::uint64_t seed = base == nullptr ? 1 : std::strtoull(base, nullptr, 10);
  if (seed == 0) seed = std::random_device{}();
  std::printf("fragments: TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  CAPTURE(seed);
  DaemonProcess daemon(HMMD_BINARY);
  const Books before = ReadBooks(daemon.dir());
  {
    Rounds rounds(daemon.dir(), seed);
    for (int round = 0; round < kRounds; ++round) rounds.Run(round);
  }
  CHECK(WaitUntil([&] { return ReadBooks(daemon.dir()) == before; }));
}

}  // namespace
}  // namespace hmm::testing
