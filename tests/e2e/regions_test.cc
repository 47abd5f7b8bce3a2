// SPDX-License-Identifier: Apache-2.0
//
// Regions and jobs through the client library, against a real daemon.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "e2e/client_fixture.h"
#include "hmm/region.h"

namespace hmm::testing {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct Fixture {
  DaemonProcess daemon{HMMD_BINARY};
  std::unique_ptr<Client> client = ConnectTo(daemon.dir());
  Regions regions{*client};

  Region Lease(std::size_t bytes, const std::string& tier = "ddr0") {
    absl::StatusOr<Region> region = regions.Lease(bytes, {.tier = tier});
    INFO(region.status());
    REQUIRE(region.ok());
    return *std::move(region);
  }
  std::vector<absl::Status> Ends(absl::StatusOr<Job> job) {
    INFO(job.status());
    REQUIRE(job.ok());
    const absl::StatusOr<JobResult> result = regions.Wait(*job);
    INFO(result.status());
    REQUIRE(result.ok());
    REQUIRE(result->ended);
    return result->done;
  }
  absl::Status Store(const std::string& key, std::vector<Fragment> fragments,
                     const JobOptions& options = {.tier = "ddr0"}) {
    const StoreItem item{.key = key, .fragments = std::move(fragments), .kind = Kind::kKvCache};
    return Ends(regions.Store({&item, 1}, options))[0];
  }
  absl::Status Load(const std::string& key, std::vector<Fragment> fragments) {
    const LoadItem item{.key = key, .fragments = std::move(fragments)};
    return Ends(regions.Load({&item, 1}))[0];
  }
};

void Fill(std::byte* data, std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(rng());
}

// A memfd of the test's own, mapped.
struct OwnFile {
  explicit OwnFile(std::size_t size, int seals = F_SEAL_SHRINK | F_SEAL_GROW,
                   unsigned flags = MFD_ALLOW_SEALING | MFD_CLOEXEC)
      : fd(memfd_create("own", flags)), bytes(size) {
    REQUIRE(fd >= 0);
    REQUIRE(ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    if (seals != 0) REQUIRE(fcntl(fd, F_ADD_SEALS, seals) == 0);
    void* at = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    REQUIRE(at != MAP_FAILED);
    data = static_cast<std::byte*>(at);
  }
  ~OwnFile() {
    munmap(data, bytes);
    close(fd);
  }
  std::uint64_t backed() const {
    struct stat info {};
    REQUIRE(fstat(fd, &info) == 0);
    return static_cast<std::uint64_t>(info.st_blocks) * 512;
  }
  int fd;
  std::size_t bytes;
  std::byte* data = nullptr;
};

TEST_CASE("a leased region stays in place, and blocks go out of it and back, by way of flash") {
  Fixture f;
  constexpr std::size_t kFrame = 48 * 1024;
  constexpr std::size_t kFrames = 32;
  Region frames = f.Lease(kFrames * kFrame, "hbm0");
  CHECK(frames.tier() == "hbm0");
  Fill(frames.data(), frames.size(), 1);
  const std::vector<std::byte> before(frames.data(), frames.data() + frames.size());
  // Every block: one piece of each of four layers' frames.
  std::vector<StoreItem> items;
  std::vector<LoadItem> loads;
  for (std::size_t block = 0; block < kFrames / 4; ++block) {
    std::vector<Fragment> out, in;
    for (std::size_t layer = 0; layer < 4; ++layer) {
      out.push_back({&frames, (layer * 8 + block) * kFrame, kFrame});
      in.push_back({&frames, (layer * 8 + 7 - block) * kFrame, kFrame});
    }
    items.push_back({.key = "b" + std::to_string(block), .fragments = out, .droppable = true});
    loads.push_back({.key = "b" + std::to_string(block), .fragments = in});
  }
  for (const absl::Status& one : f.Ends(f.regions.Store(items, {.tier = "hbm0"}))) {
    CHECK(one == absl::OkStatus());
  }
  // Visible to everybody by key, and down to flash.
  const auto other = ConnectTo(f.daemon.dir());
  std::vector<std::string> keys;
  for (const StoreItem& item : items) keys.push_back(item.key);
  {
    auto found = other->Lookup(keys);
    REQUIRE(found.ok());
    REQUIRE(found->size() == keys.size());
    CHECK(std::memcmp((*found)[3].pin.data(), before.data() + 3 * kFrame, kFrame) == 0);
    std::vector<Tensor> tensors;
    for (const Held& held : *found) tensors.push_back(held.tensor);
    // The pins go first.
    found->clear();
    const auto moved = other->SwapBatch(tensors, {.tier = "flash0"});
    REQUIRE(moved.ok());
    for (const absl::Status& one : *moved) CHECK(one == absl::OkStatus());
  }
  std::memset(frames.data(), 0, frames.size());
  for (const absl::Status& one : f.Ends(f.regions.Load(loads))) CHECK(one == absl::OkStatus());
  for (std::size_t layer = 0; layer < 4; ++layer) {
    for (std::size_t block = 0; block < 8; ++block) {
      CHECK(std::memcmp(frames.data() + (layer * 8 + 7 - block) * kFrame,
                        before.data() + (layer * 8 + block) * kFrame, kFrame) == 0);
    }
  }
}

TEST_CASE("a region of one's own memory: costs nothing untouched, is filled and read in place") {
  Fixture f;
  const Books before = ReadBooks(f.daemon.dir());
  OwnFile file(64 * kMiB);
  absl::StatusOr<Region> own = f.regions.Attach(file.fd, file.bytes);
  INFO(own.status());
  REQUIRE(own.ok());
  CHECK(own->data() == nullptr);
  CHECK(file.backed() == 0);
  CHECK(ReadBooks(f.daemon.dir()).used_bytes == before.used_bytes);
  Region lease = f.Lease(kMiB);
  Fill(lease.data(), kMiB, 2);
  REQUIRE(f.Store("k", {{&lease, 0, kMiB}}).ok());
  REQUIRE(f.Load("k", {{&*own, 33 * kMiB, 1000}, {&*own, 40 * kMiB, kMiB - 1000}}).ok());
  CHECK(std::memcmp(file.data + 33 * kMiB, lease.data(), 1000) == 0);
  CHECK(std::memcmp(file.data + 40 * kMiB, lease.data() + 1000, kMiB - 1000) == 0);
  CHECK(file.backed() < 3 * kMiB);
  // A hole reads as zeros, and the client may punch what it likes.
  REQUIRE(fallocate(file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                    static_cast<off_t>(file.bytes)) == 0);
  REQUIRE(f.Store("hole", {{&*own, 40 * kMiB, 5000}}).ok());
  REQUIRE(f.Load("hole", {{&lease, 0, 5000}}).ok());
  CHECK(std::accumulate(lease.data(), lease.data() + 5000, 0,
                        [](int sum, std::byte b) { return sum + static_cast<int>(b); }) == 0);
  CHECK(own->Release().ok());
  lease = Region();
  CHECK(ReadBooks(f.daemon.dir()).used_bytes[0] == before.used_bytes[0]);
}

TEST_CASE("a file that is no sealed memory file is refused by name, and the session lives on") {
  Fixture f;
  auto refused = [&](int fd, std::size_t bytes, const std::string& words = "") {
    const auto region = f.regions.Attach(fd, bytes);
    INFO(region.status());
    CHECK(!region.ok());
    CHECK(std::string(region.status().message()).find(words) != std::string::npos);
    return ReasonOfStatus(region.status());
  };
  OwnFile unsealed(8192, 0);
  OwnFile grows(8192, F_SEAL_SHRINK);
  OwnFile shrinks(8192, F_SEAL_GROW);
  OwnFile read_only(8192, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
  OwnFile good(8192);
  CHECK(refused(unsealed.fd, 8192) == "BAD_ARGUMENT");
  CHECK(refused(grows.fd, 8192) == "BAD_ARGUMENT");
  CHECK(refused(shrinks.fd, 8192) == "BAD_ARGUMENT");
  CHECK(refused(read_only.fd, 8192) == "BAD_ARGUMENT");
  CHECK(refused(good.fd, 8193) == "BAD_SIZE");
  CHECK(refused(good.fd, 0) == "BAD_SIZE");
  CHECK(refused(-1, 8192) == "BAD_ARGUMENT");
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  CHECK(refused(pipes[0], 8192, "a pipe") == "BAD_ARGUMENT");
  close(pipes[0]);
  close(pipes[1]);
  CHECK(refused(pipes[0], 8192, "not open") == "BAD_ARGUMENT");
  const std::string again = "/proc/self/fd/" + std::to_string(good.fd);
  for (const auto& [path, words] :
       {std::pair<std::string, std::string>{"/proc/self/exe", "a plain file"},
        {"/", "a directory"},
        {"/dev/null", "a device"},
        {again, "not open for reading and writing"}}) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    CHECK(refused(fd, 8192, words) == "BAD_ARGUMENT");
    close(fd);
  }
  // What is sealed cannot be cut short under the daemon.
  auto region = f.regions.Attach(good.fd, 8192);
  REQUIRE(region.ok());
  CHECK(ftruncate(good.fd, 0) != 0);
  CHECK(f.Store("k", {{&*region, 0, 8192}}).ok());
}

TEST_CASE("what is wrong with a key is its verdict") {
  Fixture f;
  Region region = f.Lease(64 * kKiB);
  CHECK(f.Store("k", {{&region, 0, 4096}}).ok());
  CHECK(ReasonOfStatus(f.Store("k", {{&region, 0, 4096}})) == "ALREADY_EXISTS");
  CHECK(ReasonOfStatus(f.Store("a", {{&region, 64 * kKiB - 1, 2}})) == "BAD_ARGUMENT");
  CHECK(ReasonOfStatus(f.Store("a", {{&region, 0, 0}})) == "BAD_SIZE");
  CHECK(ReasonOfStatus(f.Store("a", {{&region, ~std::size_t{0}, ~std::size_t{0}}})) ==
        "BAD_ARGUMENT");
  CHECK(ReasonOfStatus(f.Load("k", {{&region, 0, 4095}})) == "BAD_SIZE");
  CHECK(ReasonOfStatus(f.Load("k", {{&region, 0, 2048}, {&region, 2047, 2048}})) == "BAD_ARGUMENT");
  CHECK(ReasonOfStatus(f.Load("none", {{&region, 0, 4096}})) == "NOT_FOUND");
  Region none;
  const LoadItem unnamed{.key = "k", .fragments = {{&none, 0, 1}}};
  CHECK(ReasonOfStatus(f.regions.Load({&unnamed, 1}).status()) == "NOT_FOUND");
  const auto other = ConnectTo(f.daemon.dir());
  Regions theirs(*other);
  auto foreign = theirs.Lease(4096);
  REQUIRE(foreign.ok());
  const LoadItem mixed{.key = "k", .fragments = {{&*foreign, 0, 2048}, {&region, 0, 2048}}};
  CHECK(ReasonOfStatus(f.regions.Load({&mixed, 1}).status()) == "BAD_ARGUMENT");
  CHECK(ReasonOfStatus(f.regions.Lease(0).status()) == "BAD_SIZE");
  CHECK(ReasonOfStatus(f.regions.Lease(kMiB * 100).status()) == "TOO_LARGE");
  CHECK(ReasonOfStatus(f.regions.Lease(4096, {.tier = "flash0"}).status()) == "BAD_ARGUMENT");
}

TEST_CASE("jobs are told of by eventfd, and their places come back") {
  Fixture f;
  Region region = f.Lease(64 * kKiB);
  const absl::StatusOr<int> events = f.regions.EventFd();
  REQUIRE(events.ok());
  // More than may be unforgotten at a time, so that places must come back.
  for (int i = 0; i < 150; ++i) {
    const StoreItem item{
        .key = std::to_string(i), .fragments = {{&region, 0, 4096}}, .droppable = true};
    absl::StatusOr<Job> job = f.regions.Store({&item, 1}, {.tier = "ddr0"});
    INFO(job.status());
    REQUIRE(job.ok());
    if (i % 3 == 0) continue;  // dropped: its verdict is nobody's
    pollfd entry{*events, POLLIN, 0};
    for (;;) {
      REQUIRE(poll(&entry, 1, 20'000) == 1);
      std::uint64_t count = 0;
      REQUIRE(read(*events, &count, sizeof count) == sizeof count);
      const absl::StatusOr<JobResult> result = f.regions.Poll(*job);
      REQUIRE(result.ok());
      if (!result->ended) continue;
      CHECK(result->done[0] == absl::OkStatus());
      break;
    }
    CHECK(f.regions.Poll(*job)->ended);  // asked again: the same answer
  }
}

TEST_CASE("past its deadline a Store leaves nothing; cancelled and drained, neither") {
  Fixture f;
  Region region = f.Lease(kMiB);
  // hbm0 is full of what is pinned.
  std::vector<Held> full;
  for (;;) {
    auto held = f.client->Allocate({.bytes = 256 * kKiB});
    if (!held.ok()) break;
    full.push_back(*std::move(held));
  }
  const StoreItem item{.key = "k", .fragments = {{&region, 0, kMiB}}};
  CHECK(ReasonOfStatus(f.Ends(f.regions.Store({&item, 1}, {.timeout = milliseconds(100)}))[0]) ==
        "DEADLINE");
  auto job = f.regions.Store({&item, 1}, {.timeout = seconds(60)});
  REQUIRE(job.ok());
  CHECK(!f.regions.Wait(*job, milliseconds(100))->ended);
  CHECK(ReasonOfStatus(f.regions.Drain(region, {.timeout = milliseconds(100)})) == "DEADLINE");
  const bool drain = GENERATE(false, true);
  if (drain) {
    CHECK(f.regions.Drain(region, {.cancel = true}) == absl::OkStatus());
  } else {
    CHECK(f.regions.Cancel(*job) == absl::OkStatus());
  }
  const auto result = f.regions.Wait(*job);
  REQUIRE(result.ok());
  REQUIRE(result->ended);
  CHECK(ReasonOfStatus(result->done[0]) == "CANCELLED");
  full.clear();
  CHECK(f.Store("k", {{&region, 0, kMiB}}) == absl::OkStatus());
}

TEST_CASE("a client that is killed with jobs under way leaves nothing behind") {
  Fixture f;
  const Books before = ReadBooks(f.daemon.dir());
  std::mt19937 rng(1);
  for (int round = 0; round < 8; ++round) {
    const std::string ready = f.daemon.dir() + "/ready" + std::to_string(round);
    ChildProcess holder({HOLDER_BINARY, f.daemon.dir(), ready}, f.daemon.dir() + "/holder-log");
    REQUIRE(WaitUntil([&] { return std::filesystem::exists(ready) || !holder.Running(); }));
    std::this_thread::sleep_for(std::chrono::microseconds(rng() % 30'000));
    REQUIRE(holder.Running());
    const Books during = ReadBooks(f.daemon.dir());
    CHECK(during.sessions == before.sessions + 1);
    CHECK(during.used_bytes[1] >= before.used_bytes[1] + 2 * kMiB);  // its lease at least
    holder.Signal(SIGKILL);
    REQUIRE(holder.Wait() == 128 + SIGKILL);
    CHECK(WaitUntil([&] {
      const Books now = ReadBooks(f.daemon.dir());
      return now.sessions == before.sessions && now.pins == before.pins;
    }));
    // What was whole by then is the tenant's, and stays until somebody frees it.
    for (int i = 0; i < 16; ++i) {
      const std::array<std::string, 1> key{"h" + std::to_string(i)};
      const auto found = f.client->Lookup(key);
      REQUIRE(found.ok());
      for (const Held& held : *found) CHECK(f.client->Free(held.tensor) == absl::OkStatus());
    }
    CHECK(WaitUntil([&] { return ReadBooks(f.daemon.dir()) == before; }));
  }
  Region region = f.Lease(kMiB);
  CHECK(f.Store("after", {{&region, 0, 100}}).ok());
}

TEST_CASE("a pin given to a fence ends with it, and the tensor moves then") {
  Fixture f;
  absl::StatusOr<Timeline> timeline = f.client->CreateTimeline();
  REQUIRE(timeline.ok());
  const Tensor tensor = Put(*f.client, 64 * kKiB, 1, "t");
  auto swap = [&] {
    return f.client->Swap(tensor, {.tier = "ddr0", .timeout = milliseconds(200)});
  };
  std::optional<Pin> pin = tensor.TryPin();
  REQUIRE(pin.has_value());
  CHECK(pin->ReleaseAt(*timeline, 3) == absl::OkStatus());
  CHECK(!pin->valid());
  CHECK(ReasonOfStatus(pin->ReleaseAt(*timeline, 3)) == "NOT_PINNED");
  timeline->Signal(2);
  CHECK(ReasonOfStatus(swap()) == "PINNED");
  if (GENERATE(false, true)) {
    timeline->Signal(3);
  } else {
    // Behind the library's back: the daemon sees it.
    __atomic_store_n(timeline->word(), 7, __ATOMIC_RELEASE);
  }
  CHECK(swap() == absl::OkStatus());
  // Reached before it is armed.
  std::optional<Pin> late = tensor.TryPin();
  REQUIRE(late.has_value());
  timeline->Signal(9);
  CHECK(late->ReleaseAt(*timeline, 9) == absl::OkStatus());
  CHECK(f.client->Swap(tensor, {.tier = "hbm0"}) == absl::OkStatus());
}

TEST_CASE("fences run out by name, and a foreign timeline is refused; the pin stays") {
  Fixture f;
  const Tensor tensor = Put(*f.client, 4096, 1, "t");
  auto timeline = f.client->CreateTimeline();
  REQUIRE(timeline.ok());
  const auto other = ConnectTo(f.daemon.dir());
  auto foreign = other->CreateTimeline();
  REQUIRE(foreign.ok());
  Pin kept = *tensor.TryPin();
  CHECK(ReasonOfStatus(kept.ReleaseAt(*foreign, 1)) == "BAD_ARGUMENT");
  CHECK(ReasonOfStatus(kept.ReleaseAt(Timeline(), 1)) == "BAD_ARGUMENT");
  for (std::uint64_t i = 0; i < 1024; ++i) {
    REQUIRE(tensor.TryPin()->ReleaseAt(*timeline, 1 + i % 2) == absl::OkStatus());
  }
  CHECK(ReasonOfStatus(kept.ReleaseAt(*timeline, 1)) == "QUEUE_FULL");
  CHECK(kept.valid());
  timeline->Signal(1);
  CHECK(kept.ReleaseAt(*timeline, 2) == absl::OkStatus());
  CHECK(f.client->Describe(tensor)->pins == 513);
  timeline->Signal(2);
  CHECK(f.client->Describe(tensor)->pins == 0);
  int timelines = 1;
  while (f.client->CreateTimeline().ok()) ++timelines;
  CHECK(timelines == 64);
}

TEST_CASE("a Client with pins at fences goes when the last of them has ended") {
  Fixture f;
  const Books before = ReadBooks(f.daemon.dir());
  auto mine = ConnectTo(f.daemon.dir());
  Timeline timeline = *mine->CreateTimeline();
  const Tensor tensor = Put(*mine, 4096, 1);
  REQUIRE(tensor.TryPin()->ReleaseAt(timeline, 1) == absl::OkStatus());
  mine.reset();
  CHECK(ReadBooks(f.daemon.dir()).pins == before.pins + 1);
  if (GENERATE(false, true)) {
    timeline.Signal(1);
  } else {
    __atomic_store_n(timeline.word(), 1, __ATOMIC_RELEASE);
  }
  CHECK(WaitUntil([&] { return ReadBooks(f.daemon.dir()) == before; }));
}

TEST_CASE("a daemon that hangs costs each call its own timeout, and a region it gave too late") {
  Fixture f;
  Region region = f.Lease(kMiB);
  // Too large for what the others leave of hbm0: a hint that comes late after all moves nothing.
  const Tensor tensor = Put(*f.client, 512 * kKiB, 1, "t");
  REQUIRE(f.client->Swap(tensor, {.tier = "ddr0"}).ok());
  // hbm0 is full of what is pinned, so that the job waits.
  std::vector<Held> full;
  for (;;) {
    auto held = f.client->Allocate({.bytes = 256 * kKiB});
    if (!held.ok()) break;
    full.push_back(*std::move(held));
  }
  const StoreItem item{.key = "k", .fragments = {{&region, 0, kMiB}}};
  auto job = f.regions.Store({&item, 1}, {.timeout = seconds(60)});
  REQUIRE(job.ok());
  const Books before = ReadBooks(f.daemon.dir());
  f.daemon.Stop();
  constexpr milliseconds kTimeout(200);
  // Far below both the default of 10 s and the second that a release may take.
  const auto in_time = [](auto call) {
    const auto start = std::chrono::steady_clock::now();
    CHECK(ReasonOfStatus(call()) == "DEADLINE");
    CHECK(std::chrono::steady_clock::now() - start < milliseconds(900));
  };
  in_time([&] { return f.regions.Wait(*job, kTimeout).status(); });
  const StoreItem other{.key = "other", .fragments = {{&region, 0, kMiB}}};
  in_time([&] { return f.regions.Store({&other, 1}, {.timeout = kTimeout}).status(); });
  const LoadItem load{.key = "t", .fragments = {{&region, 0, 512 * kKiB}}};
  in_time([&] { return f.regions.Load({&load, 1}, {.timeout = kTimeout}).status(); });
  in_time([&] { return f.regions.Drain(region, {.timeout = kTimeout}); });
  in_time([&] { return f.client->Prefetch(tensor, {.tier = "hbm0", .timeout = kTimeout}); });
  in_time([&] { return f.regions.Lease(kMiB, {.tier = "ddr0", .timeout = kTimeout}).status(); });
  OwnFile file(kMiB);
  in_time([&] { return f.regions.Attach(file.fd, kMiB, kTimeout).status(); });
  f.daemon.Continue();
  // The next region brings the news that the late ones are not wanted.
  f.Lease(kMiB);
  CHECK(WaitUntil([&] { return ReadBooks(f.daemon.dir()).used_bytes == before.used_bytes; }));
}

TEST_CASE("a daemon that is told to stop ends jobs that wait, and stops") {
  Fixture f;
  Region region = f.Lease(2 * kMiB);
  std::vector<Held> full;
  for (;;) {
    auto held = f.client->Allocate({.bytes = 256 * kKiB}, {.tier = "hbm0"});
    if (!held.ok()) break;
    full.push_back(*std::move(held));
  }
  const StoreItem item{.key = "k", .fragments = {{&region, 0, 2 * kMiB}}};
  auto job = f.regions.Store({&item, 1}, {.timeout = std::chrono::hours(1), .tier = "hbm0"});
  REQUIRE(job.ok());
  CHECK(!f.regions.Wait(*job, milliseconds(20))->ended);
  CHECK(f.daemon.Terminate() == 0);
  // Its last word if that came through, else that it is gone.
  const auto result = f.regions.Wait(*job, milliseconds(2000));
  if (result.ok()) {
    REQUIRE(result->ended);
    CHECK(ReasonOfStatus(result->done[0]) == "DRAINING");
  } else {
    CHECK(result.status().code() == StatusCode::kAborted);
  }
}

TEST_CASE("when the daemon dies jobs are LOST, a lease keeps its bytes, and the next one serves") {
  Fixture f;
  Region region = f.Lease(kMiB);
  Fill(region.data(), kMiB, 9);
  const std::vector<std::byte> before(region.data(), region.data() + kMiB);
  const StoreItem item{.key = "k", .fragments = {{&region, 0, kMiB}}};
  auto job = f.regions.Store({&item, 1}, {.tier = "ddr0"});
  REQUIRE(job.ok());
  f.daemon.Kill();
  CHECK(f.regions.Wait(*job, milliseconds(2000)).status().code() == StatusCode::kAborted);
  CHECK(region.lost());
  CHECK(std::memcmp(region.data(), before.data(), kMiB) == 0);
  CHECK(f.regions.Store({&item, 1}).status().code() == StatusCode::kAborted);
  CHECK(region.Release() == absl::OkStatus());
  f.daemon.Start();
  region = f.Lease(kMiB);
  CHECK(f.Store("k", {{&region, 0, kMiB}}) == absl::OkStatus());
}

}  // namespace
}  // namespace hmm::testing
