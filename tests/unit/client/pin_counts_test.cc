// SPDX-License-Identifier: Apache-2.0
#include "client/lib/pin_counts.h"

#include <atomic>
#include <thread>
#include <vector>

#include "support/catch.h"

namespace hmm::client_internal {
namespace {

TEST_CASE("the sum counts over threads that take and threads that drop") {
  for (const bool asymmetric : {true, false}) {
    PinCounts counts(asymmetric);
    counts.Add(2);
    std::thread([&] { counts.Add(-1); }).join();
    CHECK(counts.Sum() == 1);
    std::thread([&] { counts.Add(-1); }).join();
    counts.Settle();
    CHECK(counts.Sum() == 0);
  }
}

TEST_CASE("more threads than stripes, alive at once, lose no count") {
  constexpr int kThreads = 100;
  PinCounts counts;
  std::atomic<int> arrived{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      counts.Add(1);
      arrived.fetch_add(1);
      arrived.notify_all();
      for (int now = arrived.load(); now < kThreads; now = arrived.load()) arrived.wait(now);
      for (int i = 0; i < 1000; ++i) {
        counts.Add(1);
        counts.Add(-1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(counts.Sum() == kThreads);
}

TEST_CASE("a pin dropped as its thread ends is counted") {
  PinCounts counts;
  std::thread([&] {
    struct Late {
      PinCounts* counts;
      ~Late() { counts->Add(-1); }
    };
    // Made before the thread has a stripe, so destroyed after it was given back.
    static thread_local Late late{&counts};
    late.counts->Add(1);
  }).join();
  CHECK(counts.Sum() == 0);
}

// The promise: taken while open means seen by the closer.
TEST_CASE("a taker that found it open is counted before the closer finds zero") {
  for (const bool asymmetric : {true, false}) {
    int seen = 0;
    for (int round = 0; round < 2000; ++round) {
      PinCounts counts(asymmetric);
      std::atomic<bool> closed{false};
      std::atomic<bool> go{false};
      std::atomic<bool> holds{false};
      std::thread taker([&] {
        while (!go.load()) {
        }
        counts.Add(1);
        if (closed.load()) {
          counts.Add(-1);
        } else {
          holds.store(true);
        }
      });
      go.store(true);
      closed.store(true);
      counts.Settle();
      const bool zero = counts.Sum() == 0;
      taker.join();
      if (zero && holds.load()) FAIL("a holder was missed");
      seen += holds.load();
    }
    INFO(seen << " of 2000 were held");
    SUCCEED();
  }
}

}  // namespace
}  // namespace hmm::client_internal
