// SPDX-License-Identifier: Apache-2.0
//
// The real daemon over a flash that fails, shortens, delays, hangs, corrupts and lies. Whatever it
// does: no client ever reads a wrong byte, calls end, the tiers above go on, and the daemon says
// so.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "e2e/client_fixture.h"
#include "fault/faulty_file.h"

namespace hmm::testing {
namespace {

using std::chrono::milliseconds;

// The control file, mapped here, and the environment a daemon is started with.
class FaultyFlash {
 public:
  FaultyFlash() {
    const int fd = ::open(dir_.File("control").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    REQUIRE(::ftruncate(fd, sizeof(FaultControl)) == 0);
    void* memory = ::mmap(nullptr, sizeof(FaultControl), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    REQUIRE(memory != MAP_FAILED);
    control_ = new (memory) FaultControl;
    ::setenv("FAULTY_CONTROL", dir_.File("control").c_str(), 1);
    ::setenv("FAULTY_FILE", "flash0.tier", 1);
    ::setenv("LD_PRELOAD", FAULTY_LIBRARY, 1);
  }
  ~FaultyFlash() {
    Set(Fault::kNone, 0);
    ::unsetenv("LD_PRELOAD");
    ::unsetenv("FAULTY_CONTROL");
    ::unsetenv("FAULTY_FILE");
    ::munmap(control_, sizeof(FaultControl));
  }
  void Set(Fault fault, std::uint32_t per_mille) {
    control_->per_mille = per_mille;
    control_->fault = static_cast<std::uint32_t>(fault);
  }
  FaultControl& control() { return *control_; }

 private:
  TempDir dir_;
  FaultControl* control_ = nullptr;
};

enum class Engine { kWorkers, kRing };

std::string ConfigOf(Engine engine) {
  std::string config = kSmallTiers;
  const std::string daemon = "[daemon]\n";
  const std::string name = engine == Engine::kRing ? "io_uring" : "workers";
  return config.replace(config.find(daemon), daemon.size(),
                        daemon + "flash_engine = \"" + name + "\"\n");
}

// Whether this system lets the daemon have a ring; says so if not.
bool HasRing() {
  const DaemonProcess daemon(HMMD_BINARY, ConfigOf(Engine::kRing));
  if (daemon.Log().find("io_uring refused") == std::string::npos) return true;
  WARN("io_uring is refused here: its engine is not tested. " << daemon.Log());
  return false;
}

// The engines that can be tested here. The first is asked for once.
std::vector<Engine> Engines() {
  static const bool ring = HasRing();
  return ring ? std::vector{Engine::kWorkers, Engine::kRing} : std::vector{Engine::kWorkers};
}

std::string FlashState(const std::string& dir) {
  const v1::GetStatusResponse status = StatusOf(dir);
  return status.tiers(2).state() + " (" + status.tiers(2).note() + ")";
}

struct Outcome {
  int right = 0;
  int lost = 0;     // DATA_LOSS, said so
  int refused = 0;  // any other error
};

// Blocks go down under the fault and come up again; every answer is one of the honest ones.
Outcome Churn(Client& client, std::uint64_t seed) {
  constexpr std::uint64_t kBlocks = 24;
  Outcome outcome;
  std::vector<Tensor> blocks;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    auto held = client.Allocate({.bytes = 128 * kKiB, .droppable = true},
                                {.allow_lower = true, .wait = true, .timeout = milliseconds(2000)});
    if (!held.ok()) {
      ++outcome.refused;
      continue;
    }
    FillPattern(held->pin, seed + blocks.size());
    const Tensor tensor = held->tensor;
    REQUIRE(client.Seal(tensor, std::move(held->pin)).ok());
    blocks.push_back(tensor);
  }
  (void)client.SwapBatch(blocks, {.tier = "flash0", .timeout = milliseconds(3000)});
  for (std::uint64_t i = 0; i < blocks.size(); ++i) {
    const auto pin = client.Acquire(blocks[i], {.timeout = milliseconds(2000)});
    if (pin.ok()) {
      INFO("block " << i << " of " << seed);
      REQUIRE(HasPattern(*pin, seed + i));
      ++outcome.right;
    } else {
      INFO(pin.status());
      CHECK_FALSE(ReasonOfStatus(pin.status()).empty());
      ++(absl::IsDataLoss(pin.status()) ? outcome.lost : outcome.refused);
    }
  }
  for (const Tensor& block : blocks) (void)client.Free(block);
  return outcome;
}

const char* NameOf(Engine engine) { return engine == Engine::kRing ? "ring" : "workers"; }

void CheckOutcome(Fault fault, std::uint32_t per_mille, const Outcome& outcome) {
  switch (fault) {
    case Fault::kNone:
    case Fault::kShort:
    case Fault::kDelay:  // slow and piecemeal is no loss
      CHECK(outcome.lost == 0);
      CHECK(outcome.right == 24);
      break;
    case Fault::kCorrupt:
    case Fault::kLie:
    case Fault::kTorn:
      if (per_mille == 1000) CHECK(outcome.lost > 0);  // and never taken for right
      break;
    default:
      break;
  }
}

void Misbehave(Engine engine, Fault fault, std::uint32_t per_mille) {
  static const char* const kNames[] = {"none", "fail",    "no space", "short", "delay",
                                       "hang", "corrupt", "lie",      "torn"};
  const auto number = static_cast<std::uint32_t>(fault);
  FaultyFlash flash;
  DaemonProcess daemon(HMMD_BINARY, ConfigOf(engine));
  const auto client = ConnectTo(daemon.dir());
  INFO(NameOf(engine) << ": " << kNames[number] << " in " << per_mille << " of 1000 calls; "
                      << daemon.Log());
  flash.control().seed = number * 1000 + per_mille;
  flash.Set(fault, per_mille);
  const Outcome outcome = Churn(*client, number * 10'000 + per_mille);
  if (fault != Fault::kNone) CHECK(flash.control().struck > 0);
  CHECK((flash.control().ring_calls > 0) == (engine == Engine::kRing));
  std::printf("%-8s %-8s %4u/1000: %d right, %d lost, %d refused; flash %s\n", NameOf(engine),
              kNames[number], per_mille, outcome.right, outcome.lost, outcome.refused,
              FlashState(daemon.dir()).c_str());
  CheckOutcome(fault, per_mille, outcome);
  // What lies above the medium goes on, whatever became of it.
  flash.Set(fault, 1000);
  const Tensor above = Put(*client, 64 * kKiB, 77);
  const auto pin = client->Acquire(above, {.timeout = milliseconds(5000)});
  REQUIRE(pin.ok());
  CHECK(HasPattern(*pin, 77));
}

TEST_CASE("a medium that misbehaves in any way never gives a wrong byte") {
  for (const Engine engine : Engines()) {
    for (std::uint32_t number = 0; number < static_cast<std::uint32_t>(Fault::kCount); ++number) {
      const auto fault = static_cast<Fault>(number);
      if (fault == Fault::kHang) continue;  // below
      if (engine == Engine::kRing && fault == Fault::kTorn) continue;
      for (const std::uint32_t per_mille : {30u, 300u, 1000u}) {
        // The ring's operations are larger and fewer: at 30 of 1000 there may be none to strike.
        if (engine == Engine::kRing && per_mille < 300) continue;
        Misbehave(engine, fault, per_mille);
      }
    }
  }
}

TEST_CASE("a medium that hangs stalls nobody who does not need it") {
  const std::vector<Engine> engines = Engines();
  const Engine engine = engines[GENERATE(0u, 1u) % engines.size()];
  INFO(NameOf(engine));
  FaultyFlash flash;
  DaemonProcess daemon(HMMD_BINARY, ConfigOf(engine));
  const auto client = ConnectTo(daemon.dir());
  std::vector<Tensor> below;
  for (std::uint64_t i = 0; i < 8; ++i) {
    below.push_back(Put(*client, 128 * kKiB, i));
    REQUIRE(client->Swap(below.back(), {.tier = "flash0"}).ok());
  }
  const Tensor above = Put(*client, 64 * kKiB, 50);
  flash.Set(Fault::kHang, 1000);
  // Who needs it waits, to its deadline and no longer.
  const auto start = std::chrono::steady_clock::now();
  const absl::Status late = client->Acquire(below[0], {.timeout = milliseconds(300)}).status();
  INFO(late);
  CHECK(absl::IsDeadlineExceeded(late));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  CHECK(WaitUntil([&] { return flash.control().hanging > 0; }));
  // The others do not.
  for (int i = 0; i < 100; ++i) {
    const auto pin = client->Acquire(above, {.timeout = milliseconds(5000)});
    REQUIRE(pin.ok());
    CHECK(HasPattern(*pin, 50));
    auto held = client->Allocate({.bytes = 64 * kKiB}, {.timeout = milliseconds(5000)});
    REQUIRE(held.ok());
    CHECK(client->Free(held->tensor).ok());
  }
  // When it goes on, so do they.
  flash.Set(Fault::kNone, 0);
  for (std::uint64_t i = 0; i < 8; ++i) {
    const auto pin = client->Acquire(below[i], {.timeout = milliseconds(20'000)});
    INFO(pin.status());
    REQUIRE(pin.ok());
    CHECK(HasPattern(*pin, i));
  }
  CHECK(daemon.Terminate() == 0);
}

TEST_CASE("a medium that hangs does not keep SIGTERM from ending the daemon") {
  for (const Engine engine : Engines()) {
    INFO(NameOf(engine));
    FaultyFlash flash;
    std::string config = ConfigOf(engine);
    const std::string daemon_section = "[daemon]\n";
    config.insert(config.find(daemon_section) + daemon_section.size(), "stop_timeout = \"1s\"\n");
    DaemonProcess daemon(HMMD_BINARY, config);
    const auto client = ConnectTo(daemon.dir());
    const Tensor below = Put(*client, 128 * kKiB, 1);
    REQUIRE(client->Swap(below, {.tier = "flash0"}).ok());
    flash.Set(Fault::kHang, 1000);
    auto pending = std::async(std::launch::async, [&] {
      return client->Acquire(below, {.timeout = milliseconds(60'000)}).status();
    });
    CHECK(WaitUntil([&] { return flash.control().hanging > 0; }));
    // A daemon that stays is let go, so that the test fails instead of hanging as well.
    std::promise<void> ended;
    auto rescue = std::async(std::launch::async, [&, end = ended.get_future()] {
      if (end.wait_for(std::chrono::seconds(15)) == std::future_status::timeout) {
        flash.Set(Fault::kNone, 0);
      }
    });
    const auto start = std::chrono::steady_clock::now();
    CHECK(daemon.Terminate() == 0);
    const auto took = std::chrono::steady_clock::now() - start;
    ended.set_value();
    CHECK(took < std::chrono::seconds(3));  // stop_timeout and 2 s
    INFO(daemon.Log());
    CHECK(daemon.Log().find("flash0: 1 copy") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(daemon.dir() + "/hmm.sock"));
    // Who waited is told at once, not at its deadline.
    REQUIRE(pending.wait_for(std::chrono::seconds(5)) == std::future_status::ready);
    const absl::Status told = pending.get();
    INFO(told);
    CHECK_FALSE(told.ok());
    CHECK_FALSE(ReasonOfStatus(told).empty());
    std::printf("%-8s hang: SIGTERM ended it after %lld ms; who waited: %s\n", NameOf(engine),
                static_cast<long long>(std::chrono::duration_cast<milliseconds>(took).count()),
                told.ToString().c_str());
    // No lock is left behind.
    flash.Set(Fault::kNone, 0);
    daemon.Start();
    CHECK(daemon.Terminate() == 0);
  }
}

TEST_CASE("a flash that fails for good goes offline, and that is said") {
  const std::vector<Engine> engines = Engines();
  const Engine engine = engines[GENERATE(0u, 1u) % engines.size()];
  INFO(NameOf(engine));
  FaultyFlash flash;
  DaemonProcess daemon(HMMD_BINARY, ConfigOf(engine));
  const auto client = ConnectTo(daemon.dir());
  flash.Set(Fault::kFail, 1000);
  for (std::uint64_t i = 0; i < 8; ++i) {
    const Tensor tensor = Put(*client, 128 * kKiB, i);
    (void)client->Swap(tensor, {.tier = "flash0", .timeout = milliseconds(2000)});
    const auto pin = client->Acquire(tensor);  // the copy that was to leave is still there
    REQUIRE(pin.ok());
    CHECK(HasPattern(*pin, i));
  }
  CHECK(WaitUntil([&] { return FlashState(daemon.dir()).rfind("offline", 0) == 0; }));
  const auto tiers = client->Tiers();
  REQUIRE(tiers.ok());
  for (const Client::Tier& tier : *tiers) {
    CHECK(tier.state == (tier.name == "flash0" ? "offline" : "online"));
  }
  CHECK(daemon.Log().find("flash0") != std::string::npos);
  CHECK(daemon.Terminate() == 0);
}

}  // namespace
}  // namespace hmm::testing
