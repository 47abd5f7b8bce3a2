// SPDX-License-Identifier: Apache-2.0
//
// Order, batches, bounds and errors of what is sent later, with a sender that the test plays.
#include "client/lib/outbox.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/wait_until.h"

namespace hmm::client_internal {
namespace {

using std::chrono::milliseconds;
using testing::WaitUntil;

constexpr Duration kNever = std::chrono::hours(1);

// Notes what it is given: "s:a,b" a run of seals, "f:c" of frees. Keys that begin with '!' fail.
struct Sender {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> runs;
  bool blocked = false;
  std::atomic<int> entered{0};
  std::atomic<bool> overlap{false};
  std::atomic<int> inside{0};

  Outbox::Send Function() {
    return [this](std::vector<Outbox::Item>& run, TimePoint) {
      if (inside.fetch_add(1) != 0) overlap.store(true);
      entered.fetch_add(1);
      std::vector<absl::Status> out;
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return !blocked; });
      std::string text = run.front().free ? "f:" : "s:";
      for (const Outbox::Item& item : run) {
        if (text.size() > 2) text += ",";
        text += item.key;
        out.push_back(item.key.starts_with("!") ? absl::NotFoundError(item.key) : absl::OkStatus());
      }
      runs.push_back(text);
      inside.fetch_sub(1);
      return out;
    };
  }
  void Block(bool on) {
    std::lock_guard lock(mutex);
    blocked = on;
    changed.notify_all();
  }
  std::vector<std::string> Runs() {
    std::lock_guard lock(mutex);
    return runs;
  }
};

Outbox::Upkeep NoUpkeep() {
  return [](TimePoint) { return TimePoint::max(); };
}
Outbox::Item Seal(std::string key) { return {Tensor(), Pin(), std::move(key), false}; }
Outbox::Item Free(std::string key) { return {Tensor(), Pin(), std::move(key), true}; }

TEST_CASE("order is kept, runs of one kind go together") {
  Sender sender;
  Outbox outbox({.delay = kNever}, std::chrono::seconds(1), sender.Function(), NoUpkeep());
  CHECK(outbox.idle());
  for (const char* key : {"a", "b"}) outbox.Push(Seal(key));
  outbox.Push(Free("c"));
  outbox.Push(Seal("d"));
  CHECK_FALSE(outbox.idle());
  outbox.SendAll();
  CHECK(outbox.idle());
  CHECK(sender.Runs() == std::vector<std::string>{"s:a,b", "f:c", "s:d"});
  CHECK(outbox.TakeFailures().empty());
  outbox.SendAll();
  CHECK(sender.Runs().size() == 3);
}

TEST_CASE("the thread sends a batch when it is together, and what is old") {
  Sender sender;
  SECTION("a batch") {
    Outbox outbox({.batch = 4, .delay = kNever}, std::chrono::seconds(1), sender.Function(),
                  NoUpkeep());
    for (const char* key : {"a", "b", "c"}) outbox.Push(Seal(key));
    outbox.Push(Seal("d"));
    CHECK(WaitUntil([&] { return outbox.idle(); }));
    CHECK(sender.Runs() == std::vector<std::string>{"s:a,b,c,d"});
  }
  SECTION("old") {
    Outbox outbox({.delay = milliseconds(2)}, std::chrono::seconds(1), sender.Function(),
                  NoUpkeep());
    outbox.Push(Seal("a"));
    CHECK(WaitUntil([&] { return outbox.idle(); }));
    outbox.Push(Seal("b"));
    CHECK(WaitUntil([&] { return outbox.idle(); }));
    CHECK(sender.Runs() == std::vector<std::string>{"s:a", "s:b"});
  }
}

TEST_CASE("failures are kept in order, so many of them") {
  Sender sender;
  Outbox outbox({.delay = kNever, .failures_max = 2}, std::chrono::seconds(1), sender.Function(),
                NoUpkeep());
  for (const char* key : {"!a", "b", "!c", "!d", "!e"}) outbox.Push(Seal(key));
  outbox.SendAll();
  const std::vector<Client::LateError> failures = outbox.TakeFailures();
  REQUIRE(failures.size() == 3);
  CHECK(failures[0].key == "!a");
  CHECK(failures[0].status == absl::NotFoundError("!a"));
  CHECK(failures[1].key == "!c");
  CHECK(failures[2].status.message().find("2 more") != std::string::npos);
  CHECK(outbox.TakeFailures().empty());
}

TEST_CASE("past its bound a push waits for a sender, and sends") {
  Sender sender;
  Outbox outbox({.batch = 100, .delay = kNever, .items_max = 3}, std::chrono::seconds(1),
                sender.Function(), NoUpkeep());
  for (int i = 0; i < 10; ++i) outbox.Push(Seal(std::to_string(i)));
  CHECK(sender.Runs() == std::vector<std::string>{"s:0,1,2", "s:3,4,5", "s:6,7,8"});
}

TEST_CASE("SendAll waits for what another thread is sending") {
  Sender sender;
  Outbox outbox({.batch = 1, .delay = kNever}, std::chrono::seconds(1), sender.Function(),
                NoUpkeep());
  sender.Block(true);
  outbox.Push(Seal("a"));
  REQUIRE(WaitUntil([&] { return sender.entered.load() == 1; }));
  std::atomic<bool> done{false};
  std::thread caller([&] {
    outbox.SendAll();
    done.store(true);
  });
  CHECK_FALSE(done.load());
  CHECK_FALSE(outbox.idle());
  sender.Block(false);
  caller.join();
  CHECK(sender.Runs() == std::vector<std::string>{"s:a"});
}

TEST_CASE("Stop sends what is queued") {
  Sender sender;
  Outbox outbox({.delay = kNever}, std::chrono::seconds(1), sender.Function(), NoUpkeep());
  outbox.Push(Seal("a"));
  outbox.Stop(std::chrono::seconds(1));
  CHECK(sender.Runs() == std::vector<std::string>{"s:a"});
}

TEST_CASE("upkeep comes when it is wanted, and again when it says so") {
  Sender sender;
  std::atomic<int> calls{0};
  Outbox outbox({}, std::chrono::seconds(1), sender.Function(), [&](TimePoint now) {
    return ++calls < 3 ? now + milliseconds(1) : TimePoint::max();
  });
  CHECK(calls.load() == 0);
  outbox.WakeBy(std::chrono::steady_clock::now());
  CHECK(WaitUntil([&] { return calls.load() == 3; }));
  outbox.Push(Seal("a"));  // the thread goes on sending
  CHECK(WaitUntil([&] { return outbox.idle(); }));
  CHECK(calls.load() == 3);
}

TEST_CASE("many threads push: all is sent once, each thread's in its order, one sender at a time") {
  constexpr int kThreads = 4;
  constexpr int kEach = 500;
  Sender sender;
  std::atomic<int> upkeeps{0};
  Outbox outbox({.batch = 16, .delay = std::chrono::microseconds(100), .items_max = 64},
                std::chrono::seconds(1), sender.Function(), [&](TimePoint now) {
                  ++upkeeps;
                  return now + milliseconds(1);
                });
  outbox.WakeBy(std::chrono::steady_clock::now());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const std::string key = std::to_string(t) + "." + std::to_string(i);
        outbox.Push(i % 7 == 0 ? Free(key) : Seal(key));
        if (i % 100 == 0) outbox.SendAll();
      }
      outbox.SendAll();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(outbox.idle());
  CHECK_FALSE(sender.overlap.load());
  std::vector<int> next(kThreads, 0);
  for (const std::string& run : sender.Runs()) {
    for (std::size_t at = 2; at < run.size();) {
      const std::size_t end = std::min(run.find(',', at), run.size());
      const std::string key = run.substr(at, end - at);
      const int t = key[0] - '0';
      REQUIRE(std::stoi(key.substr(2)) == next[static_cast<std::size_t>(t)]++);
      at = end + 1;
    }
  }
  CHECK(next == std::vector<int>(kThreads, kEach));
}

}  // namespace
}  // namespace hmm::client_internal
