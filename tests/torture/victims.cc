// SPDX-License-Identifier: Apache-2.0
//
// torture_victims DIR: makes clients of the daemon in DIR and kills them. It connects to nothing
// itself, so that it may fork. Commands come on standard input, one a line; each is answered by one
// line on standard output.
//
//   round SEED KILLS ALIVE   forks KILLS victims, ALIVE at a time, each killed at an instant drawn
//                            from SEED; the answer counts what they were at when they died
//                            -> "done KILLS wrong N ended N acquire N write N ... other N"
//   hold N                   N victims that pin and hold   -> "holding N"
//   readers N                N readers that survive the daemon's restarts -> "reading N"
//   soak N                   N engines whose blocks fit nowhere together -> "soaking N"
//   progress                 blocks read by each of them   -> "progress MIN"
//   total                    blocks read by all of them    -> "total SUM"
//   step SEED                one victim, killed at a drawn instruction of its pin path; inside: in
//                            the client library        -> "stepped N of ROUND inside|outside"
//   kill                     kills all that hold or read   -> "killed N wrong N ended N"
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <new>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "torture/victim.h"

namespace hmm::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class Killer {
 public:
  explicit Killer(std::string dir) : dir_(std::move(dir)) {}

  // `place`: where it tells of itself, until it is dead.
  template <typename Life>
  pid_t Spawn(std::uint64_t seed, std::size_t place, Life life) {
    shared->acts[place] = Act::kOther;
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);
    Victim victim(dir_, seed, place);
    life(victim);
    ::_exit(kBadAnswer);  // no life ends by itself
  }

  std::string Round(std::uint64_t seed, std::size_t kills, std::size_t alive_max) {
    std::mt19937_64 rng(seed);
    std::vector<Alive> alive;
    std::array<std::size_t, kActNames.size()> died_at{};
    wrong_ = ended_ = 0;
    for (std::size_t begun = 0; begun < kills || !alive.empty();) {
      for (std::size_t place = 0; begun < kills && place < alive_max; ++place) {
        if (std::any_of(alive.begin(), alive.end(),
                        [place](const Alive& one) { return one.place == place; })) {
          continue;
        }
        const Act life = kLives[begun++ % kLives.size()];
        // Half of them die while they attach or in their first calls, the others at work; three in
        // four at what they are there for, the others wherever the instant finds them.
        const auto length = microseconds(rng() % 2 == 0 ? rng() % 6'000 : rng() % 60'000);
        const Clock::time_point end = Clock::now() + length;
        const Clock::time_point patience = rng() % 4 == 0 ? end : end + milliseconds(500);
        const pid_t pid = Spawn(rng(), place, [life](Victim& victim) { Live(victim, life); });
        alive.push_back({pid, place, life, end, patience});
      }
      const auto next = std::min_element(
          alive.begin(), alive.end(), [](const Alive& a, const Alive& b) { return a.end < b.end; });
      std::this_thread::sleep_until(next->end);
      if (const auto act = Kill(*next)) {
        ++died_at[static_cast<std::size_t>(*act)];
        alive.erase(next);
      } else {
        next->end = Clock::now() + microseconds(rng() % 1'000);
      }
    }
    while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {  // what the dead left behind
    }
    std::string answer = "done " + std::to_string(kills) + Verdict();
    for (std::size_t i = 0; i < died_at.size(); ++i) {
      answer += std::string(" ") + kActNames[i] + " " + std::to_string(died_at[i]);
    }
    return answer;
  }

  // `life`: what each does, given its place.
  template <typename Life>
  std::string Crowd(std::size_t count, const std::string& word, Life life) {
    const std::size_t first = crowd_.size();
    count = std::min(count, kPlaces - first);
    for (std::size_t place = first; place < first + count; ++place) {
      shared->progress[place] = 0;
      crowd_.push_back(
          Spawn(place + 1, place, [place, life](Victim& victim) { (victim.*life)(place); }));
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

  // Steps from where the victim first enters the client library, through one whole round of its pin
  // and unpin, then on to a drawn instruction of the next: each of them is as likely. Instructions
  // outside (the victim's loop, a sanitizer's runtime) are few, and reported as such.
  std::string Step(std::uint64_t seed) {
    std::mt19937_64 rng(seed);
    const pid_t pid = Spawn(seed, 0, [](Victim& victim) { victim.Step(); });
    int status = 0;
    if (::waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) return "failed stop";
    constexpr std::uint64_t kMost = 100'000;  // no round is nearly as long
    std::uint64_t at = 0;
    bool alive = StepOne(pid, &at);
    for (std::uint64_t i = 0; alive && !library_.Has(at) && i < kMost; ++i) {
      alive = StepOne(pid, &at);
    }
    const std::uint64_t entry = at;
    std::uint64_t round = 0;
    do {
      alive = alive && StepOne(pid, &at);
    } while (alive && ++round < kMost && at != entry);
    const bool whole = alive && library_.Has(entry) && at == entry;
    const std::uint64_t instructions = rng() % std::max<std::uint64_t>(round, 1);
    for (std::uint64_t done = 0; alive && done < instructions; ++done) alive = StepOne(pid, &at);
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, &status, 0) == pid && !WIFSIGNALED(status) && !WIFEXITED(status)) {
    }
    if (!whole || !alive) return "failed step";
    return "stepped " + std::to_string(instructions) + " of " + std::to_string(round) +
           (library_.Has(at) ? " inside" : " outside");
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Alive {
    pid_t pid;
    std::size_t place;
    Act life;
    Clock::time_point end;
    Clock::time_point patience;  // until then it dies only at what its life is there for
  };
  // Where the client library's code lies: of a victim too, which is a fork of this process.
  struct Code {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    bool Has(std::uint64_t at) const { return begin <= at && at < end; }
  };
  static Code LibraryCode() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      Code code;
      if (line.find("r-xp") == std::string::npos ||
          line.find("libhmm_client.so") == std::string::npos ||
          std::sscanf(line.c_str(), "%lx-%lx", &code.begin, &code.end) != 2) {
        continue;
      }
      return code;
    }
    return {};
  }
  // One instruction of a stopped victim. `at`: the next.
  static bool StepOne(pid_t pid, std::uint64_t* at) {
    int status = 0;
    user_regs_struct registers{};
    if (::ptrace(PTRACE_SINGLESTEP, pid, nullptr, nullptr) != 0 ||
        ::waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status) ||
        ::ptrace(PTRACE_GETREGS, pid, nullptr, &registers) != 0) {
      return false;
    }
    *at = registers.rip;
    return true;
  }

  static constexpr std::array kLives = {Act::kAcquire, Act::kWrite,  Act::kPinned,
                                        Act::kMove,    Act::kAttach, Act::kFork};

  static void Live(Victim& victim, Act life) {
    switch (life) {
      case Act::kAcquire:
        return victim.Acquire();
      case Act::kWrite:
        return victim.Write();
      case Act::kPinned:
        return victim.Pin();
      case Act::kMove:
        return victim.Move();
      case Act::kAttach:
        return victim.Attach();
      default:
        return victim.Fork();
    }
  }
  // Kills it, unless it is at something else than it should die at: then it lives on. Stopped
  // first, so that what it was at when it died is known.
  std::optional<Act> Kill(const Alive& one) {
    int status = 0;
    ::kill(one.pid, SIGSTOP);
    while (::waitpid(one.pid, &status, WUNTRACED) < 0 && errno == EINTR) {
    }
    const Act act = shared->acts[one.place];
    if (!WIFSTOPPED(status)) {  // it had ended by itself
      Count(status);
      return act;
    }
    if (act != one.life && Clock::now() < one.patience) {
      ::kill(one.pid, SIGCONT);
      return std::nullopt;
    }
    ::kill(one.pid, SIGKILL);
    Bury(one.pid);
    return act;
  }
  void Bury(pid_t pid) {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    Count(status);
  }
  void Count(int status) {
    if (!WIFEXITED(status)) return;
    ++(WEXITSTATUS(status) == kWrongBytes ? wrong_ : ended_);
  }
  std::string Verdict() const {
    return " wrong " + std::to_string(wrong_) + " ended " + std::to_string(ended_);
  }

  const std::string dir_;
  const Code library_ = LibraryCode();
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
