// SPDX-License-Identifier: Apache-2.0
//
// What others notice when many clients die at once: for a test, which bounds it, and for a bench,
// which holds it to its bar.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "e2e/client_fixture.h"
#include "torture/victim_host.h"

namespace hmm::testing {

// The quantile over the time that the calls took together: what a call that begins at any instant
// has to reckon with. Over the calls, one that stalls is one of thousands, however long it stalls.
inline double QuantileOverTime(std::vector<double> took, double q) {
  std::sort(took.begin(), took.end());
  double above = (1 - q) * std::accumulate(took.begin(), took.end(), 0.0);
  while (!took.empty() && above > took.back()) {
    above -= took.back();
    took.pop_back();
  }
  return took.empty() ? 0 : took.back();
}

// Milliseconds of each Acquire of a resident tensor, one after the other, until `over`; and the
// first error. Any thread.
struct Acquires {
  std::vector<double> took;
  absl::Status status;
};
template <typename Over>
Acquires AcquireUntil(Client& client, const Tensor& tensor, Over over) {
  using Clock = std::chrono::steady_clock;
  Acquires acquires;
  while (acquires.status.ok() && !over()) {
    const auto start = Clock::now();
    acquires.status = client.Acquire(tensor).status();
    acquires.took.push_back(
        std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return acquires;
}

// As many as `count` clients that hold pins die at once; Acquires from then until a moment after
// the last is buried, for the daemon learns of it then.
inline Acquires AcquireWhileTheyDie(VictimHost& victims, std::size_t count, Client& client,
                                    const Tensor& tensor) {
  using Clock = std::chrono::steady_clock;
  const std::string n = std::to_string(count);
  REQUIRE(victims.Ask("hold " + n) == "holding " + n);
  std::atomic<bool> buried{false};
  std::string killed;
  std::thread killer([&] {
    killed = victims.Ask("kill");
    buried = true;
  });
  Clock::time_point end = Clock::time_point::max();
  Acquires acquires = AcquireUntil(client, tensor, [&] {
    if (end == Clock::time_point::max() && buried)
      end = Clock::now() + std::chrono::milliseconds(200);
    return Clock::now() >= end;
  });
  killer.join();
  CHECK(killed == "killed " + n + " wrong 0 ended 0");
  INFO(acquires.status);
  REQUIRE(acquires.status.ok());
  return acquires;
}

}  // namespace hmm::testing
