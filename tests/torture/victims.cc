// SPDX-License-Identifier: Apache-2.0
//
// torture_victims DIR: makes clients of the daemon in DIR and kills them. It connects to nothing
// itself, so that it may fork. Commands come on standard input, one a line; each is answered by one
// line on standard output.
//
//   round SEED KILLS ALIVE   forks KILLS victims, ALIVE at a time, each killed at an instant drawn
//                            from SEED                     -> "done KILLS wrong N ended N"
//   hold N                   N victims that pin and hold   -> "holding N"
//   readers N                N readers that survive the daemon's restarts -> "reading N"
//   soak N                   N engines whose blocks fit nowhere together -> "soaking N"
//   progress                 blocks read by each of them   -> "progress MIN"
//   total                    blocks read by all of them    -> "total SUM"
//   step SEED                one victim, killed after a drawn number of instructions of its pin
//   path
//                                                          -> "stepped N"
//   kill                     kills all that hold or read   -> "killed N wrong N ended N"
#include "torture/victims.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <iostream>
#include <new>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "hmm/client.h"

namespace hmm::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// What the victims tell: in memory that all of them share.
constexpr std::size_t kPlaces = 128;
struct Shared {
  std::array<std::atomic<std::uint64_t>, kPlaces> progress{};
};
Shared* shared = nullptr;

// --- what a victim does, until it is killed
// -------------------------------------------------------

class Victim {
 public:
  Victim(const std::string& dir, std::uint64_t seed) : dir_(dir), rng_(seed) {}

  void Attach() {
    for (;;) client_.reset(), Connect();
  }
  // Waits for blocks, held for a moment.
  void Acquire() {
    Connect();
    for (;;) ReadShared(1 + rng_() % 6);
  }
  // Killed in the middle of a block, of a Seal, or of a wait for room.
  void Write() {
    Connect();
    for (std::uint64_t seed = rng_();; ++seed) {
      auto held = client_->Allocate({.bytes = 64 * 1024 + rng_() % (512 * 1024)},
                                    {.wait = rng_() % 2 == 0, .timeout = milliseconds(200)});
      if (!held.ok()) {
        Expect(held.status());
        continue;
      }
      for (std::size_t i = 0; i < held->pin.size(); ++i) held->pin.data()[i] = TortureByte(seed, i);
      Expect(client_->Seal(held->tensor, std::move(held->pin)));
      mine_.push_back({held->tensor, seed});
      if (mine_.size() > 3) VerifyMine();
    }
  }
  // Holds pins, on shared blocks and on its own, taken and given back without a call.
  void Pin() {
    Connect();
    auto own = client_->Allocate({.bytes = 128 * 1024});
    std::vector<std::string> keys;
    for (int i = 0; i < 4; ++i) keys.push_back(SharedKey(rng_() % kSharedBlocks));
    auto found = client_->Lookup(keys, {.timeout = milliseconds(500)});
    if (!found.ok()) Expect(found.status());
    std::vector<hmm::Pin> pins;
    for (;;) {
      if (found.ok()) {
        for (const Held& held : *found) {
          if (auto pin = held.tensor.TryPin()) pins.push_back(*std::move(pin));
        }
      }
      if (pins.size() > 64) pins.clear();
    }
  }
  // Sends blocks up and down, so that death finds them on their way.
  void Move() {
    Connect();
    const std::array<std::string, 3> tiers{"hbm0", "ddr0", "flash0"};
    for (;;) {
      const std::vector<Tensor> some = SharedTensors(4);
      const auto swapped =
          client_->SwapBatch(some, {.tier = tiers[rng_() % 3], .timeout = milliseconds(200)});
      if (!swapped.ok()) Expect(swapped.status());
      (void)client_->PrefetchBatch(some, {.timeout = milliseconds(5)});
    }
  }
  // Leaves a child that holds its sockets and mappings for a moment longer.
  void Fork() {
    Connect();
    const std::vector<Tensor> some = SharedTensors(2);
    std::vector<hmm::Pin> pins;
    for (const Tensor& tensor : some) {
      if (auto pin = tensor.TryPin()) pins.push_back(*std::move(pin));
    }
    if (::fork() == 0) {
      ::usleep(static_cast<useconds_t>(rng_() % 40'000));
      ::_exit(0);
    }
    for (;;) ReadShared(2);
  }
  void Hold(std::size_t place) {
    Connect();
    auto own = client_->Allocate({.bytes = 32 * 1024});
    std::vector<hmm::Pin> pins;
    for (const Tensor& tensor : SharedTensors(4)) {
      if (auto pin = tensor.TryPin()) pins.push_back(*std::move(pin));
    }
    shared->progress[place] = 1;
    for (;;) ::pause();
  }
  // An engine: what it does not find it makes anew. Survives the daemon.
  void Read(std::size_t place) {
    Connect();
    for (;;) {
      const std::uint64_t block = rng_() % kSharedBlocks;
      if (ReadShared(1, block) == 0) Make(block, SharedKey(block), /*droppable=*/false);
      shared->progress[place].fetch_add(1);
    }
  }
  // An engine with more blocks than all tiers can hold, droppable, some of them hot.
  void Soak(std::size_t place) {
    Connect();
    constexpr std::uint64_t kBlocks = 900;  // of 96 KiB: 84 MiB, in 56 MiB of tiers
    for (;;) {
      const std::uint64_t block = rng_() % 3 == 0 ? rng_() % kBlocks : rng_() % (kBlocks / 8);
      const std::string key = "soak:" + std::to_string(block);
      const auto found =
          client_->Lookup(std::vector<std::string>{key}, {.timeout = milliseconds(2000)});
      if (!found.ok()) {
        Expect(found.status());
      } else if (!found->empty()) {
        Verify(found->front().pin, block);
        shared->progress[place].fetch_add(1);
      } else {
        Make(block, key, /*droppable=*/true);
      }
    }
  }
  // Stops for its tracer, then pins and unpins for ever.
  void Step() {
    Connect();
    const std::vector<Tensor> some = SharedTensors(1);
    if (some.empty()) ::_exit(kBadAnswer);
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kBadAnswer);
    ::raise(SIGSTOP);
    for (;;) {
      const auto pin = some.front().TryPin();
      (void)pin;
    }
  }

 private:
  struct Own {
    Tensor tensor;
    std::uint64_t seed;
  };

  void Connect() {
    auto client = Client::Connect({.dir = dir_, .connect_timeout = milliseconds(20'000)});
    if (!client.ok()) Die(kBadAnswer, client.status().ToString());
    client_ = *std::move(client);
  }
  // Answers that a client of a full, restarting daemon may get.
  void Expect(const absl::Status& status) {
    if (status.ok() || absl::IsResourceExhausted(status) || absl::IsDeadlineExceeded(status) ||
        absl::IsUnavailable(status) || absl::IsAborted(status) ||
        ReasonOfStatus(status) == "PINNED") {
      return;
    }
    Die(kBadAnswer, status.ToString());
  }
  static void Die(int code, const std::string& why) {
    const std::string line = "victim: " + why + "\n";
    (void)!::write(STDERR_FILENO, line.data(), line.size());
    ::_exit(code);
  }
  static void Verify(const hmm::Pin& pin, std::uint64_t seed) {
    for (std::size_t i = 0; i < pin.size(); ++i) {
      if (pin.data()[i] != TortureByte(seed, i)) {
        Die(kWrongBytes, "wrong byte " + std::to_string(i) + " of block " + std::to_string(seed));
      }
    }
  }
  void VerifyMine() {
    for (const Own& own : mine_) {
      auto pin = client_->Acquire(own.tensor, {.timeout = milliseconds(500)});
      if (pin.ok()) {
        Verify(*pin, own.seed);
      } else {
        Expect(pin.status());
      }
      Expect(client_->Free(own.tensor));
    }
    mine_.clear();
  }
  // Blocks found, from `first` on.
  std::size_t ReadShared(std::size_t count) { return ReadShared(count, rng_() % kSharedBlocks); }
  std::size_t ReadShared(std::size_t count, std::uint64_t first) {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < count; ++i) keys.push_back(SharedKey((first + i) % kSharedBlocks));
    const auto found = client_->Lookup(keys, {.timeout = milliseconds(500)});
    if (!found.ok()) {
      Expect(found.status());
      return 0;
    }
    for (std::size_t i = 0; i < found->size(); ++i) {
      Verify((*found)[i].pin, (first + i) % kSharedBlocks);
    }
    return found->size();
  }
  std::vector<Tensor> SharedTensors(std::size_t count) {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < count; ++i) keys.push_back(SharedKey(rng_() % kSharedBlocks));
    std::vector<Tensor> out;
    const auto found = client_->Lookup(keys, {.timeout = milliseconds(500)});
    if (!found.ok()) {
      Expect(found.status());
      return out;
    }
    for (const Held& held : *found) out.push_back(held.tensor);
    return out;
  }
  void Make(std::uint64_t block, const std::string& key, bool droppable) {
    auto held = client_->Allocate({.bytes = kSharedBytes, .key = key, .droppable = droppable},
                                  {.wait = true, .timeout = milliseconds(500)});
    if (!held.ok()) {
      if (!absl::IsAlreadyExists(held.status())) Expect(held.status());
      return;
    }
    for (std::size_t i = 0; i < held->pin.size(); ++i) held->pin.data()[i] = TortureByte(block, i);
    Expect(client_->Seal(held->tensor, std::move(held->pin)));
  }

  const std::string dir_;
  std::mt19937_64 rng_;
  std::unique_ptr<Client> client_;
  std::vector<Own> mine_;
};

// --- the one who makes and kills them
// -------------------------------------------------------------

class Killer {
 public:
  explicit Killer(std::string dir) : dir_(std::move(dir)) {}

  template <typename Life>
  pid_t Spawn(std::uint64_t seed, Life life) {
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);
    Victim victim(dir_, seed);
    life(victim);
    ::_exit(kBadAnswer);  // no life ends by itself
  }

  std::string Round(std::uint64_t seed, std::size_t kills, std::size_t alive_max) {
    std::mt19937_64 rng(seed);
    struct Alive {
      pid_t pid;
      std::chrono::steady_clock::time_point end;
    };
    std::vector<Alive> alive;
    wrong_ = ended_ = 0;
    for (std::size_t begun = 0; begun < kills || !alive.empty();) {
      while (begun < kills && alive.size() < alive_max) {
        const auto kind = begun++ % 6;
        // Half of them die while they attach or in their first calls, the others at work.
        const auto life = microseconds(rng() % 2 == 0 ? rng() % 6'000 : rng() % 60'000);
        alive.push_back({Spawn(rng(), [kind](Victim& victim) { Live(victim, kind); }),
                         std::chrono::steady_clock::now() + life});
      }
      const auto next = std::min_element(
          alive.begin(), alive.end(), [](const Alive& a, const Alive& b) { return a.end < b.end; });
      std::this_thread::sleep_until(next->end);
      ::kill(next->pid, SIGKILL);
      Bury(next->pid);
      alive.erase(next);
    }
    while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {  // what the dead left behind
    }
    return "done " + std::to_string(kills) + Verdict();
  }

  // `life`: what each does, given its place.
  template <typename Life>
  std::string Crowd(std::size_t count, const std::string& word, Life life) {
    const std::size_t first = crowd_.size();
    count = std::min(count, kPlaces - first);
    for (std::size_t place = first; place < first + count; ++place) {
      shared->progress[place] = 0;
      crowd_.push_back(Spawn(place + 1, [place, life](Victim& victim) { (victim.*life)(place); }));
    }
    // Bounded: whoever asked sees what did not come.
    for (int i = 0; i < 30'000 && Least() == 0; ++i) ::usleep(1'000);
    return word + " " + std::to_string(Least() == 0 ? 0 : count);
  }

  std::uint64_t Least() const {
    std::uint64_t least = ~std::uint64_t{0};
    for (std::size_t i = 0; i < crowd_.size(); ++i) {
      least = std::min<std::uint64_t>(least, shared->progress[i]);
    }
    return crowd_.empty() ? 0 : least;
  }

  std::uint64_t Total() const {
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < crowd_.size(); ++i) total += shared->progress[i];
    return total;
  }

  std::string KillCrowd() {
    wrong_ = ended_ = 0;
    for (const pid_t pid : crowd_) ::kill(pid, SIGKILL);
    for (const pid_t pid : crowd_) Bury(pid);
    const std::string killed = std::to_string(crowd_.size());
    crowd_.clear();
    return "killed " + killed + Verdict();
  }

  std::string Step(std::uint64_t seed) {
    std::mt19937_64 rng(seed);
    const std::uint64_t instructions = rng() % 700;
    const pid_t pid = Spawn(seed, [](Victim& victim) { victim.Step(); });
    int status = 0;
    if (::waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) return "failed stop";
    std::uint64_t done = 0;
    for (; done < instructions; ++done) {
      if (::ptrace(PTRACE_SINGLESTEP, pid, nullptr, nullptr) != 0) break;
      if (::waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) break;
    }
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, &status, 0) == pid && !WIFSIGNALED(status) && !WIFEXITED(status)) {
    }
    return done == instructions ? "stepped " + std::to_string(done) : "failed step";
  }

 private:
  static void Live(Victim& victim, std::size_t kind) {
    switch (kind) {
      case 0:
        return victim.Acquire();
      case 1:
        return victim.Write();
      case 2:
        return victim.Pin();
      case 3:
        return victim.Move();
      case 4:
        return victim.Attach();
      default:
        return victim.Fork();
    }
  }
  void Bury(pid_t pid) {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status)) return;
    ++(WEXITSTATUS(status) == kWrongBytes ? wrong_ : ended_);
  }
  std::string Verdict() const {
    return " wrong " + std::to_string(wrong_) + " ended " + std::to_string(ended_);
  }

  const std::string dir_;
  std::vector<pid_t> crowd_;
  std::size_t wrong_ = 0;
  std::size_t ended_ = 0;
};

int Main(const std::string& dir) {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  shared = new (memory) Shared;
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // children of victims end here, and are waited for
  Killer killer(dir);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    std::uint64_t seed = 0;
    std::size_t kills = 0;
    std::size_t alive = 0;
    words >> verb >> seed >> kills >> alive;
    std::string answer = "unknown " + verb;
    if (verb == "round") answer = killer.Round(seed, kills, std::max<std::size_t>(alive, 1));
    if (verb == "hold") answer = killer.Crowd(seed, "holding", &Victim::Hold);
    if (verb == "readers") answer = killer.Crowd(seed, "reading", &Victim::Read);
    if (verb == "soak") answer = killer.Crowd(seed, "soaking", &Victim::Soak);
    if (verb == "total") answer = "total " + std::to_string(killer.Total());
    if (verb == "progress") answer = "progress " + std::to_string(killer.Least());
    if (verb == "step") answer = killer.Step(seed);
    if (verb == "kill") answer = killer.KillCrowd();
    std::cout << answer << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace hmm::testing

int main(int argc, char** argv) { return argc == 2 ? hmm::testing::Main(argv[1]) : 2; }
