// SPDX-License-Identifier: Apache-2.0
//
// hmm::KvCache where what it has to say to the daemon is more than one call carries.
#include <string>
#include <vector>

#include "e2e/kv_fixture.h"

namespace hmm::testing {
namespace {

// All that a sequence can be asked, for `count` tokens in one step.
void LiveThrough(Fixture& f, std::size_t count) {
  const auto tokens = Tokens(count);
  const std::size_t full = count / kBlock;
  const auto other = ConnectTo(f.daemon.dir());
  KvCacheOptions wide = Options();
  wide.window_bytes = 64 * kMiB;  // so that windows are no smaller than calls
  {
    const auto cache = Make(*f.client, wide);
    const auto rival = Make(*other, wide);
    KvSequence first = cache->Open();
    KvSequence second = rival->Open();
    CHECK(second.Match(tokens) == 0);
    MustCompute(first, tokens);
    MustCompute(second, tokens);  // finds every key taken
    CHECK(rival->stats().adopted == full * kLayers);
    CHECK(CheckAll(second).ok());
    KvSequence fork = first.Fork();
    CHECK(fork.length() == count);
    REQUIRE(second.Close().ok());
    for (const std::string tier : {"flash0", "ddr0"}) {
      const absl::Status away = first.Suspend(tier);
      INFO(away);
      REQUIRE(away.ok());
      const absl::Status back = first.Resume();
      INFO(back);
      REQUIRE(back.ok());
      CHECK(CheckAll(first).ok());
    }
    CHECK(CheckAll(fork).ok());
    REQUIRE(first.Append(Tokens(count, 5)).ok());  // and gives it up again
    REQUIRE(first.Close().ok());
  }
  CHECK(WaitUntil([&] { return f.tensors() == full * kLayers + 1; }));
  const auto cache = Make(*other, wide);
  KvSequence found = cache->Open();
  CHECK(found.Match(tokens) == full * kBlock);
  CHECK(CheckAll(found).ok());
  CHECK(found.Close().ok());
}

TEST_CASE("a step of more tensors than one call carries is committed like any other") {
  Fixture f(ThreeTiers("64MiB"));
  LiveThrough(f, kBlock * 1376 + 1);  // 4,128 full ones
}

TEST_CASE("a daemon that takes less in one call, even less than a block, is served in more calls") {
  const std::string limit = GENERATE("1", "2", "4", "100");
  INFO("batch_max = " << limit);
  Fixture f(ThreeTiers("64MiB", "[limits]\nbatch_max = " + limit + "\n"));
  LiveThrough(f, kBlock * 60 + 1);
}

TEST_CASE("keys that others are still writing: more of them than one call carries") {
  Fixture f(ThreeTiers("64MiB", "[limits]\nbatch_max = 4\n"));
  // Taken, and not to be had: so the tensors stay ours, sealed without keys.
  const auto tokens = Tokens(kBlock * 8);
  const auto other = ConnectTo(f.daemon.dir());
  std::vector<Held> held;
  for (const std::string& key : KeysOf(tokens)) {
    auto one = other->Allocate({.bytes = kBlock * kTokenBytes, .kind = Kind::kKvCache, .key = key});
    REQUIRE(one.ok());
    held.push_back(*std::move(one));
  }
  const auto cache = Make(*f.client);
  KvSequence sequence = cache->Open();
  MustCompute(sequence, tokens);
  CHECK(cache->stats().adopted == 0);
  REQUIRE(sequence.Suspend("flash0").ok());  // all are sealed: what is not does not go there
  CHECK(CheckAll(sequence).ok());
  const std::uint64_t before = f.tensors();
  REQUIRE(sequence.Close().ok());
  CHECK(WaitUntil([&] { return f.tensors() == before - 8 * kLayers; }));
}

}  // namespace
}  // namespace hmm::testing
