// SPDX-License-Identifier: Apache-2.0
//
// case_peer VERB DIR READY [N]: one client of the cases' tests, in a process (and with a uid) of
// its own. It makes the file READY when it has done what the test waits for.
//
//   alloc   tries to get N bytes without waiting; the answer is its exit code (kGot...)
//   hoard   pins as much of HBM as it may, then waits to be killed
//   leak    allocates N bytes, writes them all, seals nothing and exits
//   await   asks for the tensor "wanted" in hbm0, for as long as it takes
//   holes   reads N bytes of its arena that nobody gave it, then waits to be killed
//   leave   forks, and is gone at once; the child keeps everything open until it is killed
#include "e2e/case_peer.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "hmm/client.h"

namespace {

using hmm::testing::kFailed;
using hmm::testing::kGot;
using hmm::testing::kRefusedForOthers;
using hmm::testing::kRefusedForSize;

void Ready(const std::string& file, const std::string& text = "ready") {
  std::ofstream(file + ".new") << text << "\n";
  std::rename((file + ".new").c_str(), file.c_str());
}

[[noreturn]] void WaitForDeath() {
  for (;;) ::pause();
}

int Alloc(hmm::Client& client, std::uint64_t bytes) {
  const auto held = client.Allocate({.bytes = bytes});
  if (held.ok()) {
    std::memset(held->pin.data(), 1, held->pin.size());
    return kGot;
  }
  const std::string reason = hmm::ReasonOfStatus(held.status());
  std::cerr << held.status() << "\n";
  if (reason == "FULL" || reason == "PINNED") return kRefusedForOthers;
  return reason == "QUOTA" || reason == "TOO_LARGE" ? kRefusedForSize : kFailed;
}

int Hoard(hmm::Client& client, const std::string& ready) {
  std::vector<hmm::Held> hoard;
  std::uint64_t bytes = 0;
  for (auto held = client.Allocate({.bytes = 128 * 1024}); held.ok();
       held = client.Allocate({.bytes = 128 * 1024})) {
    bytes += held->pin.size();
    hoard.push_back(*std::move(held));
  }
  Ready(ready, std::to_string(bytes));
  WaitForDeath();
}

int Leak(hmm::Client& client, std::uint64_t bytes) {
  std::vector<hmm::Held> leaked;
  for (std::uint64_t done = 0; done < bytes; done += leaked.back().pin.size()) {
    auto held = client.Allocate({.bytes = std::min<std::uint64_t>(bytes - done, 1 << 20)},
                                {.wait = true, .timeout = std::chrono::seconds(10)});
    if (!held.ok()) {
      std::cerr << held.status() << "\n";
      return kFailed;
    }
    std::memset(held->pin.data(), 7, held->pin.size());
    leaked.push_back(*std::move(held));
  }
  ::_exit(kGot);  // no destructor gives anything back
}

int Await(hmm::Client& client, const std::string& ready) {
  Ready(ready);
  const auto found = client.Lookup(std::vector<std::string>{"wanted"},
                                   {.tier = "hbm0", .timeout = std::chrono::seconds(120)});
  std::cerr << found.status() << "\n";
  return kFailed;  // it was to be killed while it waited
}

int Holes(hmm::Client& client, const std::string& ready, std::uint64_t bytes) {
  const auto held = client.Allocate({.bytes = 64 * 1024});
  if (!held.ok()) return kFailed;
  const auto* begin = reinterpret_cast<const volatile std::byte*>(held->pin.data());
  for (std::uint64_t at = 0; at < bytes; at += 4096) (void)begin[at];
  Ready(ready);
  WaitForDeath();
}

int Leave(const std::string& ready) {
  // The parent's death must not take the child along, only the test's end.
  if (::fork() == 0) {
    ::prctl(PR_SET_PDEATHSIG, 0);
    Ready(ready, std::to_string(::getpid()));
    for (int i = 0; i < 600; ++i) ::usleep(100'000);  // a minute at the longest
    ::_exit(0);
  }
  ::_exit(kGot);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string verb = argv[1];
  const std::string ready = argv[3];
  const std::uint64_t count = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 0;
  hmm::ConnectOptions options{.dir = argv[2]};
  // What lies in a magazine may be pinned beyond the session's share: the hoard is to end at it.
  if (verb == "hoard") options.magazine_bytes = 0;
  auto client = hmm::Client::Connect(options);
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return kFailed;
  }
  if (verb == "alloc") return Alloc(**client, count);
  if (verb == "hoard") return Hoard(**client, ready);
  if (verb == "leak") return Leak(**client, count);
  if (verb == "await") return Await(**client, ready);
  if (verb == "holes") return Holes(**client, ready, count);
  if (verb == "leave") return Leave(ready);
  return 2;
}
