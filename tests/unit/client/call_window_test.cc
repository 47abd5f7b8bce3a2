// SPDX-License-Identifier: Apache-2.0
#include "client/lib/call_window.h"

#include <chrono>
#include <thread>
#include <vector>

#include "base/status.h"
#include "support/catch.h"

namespace hmm::client_internal {
namespace {

TimePoint Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(30); }

CallWindow::Ids Begin(CallWindow& window) {
  const absl::StatusOr<CallWindow::Ids> ids = window.Begin();
  REQUIRE(ids.ok());
  return *ids;
}

TEST_CASE("ids rise from 1 and the oldest is the smallest outstanding") {
  CallWindow window(8);
  CHECK(Begin(window).call_id == 1);
  CHECK(Begin(window).oldest_live_call_id == 1);
  window.End(1, true);
  const CallWindow::Ids third = Begin(window);
  CHECK(third.call_id == 3);
  CHECK(third.oldest_live_call_id == 2);
  window.End(2, true);
  window.End(3, true);
  const CallWindow::Ids fourth = Begin(window);
  CHECK(fourth.call_id == 4);
  CHECK(fourth.oldest_live_call_id == 4);
}

TEST_CASE("a call that failed stays outstanding until its release was answered") {
  CallWindow window(8);
  Begin(window);
  window.End(1, false);
  CHECK(window.owes());
  CHECK(Begin(window).oldest_live_call_id == 1);
  const auto owed = window.WaitForOwed();
  REQUIRE(owed.has_value());
  CHECK(owed->call_id == 1);
  CHECK(owed->oldest_live_call_id == 1);
  window.Released(1);
  CHECK_FALSE(window.owes());
  CHECK(Begin(window).oldest_live_call_id == 2);
}

TEST_CASE("owed releases count against the limit, so that each has room") {
  CallWindow window(2);
  Begin(window);
  Begin(window);
  window.End(1, false);
  const absl::Status full = window.Begin().status();
  CHECK(full.code() == absl::StatusCode::kUnavailable);
  CHECK(ReasonOf(full) == Reason::kQueueFull);
  CHECK(RetryAfter(full).has_value());
  window.Released(1);
  CHECK(Begin(window).call_id == 3);
}

TEST_CASE("closing wakes the releaser and ends its pauses") {
  CallWindow window(2);
  std::thread releaser([&] {
    const bool got = window.WaitForOwed().has_value();
    const bool paused = window.Pause(std::chrono::hours(1));
    CHECK_FALSE(got);
    CHECK_FALSE(paused);
  });
  window.Close();
  releaser.join();
}

TEST_CASE("waiting for the last owed release ends with it, and at the deadline") {
  CallWindow window(2);
  Begin(window);
  window.End(1, false);
  CHECK_FALSE(window.WaitUntilNoneOwed(std::chrono::steady_clock::now()));
  std::thread releaser([&] { window.Released(1); });
  CHECK(window.WaitUntilNoneOwed(Soon()));
  releaser.join();
}

TEST_CASE("many threads: every id is unique and none stays") {
  constexpr int kThreads = 4;
  constexpr int kCalls = 2000;
  CallWindow window(kThreads * 2);
  std::thread releaser([&] {
    while (const auto owed = window.WaitForOwed()) window.Released(owed->call_id);
  });
  std::vector<std::thread> callers;
  std::atomic<int> bad{0};
  for (int t = 0; t < kThreads; ++t) {
    callers.emplace_back([&, t] {
      std::uint64_t last = 0;
      for (int i = 0; i < kCalls; ++i) {
        const auto ids = window.Begin();
        if (!ids.ok()) continue;  // the releaser is behind: the bound at work
        if (ids->call_id <= last || ids->oldest_live_call_id > ids->call_id) ++bad;
        last = ids->call_id;
        window.End(ids->call_id, (i + t) % 3 != 0);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(window.WaitUntilNoneOwed(Soon()));
  window.Close();
  releaser.join();
  CHECK(bad == 0);
  const CallWindow::Ids next = Begin(window);
  CHECK(next.oldest_live_call_id == next.call_id);
}

}  // namespace
}  // namespace hmm::client_internal
