// SPDX-License-Identifier: Apache-2.0
#include "copy/fragment_copier.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "support/catch.h"

namespace hmm::copy {
namespace {

// Tasks wait for the test thread, which waits for them.
class Queue final : public Executor {
 public:
  void Post(Task task) override {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  void PostAfter(Duration, Task task) override { Post(std::move(task)); }
  void RunOne() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !tasks_.empty(); });
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
};

std::vector<std::byte> Noise(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<std::byte> out(bytes);
  for (std::byte& byte : out) byte = static_cast<std::byte>(rng());
  return out;
}

FragmentResult CopyAll(FragmentCopier& copier, Queue& queue, FragmentJob job) {
  std::optional<FragmentResult> result;
  copier.Submit(std::move(job), [&](FragmentResult r) { result = r; });
  CHECK(!result.has_value());
  queue.RunOne();
  REQUIRE(result.has_value());
  return *result;
}

TEST_CASE("a list of fragments of every size is copied exactly, by one thread or several") {
  Queue queue;
  const unsigned threads = GENERATE(1U, 3U);
  const auto copier = CreateWorkerFragmentCopier(queue, threads);
  const Bytes unit = GENERATE(Bytes{1}, Bytes{4096}, Bytes{100'000});
  std::mt19937_64 rng(unit + threads);
  const std::vector<std::byte> source = Noise(9 * kMiB, 1);
  std::vector<std::byte> target(source.size());
  FragmentJob job;
  for (Bytes at = 0; at < source.size();) {
    const Bytes bytes = std::min<Bytes>(source.size() - at, unit + rng() % 8192);
    job.pieces.push_back({target.data() + at, source.data() + at, bytes});
    at += bytes;
  }
  std::shuffle(job.pieces.begin(), job.pieces.end(), rng);
  CHECK(CopyAll(*copier, queue, std::move(job)).complete);
  CHECK(std::memcmp(source.data(), target.data(), source.size()) == 0);
}

TEST_CASE("a list of nothing is complete") {
  Queue queue;
  const auto copier = CreateWorkerFragmentCopier(queue, 2);
  CHECK(CopyAll(*copier, queue, {}).complete);
}

TEST_CASE("a list that was stopped says so and copies nothing more") {
  Queue queue;
  const auto copier = CreateWorkerFragmentCopier(queue, 2);
  const std::vector<std::byte> source = Noise(64, 2);
  std::vector<std::byte> target(64);
  FragmentJob job;
  job.pieces.push_back({target.data(), source.data(), 64});
  job.stop = std::make_shared<std::atomic<bool>>(true);
  CHECK(!CopyAll(*copier, queue, std::move(job)).complete);
  CHECK(target == std::vector<std::byte>(64));
}

TEST_CASE("the destructor waits for copies under way") {
  Queue queue;
  const std::vector<std::byte> source = Noise(8 * kMiB, 3);
  std::vector<std::byte> target(source.size());
  bool done = false;
  {
    const auto copier = CreateWorkerFragmentCopier(queue, 2);
    FragmentJob job;
    job.pieces.push_back({target.data(), source.data(), source.size()});
    copier->Submit(std::move(job), [&](FragmentResult) { done = true; });
  }
  queue.RunOne();
  CHECK(done);
  CHECK(std::memcmp(source.data(), target.data(), source.size()) == 0);
}

}  // namespace
}  // namespace hmm::copy
