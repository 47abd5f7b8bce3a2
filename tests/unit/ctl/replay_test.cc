// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/replay.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/status.h"
#include "client/ctl/lru_forecast.h"
#include "client/ctl/pattern.h"
#include "client/ctl/trace_reader.h"
#include "support/catch.h"

namespace hmm::ctl {
namespace {

// A store in plain memory with room for `capacity` blocks, exact LRU, two tiers by recency. Faults
// are switched on by the test.
class FakeStore final : public BlockStore {
 public:
  FakeStore(std::size_t capacity, std::size_t hbm) : capacity_(capacity), hbm_(hbm) {}

  absl::StatusOr<std::vector<FoundBlock>> Lookup(absl::Span<const std::string> keys,
                                                 std::chrono::milliseconds) override {
    const std::lock_guard lock(mutex_);
    if (!lookup_fault.ok()) return lookup_fault;
    std::vector<FoundBlock> run;
    for (const std::string& key : keys) {
      const auto it = Find(key);
      if (it == blocks_.end()) break;
      const bool fast = static_cast<std::size_t>(it - blocks_.begin()) < hbm_;
      run.push_back({Pin((*it)->bytes), fast ? "hbm0" : "cold"});
    }
    for (std::size_t i = run.size(); i-- > 0;) TouchOne(keys[i]);
    return run;
  }

  absl::StatusOr<std::vector<absl::StatusOr<std::unique_ptr<PinnedBlock>>>> Allocate(
      absl::Span<const std::string> keys, Bytes bytes, std::chrono::milliseconds) override {
    const std::lock_guard lock(mutex_);
    ++allocate_calls;
    std::vector<absl::StatusOr<std::unique_ptr<PinnedBlock>>> rooms;
    for (const std::string& key : keys) {
      if (full_times > 0) {
        --full_times;
        rooms.emplace_back(
            WithRetry(Error(absl::StatusCode::kResourceExhausted, Reason::kFull, "full"),
                      std::chrono::milliseconds(1)));
      } else if (Find(key) != blocks_.end()) {
        rooms.emplace_back(Error(absl::StatusCode::kAlreadyExists, Reason::kExists, "taken"));
      } else {
        auto made = std::make_shared<Content>(bytes);
        creating_[made.get()] = key;
        rooms.emplace_back(Pin(made));
      }
    }
    return rooms;
  }

  absl::StatusOr<std::vector<absl::Status>> Seal(
      std::vector<std::unique_ptr<PinnedBlock>> blocks) override {
    const std::lock_guard lock(mutex_);
    std::vector<absl::Status> out;
    // As the daemon: the first of a batch is the one used last.
    for (std::size_t i = blocks.size(); i-- > 0;) {
      const std::unique_ptr<PinnedBlock>& block = blocks[i];
      auto& pinned = static_cast<FakePin&>(*block);
      const std::string key = creating_[pinned.held.get()];
      if (corrupt_key == key) (*pinned.held)[100] ^= std::byte{1};
      blocks_.insert(blocks_.begin(), std::make_unique<Entry>(Entry{key, pinned.held}));
      if (blocks_.size() > capacity_) blocks_.pop_back();
      out.push_back(absl::OkStatus());
    }
    return out;
  }

  absl::Status Touch(absl::Span<const std::string> keys) override {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = keys.size(); i-- > 0;) {
      if (Find(keys[i]) != blocks_.end()) TouchOne(keys[i]);
    }
    return absl::OkStatus();
  }

  std::size_t pins() const { return pins_; }
  std::size_t most_pins() const { return most_pins_; }

  absl::Status lookup_fault;
  std::size_t full_times = 0;
  std::size_t allocate_calls = 0;
  std::string corrupt_key;

 private:
  using Content = std::vector<std::byte>;
  struct Entry {
    std::string key;
    std::shared_ptr<Content> bytes;
  };
  struct FakePin final : PinnedBlock {
    FakePin(FakeStore& store, std::shared_ptr<Content> bytes_held)
        : owner(store), held(std::move(bytes_held)) {
      owner.most_pins_ = std::max<std::size_t>(owner.most_pins_, ++owner.pins_);
    }
    ~FakePin() override { --owner.pins_; }
    std::span<std::byte> bytes() const override { return *held; }
    FakeStore& owner;
    std::shared_ptr<Content> held;
  };

  std::unique_ptr<PinnedBlock> Pin(std::shared_ptr<Content> bytes) {
    return std::make_unique<FakePin>(*this, std::move(bytes));
  }
  std::vector<std::unique_ptr<Entry>>::iterator Find(const std::string& key) {
    return std::find_if(blocks_.begin(), blocks_.end(),
                        [&](const auto& entry) { return entry->key == key; });
  }
  void TouchOne(const std::string& key) {
    const auto it = Find(key);
    std::rotate(blocks_.begin(), it, it + 1);
  }

  const std::size_t capacity_;
  const std::size_t hbm_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Entry>> blocks_;  // most recent first
  std::map<const Content*, std::string> creating_;
  std::atomic<std::size_t> pins_{0};
  std::atomic<std::size_t> most_pins_{0};
};

ReplayOptions SmallOptions() {
  ReplayOptions options;
  options.block_bytes = 256;
  options.window_bytes = 4 * 256;
  options.key_prefix = "t";
  options.retry_max = std::chrono::milliseconds(50);
  return options;
}

Trace SmallTrace(std::size_t requests) {
  const absl::StatusOr<Trace> chat =
      ReadTrace(HMM_TEST_DATA "/traces/mooncake_conversation.jsonl.gz");
  REQUIRE(chat.ok());
  Trace trace = *chat;
  trace.requests.resize(requests);
  return trace;
}

TEST_CASE("replay finds what an exact LRU finds, and verifies every byte of it") {
  const Trace trace = SmallTrace(60);
  for (const std::size_t capacity : {std::size_t{300}, std::size_t{100'000}}) {
    FakeStore store(capacity, 50);
    Replayer replayer(trace, SmallOptions(), store);
    const ReplayTally tally = replayer.Run({});
    const LruForecast forecast = ForecastLru(trace.requests, std::vector<std::size_t>{capacity});
    CHECK(tally.requests == 60);
    CHECK(tally.accesses == forecast.accesses);
    CHECK(tally.TotalHits() == forecast.hits[0]);
    CHECK(tally.hits[0] > 0);
    CHECK(tally.hits[2] == 0);
    CHECK(tally.TotalHits() + tally.misses == tally.accesses);
    CHECK(tally.stored + tally.present == tally.misses);
    CHECK(tally.verified_bytes == tally.TotalHits() * 256);
    CHECK(tally.wrong_bytes == 0);
    CHECK(tally.errors == 0);
    CHECK(replayer.done() == replayer.total());
    CHECK(store.pins() == 0);
    CHECK(store.most_pins() <= 4);
  }
}

TEST_CASE("a wrong byte is counted, named, and an error") {
  Trace trace;
  trace.requests.resize(2);
  trace.requests[0].runs = {{10, 3}};
  trace.requests[1].runs = {{10, 3}};
  const ReplayOptions options = SmallOptions();
  FakeStore store(100, 100);
  store.corrupt_key = BlockKey(options, 11);
  Replayer replayer(trace, options, store);
  const ReplayTally tally = replayer.Run({});
  CHECK(tally.hits[0] == 3);
  CHECK(tally.wrong_bytes == 1);
  CHECK(tally.errors == 1);
  REQUIRE(tally.messages.size() == 1);
  CHECK_THAT(tally.messages[0], Catch::StartsWith("block 11 (found in hbm0): 1 of 256 bytes"));
}

TEST_CASE("blocks there beyond the run are misses that are not written again") {
  Trace trace;
  trace.requests.resize(2);
  trace.requests[0].runs = {{2, 3}};
  trace.requests[1].runs = {{1, 4}};
  FakeStore store(100, 100);
  const ReplayTally tally = Replayer(trace, SmallOptions(), store).Run({});
  CHECK(tally.TotalHits() == 0);
  CHECK(tally.misses == 7);
  CHECK(tally.stored == 4);
  CHECK(tally.present == 3);
  CHECK(tally.errors == 0);
}

TEST_CASE("no room: tried again, then given up as unstored, never an error") {
  Trace trace;
  trace.requests.resize(1);
  trace.requests[0].runs = {{0, 4}};
  {
    FakeStore store(100, 100);
    store.full_times = 6;
    const ReplayTally tally = Replayer(trace, SmallOptions(), store).Run({});
    CHECK(tally.stored == 4);
    CHECK(tally.unstored == 0);
    CHECK(store.allocate_calls == 3);
  }
  {
    FakeStore store(100, 100);
    store.full_times = 1'000'000;
    const ReplayTally tally = Replayer(trace, SmallOptions(), store).Run({});
    CHECK(tally.stored == 0);
    CHECK(tally.unstored == 4);
    CHECK(tally.errors == 0);
    CHECK(store.allocate_calls > 1);
  }
}

TEST_CASE("errors in a row end the run, a daemon that is gone at once") {
  const Trace trace = SmallTrace(500);
  ReplayOptions options = SmallOptions();
  options.errors_in_a_row_max = 3;
  options.retry_max = std::chrono::milliseconds(0);
  struct Case {
    Reason reason;
    std::uint64_t errors;
  };
  for (const Case& expected : {Case{Reason::kInternal, 3}, Case{Reason::kNoDaemon, 1}}) {
    FakeStore store(100, 100);
    store.lookup_fault = Error(absl::StatusCode::kUnavailable, expected.reason, "gone");
    store.full_times = 1'000'000'000;
    const ReplayTally tally = Replayer(trace, options, store).Run({});
    CHECK(tally.interrupted);
    CHECK(tally.errors == expected.errors);
    CHECK(tally.requests == expected.errors);
    CHECK(tally.messages[0] == "Lookup: gone");
  }
}

TEST_CASE("a stop asked for ends the run with what was done") {
  const Trace trace = SmallTrace(500);
  FakeStore store(100'000, 100);
  std::stop_source stop;
  stop.request_stop();
  const ReplayTally tally = Replayer(trace, SmallOptions(), store).Run(stop.get_token());
  CHECK(tally.interrupted);
  CHECK(tally.requests == 0);
  CHECK(tally.errors == 0);
}

TEST_CASE("threads share the requests; each is served once") {
  const Trace trace = SmallTrace(100);
  FakeStore store(100'000, 100'000);
  ReplayOptions options = SmallOptions();
  options.threads = 4;
  const ReplayTally tally = Replayer(trace, options, store).Run({});
  const LruForecast forecast = ForecastLru(trace.requests, std::vector<std::size_t>{100'000});
  CHECK(tally.requests == 100);
  CHECK(tally.accesses == forecast.accesses);
  CHECK(tally.wrong_bytes == 0);
  CHECK(tally.errors == 0);
  CHECK(store.pins() == 0);
}

TEST_CASE("parts deal the requests out without gap or overlap") {
  const Trace trace = SmallTrace(50);
  std::uint64_t requests = 0;
  std::uint64_t accesses = 0;
  for (std::size_t part = 0; part < 3; ++part) {
    FakeStore store(100'000, 100);
    ReplayOptions options = SmallOptions();
    options.part = part;
    options.parts = 3;
    options.requests_max = 41;
    const ReplayTally tally = Replayer(trace, options, store).Run({});
    requests += tally.requests;
    accesses += tally.accesses;
  }
  CHECK(requests == 41);
  const auto first = absl::MakeConstSpan(trace.requests).subspan(0, 41);
  CHECK(accesses == ForecastLru(first, std::vector<std::size_t>{1}).accesses);
}

TEST_CASE("kinds of tiers: by the daemon's word, else by name") {
  ReplayOptions options;
  options.tier_kinds["fast"] = TierKind::kHbm;
  CHECK(KindOfTier(options, "fast") == TierKind::kHbm);
  CHECK(KindOfTier(options, "hbm3") == TierKind::kHbm);
  CHECK(KindOfTier(options, "flash0") == TierKind::kFlash);
  CHECK(KindOfTier(options, "ddr0") == TierKind::kDdr);
}

TEST_CASE("keys differ by prefix, seed, size and block") {
  ReplayOptions options = SmallOptions();
  std::set<std::string> keys = {BlockKey(options, 1), BlockKey(options, 11)};
  options.seed = 2;
  keys.insert(BlockKey(options, 1));
  options.block_bytes = 512;
  keys.insert(BlockKey(options, 1));
  options.key_prefix = "u";
  keys.insert(BlockKey(options, 1));
  CHECK(keys.size() == 5);
}

}  // namespace
}  // namespace hmm::ctl
