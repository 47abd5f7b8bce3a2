// SPDX-License-Identifier: Apache-2.0
//
// The pin protocol (share/pin.h) across processes: this process is the daemon, its children are
// clients. The daemon moves tensors, frees them and reuses their slots, poisons what it leaves,
// kills clients and reaps them; the clients pin, read and unpin as fast as they can. Whoever holds
// a pin must find the bytes of its own tensor.
//
//   residency table  kSlots slots          arena  kPlaces places of kWords words; those without a
//   session pages    kSlots words each            tensor hold poison
//
// Built with HMM_BREAK_CLIENT_ORDER, HMM_BREAK_DAEMON_ORDER or HMM_BREAK_GENERATION it must find
// wrong bytes. Needs two processors, since one processor sees its own stores in order.
//
// Usage: pin_stress [ROUNDS]; TEST_SEED (default 1, 0 random). Stops at the first wrong byte.
// Exit: 0 clean, 1 wrong bytes, 2 anything else that is wrong, 77 fewer than two processors.
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include "base/check.h"
#include "share/layout.h"
#include "share/memory_file.h"
#include "share/pin.h"

namespace hmm::share {
namespace {

constexpr std::uint32_t kSlots = 8;  // few, so that both sides meet all the time
constexpr std::size_t kSessions = 2;
constexpr std::uint64_t kPlaces = kSlots + 4;
constexpr std::uint64_t kWords = 32;  // a tensor: 256 bytes
constexpr std::uint64_t kTensorBytes = kWords * sizeof(std::uint64_t);
constexpr std::size_t kBatch = 4;  // victims marked before the first scan
constexpr std::uint64_t kRoundsPerKill = 20'000;
constexpr auto kLimit = std::chrono::seconds(60);

using ArenaWord = std::atomic<std::uint64_t>;

// What the children report. `wrong` is set once, by the first that finds a wrong word.
struct Report {
  std::atomic<std::uint32_t> stop;
  std::atomic<std::uint64_t> pins;
  std::atomic<std::uint64_t> refused;  // TryPin said no
  std::atomic<std::uint64_t> wrong_words;
  std::atomic<std::uint32_t> wrong_slot;
  std::atomic<std::uint32_t> wrong_handle;  // generation the client pinned
  std::atomic<std::uint64_t> wrong_value;
};

// Word i of a tensor: tells apart generations, slots and positions.
std::uint64_t Pattern(std::uint32_t slot, std::uint32_t generation, std::uint64_t i) {
  return (std::uint64_t{generation} << 32) + (slot << 16) + i + 1;
}

std::uint64_t Poison(std::uint32_t generation) {
  return std::uint64_t{0x0101'0101'0101'0101} * static_cast<std::uint8_t>(0xde ^ generation);
}

template <typename T>
T Need(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "pin_stress: %s\n", value.status().ToString().c_str());
    std::_Exit(2);
  }
  return *std::move(value);
}

// A memory file and this process's mapping of it, which its children do not inherit.
struct SharedFile {
  explicit SharedFile(const char* name, Bytes bytes)
      : fd(Need(CreateMemoryFile(name, bytes))),
        mapping(Need(Mapping::Map(fd.get(), bytes, Mapping::Access::kReadWrite, true))) {}
  Mapping MapAgain(Mapping::Access access) const {
    return Need(Mapping::Map(fd.get(), mapping.size(), access, true));
  }
  UniqueFd fd;
  Mapping mapping;
};

constexpr Bytes kArenaBytes = RoundUp(kPlaces * kTensorBytes, 4096);
constexpr Bytes kReportBytes = 4096;
static_assert(sizeof(Report) <= kReportBytes);

struct World {
  SharedFile table{"table", TableBytes(kSlots)};
  SharedFile arena{"arena", kArenaBytes};
  SharedFile report{"report", kReportBytes};
};

Report& ReportOf(const Mapping& mapping) { return *reinterpret_cast<Report*>(mapping.data()); }

// The processors this process may use; clients and daemon are kept apart, so that they really run
// at the same time.
std::vector<int> Processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  HMM_CHECK(sched_getaffinity(0, sizeof(set), &set) == 0);
  std::vector<int> found;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<unsigned>(cpu), &set)) found.push_back(cpu);
  }
  return found;
}

void RunOn(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  HMM_CHECK(sched_setaffinity(0, sizeof(set), &set) == 0);
}

// One client process: a single thread, since the broken client order also loses counts between
// threads, which is not what is tested.
class Client {
 public:
  Client(const World& world, const SharedFile& page, std::uint64_t seed)
      : table_(world.table.MapAgain(Mapping::Access::kReadOnly)),
        arena_(world.arena.MapAgain(Mapping::Access::kReadOnly)),
        page_(page.MapAgain(Mapping::Access::kReadWrite)),
        report_mapping_(world.report.MapAgain(Mapping::Access::kReadWrite)),
        report_(ReportOf(report_mapping_)),
        random_(seed) {}

  void Run() {
    const TableSlot* slots = TableSlots(static_cast<const void*>(table_.data()));
    std::atomic<std::uint32_t>* words = PinWords(page_.data());
    std::uint32_t tries = 0;
    while (report_.stop.load(std::memory_order_relaxed) == 0) {
      const auto slot = static_cast<std::uint32_t>(random_() % kSlots);
      if (TryPin(words[slot], slots[slot], handles_[slot])) {
        ++pins_;
        ReadPinned(slot, slots[slot].offset.load(std::memory_order_relaxed));
        Unpin(words[slot]);
      } else {
        ++refused_;
        // In place of the RPC: the handle of the tensor that has the slot now.
        const StateWord now = StateWord::Unpack(slots[slot].state.load());
        if (now.state == TensorState::kResident) handles_[slot] = now.generation;
      }
      if (++tries % 1024 == 0) Flush();
    }
    Flush();
  }

 private:
  // Twice: a tensor that moves under the pin changes between the first word and the last.
  void ReadPinned(std::uint32_t slot, std::uint64_t offset) {
    const auto* words = reinterpret_cast<const ArenaWord*>(arena_.data() + offset);
    for (std::uint64_t i = 0; i < 2 * kWords; ++i) {
      const std::uint64_t value = words[i % kWords].load(std::memory_order_relaxed);
      if (value == Pattern(slot, handles_[slot], i % kWords)) continue;
      if (report_.wrong_words.fetch_add(1) == 0) {
        report_.wrong_slot = slot;
        report_.wrong_handle = handles_[slot];
        report_.wrong_value = value;
      }
      report_.stop = 1;
    }
  }

  void Flush() {
    report_.pins.fetch_add(std::exchange(pins_, 0), std::memory_order_relaxed);
    report_.refused.fetch_add(std::exchange(refused_, 0), std::memory_order_relaxed);
  }

  Mapping table_;
  Mapping arena_;
  Mapping page_;
  Mapping report_mapping_;
  Report& report_;
  std::minstd_rand random_;
  std::array<std::uint32_t, kSlots> handles_{};
  std::uint64_t pins_ = 0;
  std::uint64_t refused_ = 0;
};

class Daemon {
 public:
  Daemon(World& world, std::vector<int> processors, std::uint64_t seed)
      : world_(world),
        slots_(TableSlots(world.table.mapping.data())),
        report_(ReportOf(world.report.mapping)),
        processors_(std::move(processors)),
        random_(seed) {
    for (std::uint64_t place = kSlots; place < kPlaces; ++place) free_places_.push_back(place);
    for (std::uint64_t place = 0; place < kPlaces; ++place) Fill(place, 0);
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      tensors_[slot].place = slot;
      Create(slot);
    }
    RunOn(processors_.front());
    for (Session& session : sessions_) Start(session);
  }

  // False when something other than wrong bytes was wrong.
  bool Run(std::uint64_t rounds) {
    const auto end = std::chrono::steady_clock::now() + kLimit;
    for (; round_ < rounds && report_.stop == 0; ++round_) {
      Round();
      if (round_ % kRoundsPerKill == kRoundsPerKill - 1) Replace(sessions_[random_() % kSessions]);
      if (round_ % 1024 == 0 && std::chrono::steady_clock::now() > end) break;
    }
    report_.stop = 1;
    bool good = true;
    for (Session& session : sessions_) {
      good = Wait(session, /*killed=*/false) && good;
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        if (!IsPinned(WordOf(session, slot))) continue;
        std::printf("a client that ended left a pin on slot %u\n", slot);
        good = false;
      }
    }
    return good;
  }

  void Print() const {
    std::printf(
        "%llu rounds, %llu pins, %llu refused, %llu moves, %llu taken back, %llu slots reused, "
        "%llu clients killed, %llu wrong words\n",
        Count(round_), Count(report_.pins), Count(report_.refused), Count(moves_),
        Count(taken_back_), Count(reused_), Count(killed_),
        Count(report_.wrong_words.load() + lost_words_));
    if (lost_words_ > 0) std::printf("the daemon itself found lost bytes\n");
    if (report_.wrong_words == 0) return;
    std::printf("WRONG BYTES FOUND: slot %u, pinned as generation %u, read %#llx\n",
                report_.wrong_slot.load(), report_.wrong_handle.load(), Count(report_.wrong_value));
  }

  bool wrong() const { return report_.wrong_words > 0 || lost_words_ > 0; }
  // A run in which one side never did its part says nothing.
  bool busy() const { return report_.pins > 0 && moves_ > 0 && reused_ > 0; }

 private:
  struct Tensor {
    std::uint32_t generation = 0;
    std::uint64_t place = 0;
    bool doomed = false;
  };
  struct Session {
    SharedFile page{"page", PageBytes(kSlots)};
    pid_t pid = -1;
  };

  static unsigned long long Count(std::uint64_t n) { return n; }

  static std::atomic<std::uint32_t>& WordOf(const Session& session, std::uint32_t slot) {
    return PinWords(session.page.mapping.data())[slot];
  }

  ArenaWord* PlaceWords(std::uint64_t place) const {
    return reinterpret_cast<ArenaWord*>(world_.arena.mapping.data() + place * kTensorBytes);
  }

  void Fill(std::uint64_t place, std::uint32_t generation) {
    for (std::uint64_t i = 0; i < kWords; ++i) {
      PlaceWords(place)[i].store(Poison(generation), std::memory_order_relaxed);
    }
  }

  void Publish(std::uint32_t slot, TensorState state) {
    PublishState(slots_[slot], {.state = state, .generation = tensors_[slot].generation});
  }

  bool Pinned(std::uint32_t slot) const {
    for (const Session& session : sessions_) {
      if (IsPinned(WordOf(session, slot))) return true;
    }
    return false;
  }

  // The slot's next tensor, in the place the slot has.
  void Create(std::uint32_t slot) {
    Tensor& tensor = tensors_[slot];
    ++tensor.generation;
    tensor.doomed = false;
    for (std::uint64_t i = 0; i < kWords; ++i) {
      PlaceWords(tensor.place)[i].store(Pattern(slot, tensor.generation, i),
                                        std::memory_order_relaxed);
    }
    slots_[slot].offset.store(tensor.place * kTensorBytes, std::memory_order_relaxed);
    slots_[slot].bytes.store(kTensorBytes, std::memory_order_relaxed);
    Publish(slot, TensorState::kResident);
  }

  // A place to move to; `old` becomes free in exchange.
  std::uint64_t ExchangePlace(std::uint64_t old) {
    return std::exchange(free_places_[random_() % free_places_.size()], old);
  }

  void Move(std::uint32_t slot) {
    Tensor& tensor = tensors_[slot];
    const std::uint64_t from = tensor.place;
    tensor.place = ExchangePlace(from);
    for (std::uint64_t i = 0; i < kWords; ++i) {
      const std::uint64_t value = PlaceWords(from)[i].load(std::memory_order_relaxed);
      if (value != Pattern(slot, tensor.generation, i)) ++lost_words_;
      PlaceWords(tensor.place)[i].store(value, std::memory_order_relaxed);
    }
    Fill(from, tensor.generation);
    slots_[slot].offset.store(tensor.place * kTensorBytes, std::memory_order_relaxed);
    Publish(slot, TensorState::kResident);
    ++moves_;
  }

  // Marks a batch of victims, then scans. The last marked is scanned first: its mark is the one
  // most likely not to be seen yet where the order is broken.
  void Round() {
    const auto first = static_cast<std::uint32_t>(random_() % kSlots);
    const bool freeing = random_() % 8 == 0;
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      const std::uint32_t slot = (first + i) % kSlots;
      if (tensors_[slot].doomed) continue;  // still held; looked at again below
      tensors_[slot].doomed = freeing;
      Publish(slot, freeing ? TensorState::kDoomed : TensorState::kMoving);
    }
    for (std::uint32_t i = kBatch; i-- > 0;) {
      const std::uint32_t slot = (first + i) % kSlots;
      const bool pinned = Pinned(slot);
      if (tensors_[slot].doomed) {
        if (pinned) continue;
        Fill(tensors_[slot].place, tensors_[slot].generation);
        tensors_[slot].place = ExchangePlace(tensors_[slot].place);
        Create(slot);
        ++reused_;
      } else if (pinned) {
        Publish(slot, TensorState::kResident);
        ++taken_back_;
      } else {
        Move(slot);
      }
    }
  }

  void Start(Session& session) {
    const std::uint64_t seed = random_();
    std::fflush(nullptr);
    session.pid = fork();
    HMM_CHECK(session.pid >= 0);
    if (session.pid > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::size_t others = processors_.size() - 1;
    RunOn(processors_[1 + static_cast<std::size_t>(&session - sessions_.data()) % others]);
    Client(world_, session.page, seed).Run();
    std::_Exit(0);
  }

  static bool Wait(const Session& session, bool killed) {
    int status = 0;
    HMM_CHECK(waitpid(session.pid, &status, 0) == session.pid);
    if (killed ? WIFSIGNALED(status) : (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return true;
    std::printf("a client ended with status %#x\n", static_cast<unsigned>(status));
    return false;
  }

  // The death of a process is certain before its page goes, with whatever it had pinned.
  void Replace(Session& session) {
    HMM_CHECK(kill(session.pid, SIGKILL) == 0);
    Wait(session, /*killed=*/true);
    session = Session();
    Start(session);
    ++killed_;
  }

  World& world_;
  TableSlot* slots_;
  Report& report_;
  std::vector<int> processors_;
  std::minstd_rand random_;
  std::array<Session, kSessions> sessions_;
  std::array<Tensor, kSlots> tensors_;
  std::vector<std::uint64_t> free_places_;
  std::uint64_t round_ = 0;
  std::uint64_t moves_ = 0;
  std::uint64_t taken_back_ = 0;
  std::uint64_t reused_ = 0;
  std::uint64_t killed_ = 0;
  std::uint64_t lost_words_ = 0;
};

int Main(std::uint64_t rounds) {
  const char* given = std::getenv("TEST_SEED");
  std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  if (seed == 0) seed = std::random_device()();
  std::printf("TEST_SEED=%llu, %llu rounds\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(rounds));
  std::vector<int> processors = Processors();
  if (processors.size() < 2) {
    std::printf("skipped: needs two processors\n");
    return 77;
  }
  World world;
  Daemon daemon(world, std::move(processors), seed);
  const bool good = daemon.Run(rounds);
  daemon.Print();
  if (daemon.wrong()) return 1;
  if (!daemon.busy()) std::printf("one side had nothing to do: proves nothing\n");
  return good && daemon.busy() ? 0 : 2;
}

}  // namespace
}  // namespace hmm::share

int main(int argc, char** argv) {
  const std::uint64_t rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 3'000'000;
  if (argc > 2 || rounds == 0) {
    std::fprintf(stderr, "usage: pin_stress [ROUNDS]\n");
    return 2;
  }
  return hmm::share::Main(rounds);
}
