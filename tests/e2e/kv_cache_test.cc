// SPDX-License-Identifier: Apache-2.0
//
// hmm::KvCache against a real daemon: every byte that it gives back is the one that was written for
// these tokens, or it says that it has none.
#include "hmm/kv_cache.h"

#include <algorithm>
#include <string>
#include <vector>

#include "e2e/kv_fixture.h"

namespace hmm::testing {
namespace {

TEST_CASE("full blocks are found by the next process, the rest goes with the sequence") {
  Fixture f;
  const auto tokens = Tokens(30);
  {
    const auto cache = Make(*f.client);
    KvSequence sequence = cache->Open();
    CHECK(sequence.Match(tokens) == 0);
    MustCompute(sequence, absl::MakeConstSpan(tokens).subspan(0, 11));
    MustCompute(sequence, tokens);
    CHECK(sequence.length() == 30);
    CHECK(sequence.blocks() == 8);
    CHECK(CheckAll(sequence).ok());
    CHECK(f.tensors() == 8 * kLayers + 1);  // the geometry's record too
  }
  CHECK(WaitUntil([&] { return f.tensors() == 7 * kLayers + 1; }));

  const auto other = ConnectTo(f.daemon.dir());
  const auto cache = Make(*other);
  KvSequence sequence = cache->Open();
  CHECK(sequence.Match(tokens) == 28);
  CHECK(sequence.length() == 28);
  CHECK(CheckAll(sequence).ok());
  MustCompute(sequence, tokens);
  CHECK(CheckAll(sequence).ok());
  CHECK(cache->stats().matched_tokens == 28);

  SECTION("other tokens, models, layouts, ranks and salts find nothing or less") {
    auto changed = tokens;
    changed[9] = -1;
    KvSequence prefix = cache->Open();
    CHECK(prefix.Match(changed) == 8);
    for (int field = 0; field < 5; ++field) {
      KvCacheOptions options = Options();
      if (field == 0) options.model_digest = "another";
      if (field == 1) options.dtype = "f16";
      if (field == 2) options.layout = "v,k";
      if (field == 3) options.ranks = 2;
      if (field == 4) options.salt = "mine";
      const auto stranger = Make(*other, options);
      KvSequence none = stranger->Open();
      CHECK(none.Match(tokens) == 0);
    }
  }
}

TEST_CASE("a fork shares full blocks, and both write on") {
  Fixture f;
  const auto cache = Make(*f.client);
  auto tokens = Tokens(10);
  KvSequence parent = cache->Open();
  MustCompute(parent, tokens);
  KvSequence child = parent.Fork();
  CHECK(child.length() == 10);
  CHECK(f.tensors() == 4 * kLayers + 1);  // three blocks, and a copy of the last
  auto other = tokens;
  for (int i = 0; i < 9; ++i) {
    tokens.push_back(100 + i);
    other.push_back(200 + i);
  }
  MustCompute(parent, tokens);
  MustCompute(child, other);
  CHECK(CheckAll(parent).ok());
  CHECK(CheckAll(child).ok());
  REQUIRE(parent.Close().ok());
  CHECK(parent.length() == 0);
  CHECK(CheckAll(child).ok());
}

TEST_CASE("what is appended and not committed gives way") {
  Fixture f;
  const auto cache = Make(*f.client);
  const auto tokens = Tokens(9);
  KvSequence sequence = cache->Open();
  MustCompute(sequence, absl::MakeConstSpan(tokens).subspan(0, 6));
  REQUIRE(sequence.Append(Tokens(20, 5)).ok());
  CHECK(sequence.blocks() == 7);
  CHECK(sequence.length() == 6);
  MustCompute(sequence, tokens);
  CHECK(sequence.blocks() == 3);
  CHECK(CheckAll(sequence).ok());
  CHECK(f.tensors() == 3 * kLayers + 1);
}

TEST_CASE("a lost block makes the sequence shorter; what lies behind it is found again") {
  Fixture f;
  const auto cache = Make(*f.client);
  const auto tokens = Tokens(26);
  KvSequence sequence = cache->Open();
  MustCompute(sequence, tokens);
  Lose(*f.client, tokens, 2, 1);
  const absl::Status miss = CheckAll(sequence);
  INFO(miss);
  CHECK(KvCache::IsMiss(miss));
  CHECK(miss.code() == absl::StatusCode::kAborted);
  CHECK(sequence.length() == 2 * kBlock);
  CHECK(sequence.Match(absl::MakeConstSpan(tokens).subspan(8)) == 0);
  MustCompute(sequence, absl::MakeConstSpan(tokens).subspan(0, 12));
  // Layers 0 and 2 of that block were still there under their keys.
  CHECK(cache->stats().adopted == 2);
  CHECK(sequence.Match(absl::MakeConstSpan(tokens).subspan(12)) == 12);
  MustCompute(sequence, tokens);
  CHECK(CheckAll(sequence).ok());
  CHECK(cache->stats().misses == 1);
  CHECK(cache->stats().lost_tokens == 18);
}

TEST_CASE("two that compute the same blocks at once end with one copy") {
  Fixture f;
  const auto other = ConnectTo(f.daemon.dir());
  const auto cache = Make(*f.client);
  const auto rival = Make(*other);
  const auto tokens = Tokens(16);
  KvSequence a = cache->Open();
  KvSequence b = rival->Open();
  CHECK(b.Match(tokens) == 0);
  MustCompute(a, tokens);
  MustCompute(b, tokens);
  CHECK(rival->stats().adopted == 4 * kLayers);
  CHECK(WaitUntil([&] { return f.tensors() == 4 * kLayers + 1; }));
  CHECK(CheckAll(a).ok());
  CHECK(CheckAll(b).ok());
}

TEST_CASE("suspended to any tier and resumed, it writes on") {
  Fixture f;
  KvCacheOptions options = Options();
  options.tier = "hbm0";
  const auto cache = Make(*f.client, options);
  auto tokens = Tokens(10);
  KvSequence sequence = cache->Open();
  MustCompute(sequence, tokens);
  for (const std::string tier : {"", "ddr0", "flash0", "hbm0"}) {
    INFO("suspended to " << tier);
    REQUIRE(sequence.Suspend(tier).ok());
    CHECK(WaitUntil([&] { return ReadBooks(f.daemon.dir()).pins == 0; }));
    const KvStats before = cache->stats();
    const std::uint64_t moved_before = MovedTo(f.daemon.dir(), "hbm0");
    REQUIRE(sequence.Resume().ok());
    CHECK(ReadBooks(f.daemon.dir()).pins > 0);
    // All of it is where it is read, also the block that is being written; and what was hinted at
    // and then waited for counts once, as the daemon does.
    const std::uint64_t came = cache->stats().brought_bytes + cache->stats().prefetched_bytes -
                               before.brought_bytes - before.prefetched_bytes;
    const bool left = tier == "ddr0" || tier == "flash0";
    CHECK(came == (left ? sequence.blocks() * kLayers * kBlock * kTokenBytes : 0));
    CHECK(WaitUntil([&] { return MovedTo(f.daemon.dir(), "hbm0") - moved_before == came; }));
    CHECK(CheckAll(sequence).ok());
    tokens.insert(tokens.end(), {7, 7, 7});
    MustCompute(sequence, tokens);
  }
  CHECK(CheckAll(sequence).ok());
  // Blocks came up because of a hint, or were waited for.
  CHECK(cache->stats().prefetched_bytes + cache->stats().brought_bytes > 0);
}

TEST_CASE("suspending says what did not go to the tier") {
  Fixture f;
  KvCacheOptions options = Options();
  options.timeout = std::chrono::seconds(2);
  const auto cache = Make(*f.client, options);
  const auto tokens = Tokens(1000);  // 3 MiB: more than DDR reserves for moves
  KvSequence sequence = cache->Open();
  MustCompute(sequence, tokens);
  SECTION("there is no such tier") {
    const absl::Status none = sequence.Suspend("nope");
    INFO(none);
    CHECK(none.code() == absl::StatusCode::kNotFound);
    CHECK(none.message().find("no tier 'nope'") != std::string::npos);
  }
  SECTION("there is no room") {
    // Pins on all of DDR, of two sessions, for one may not have it all.
    std::vector<std::unique_ptr<Client>> others;
    std::vector<Pin> pins;
    for (int i = 0; i < 2; ++i) {
      others.push_back(ConnectTo(f.daemon.dir()));
      for (std::uint64_t bytes = 4 * kMiB; bytes >= 4096;) {
        auto held = others.back()->Allocate({.bytes = bytes}, {.tier = "ddr0"});
        if (held.ok()) {
          pins.push_back(std::move(held->pin));
          continue;
        }
        INFO(held.status());
        REQUIRE(held.status().code() == absl::StatusCode::kResourceExhausted);
        bytes /= 2;
      }
    }
    const absl::Status full = sequence.Suspend("ddr0");
    INFO(full);
    CHECK((absl::IsResourceExhausted(full) || absl::IsDeadlineExceeded(full)));  // as it waited
  }
  CHECK(cache->stats().misses == 0);
  CHECK(sequence.length() == 1000);
  CHECK(CheckAll(sequence).ok());
}

TEST_CASE("what others have pinned stays where it is, and suspending is no less done") {
  Fixture f;
  const auto cache = Make(*f.client);
  const auto tokens = Tokens(1000);
  KvSequence sequence = cache->Open();
  MustCompute(sequence, tokens);
  const auto other = ConnectTo(f.daemon.dir());
  const auto theirs = Make(*other);
  KvSequence reader = theirs->Open();
  REQUIRE(reader.Match(absl::MakeConstSpan(tokens).subspan(0, 8)) == 8);
  const absl::Status done = sequence.Suspend("flash0");
  INFO(done);
  CHECK(done.ok());
  CHECK(CheckAll(reader).ok());
  CHECK(cache->stats().misses == 0);
  CHECK(sequence.length() == 1000);
  CHECK(CheckAll(sequence).ok());
}

TEST_CASE("suspending misses what is gone") {
  Fixture f;
  const auto cache = Make(*f.client);
  const auto tokens = Tokens(26);
  KvSequence sequence = cache->Open();
  MustCompute(sequence, tokens);
  Lose(*f.client, tokens, 2, 1);
  const absl::Status miss = sequence.Suspend("flash0");
  INFO(miss);
  CHECK(KvCache::IsMiss(miss));
  CHECK(sequence.length() == 2 * kBlock);
  MustCompute(sequence, tokens);
  CHECK(CheckAll(sequence).ok());
}

TEST_CASE("windows: parts of a layer at a time, one tensor at least") {
  Fixture f;
  KvCacheOptions options = Options();
  options.window_bytes = GENERATE(std::uint64_t{1}, std::uint64_t{3} * 4096);
  const auto cache = Make(*f.client, options);
  const auto tokens = Tokens(33);
  KvSequence sequence = cache->Open();
  MustCompute(sequence, tokens);
  REQUIRE(sequence.Suspend("flash0").ok());
  REQUIRE(sequence.Resume().ok());
  CHECK(CheckAll(sequence).ok());
  std::vector<KvBlock> blocks;
  REQUIRE(sequence.Read(0, 0, blocks).ok());
  CHECK(blocks.size() == (options.window_bytes == 1 ? 1u : 3u));
  KvSequence again = cache->Open();
  CHECK(again.Match(tokens) == 32);
  CHECK(CheckAll(again).ok());
}

TEST_CASE("windows: what can be read is given before what lies behind it is waited for") {
  Fixture f;
  const auto cache = Make(*f.client);
  const auto tokens = Tokens(26);
  KvSequence sequence = cache->Open();
  MustCompute(sequence, tokens);
  const absl::Status away = f.client->Swap(TensorOf(*f.client, tokens, 3, 0), {.tier = "flash0"});
  INFO(away);
  REQUIRE(away.ok());
  std::vector<KvBlock> blocks;
  REQUIRE(sequence.Read(0, 0, blocks).ok());
  CHECK(blocks.size() == 3);  // pins are held, so nothing was brought
  CHECK(cache->stats().brought == 0);
  REQUIRE(sequence.Read(0, 3, blocks).ok());
  CHECK(blocks.size() == 4);
  CHECK(CheckAll(sequence).ok());
}

// Of a layer more can be read where it is than a session may pin, and the window has room for all.
TEST_CASE("windows: wider than small tiers, and what is pinned already is not waited beside") {
  const DaemonProcess daemon(HMMD_BINARY, ThreeTiers("64KiB"));
  const auto client = ConnectTo(daemon.dir());
  KvCacheOptions options = Options();
  options.tier = GENERATE("", "hbm0");
  options.timeout = std::chrono::seconds(30);
  const auto cache = Make(*client, options);
  const auto tokens = Tokens(32 * kBlock);  // 384 KiB
  KvSequence sequence = cache->Open();
  // Block by block, again where so little has dropped some. Whatever else were answered fails.
  bool whole = false;
  for (int steps = 0; steps < 2000 && !whole; ++steps) {
    const std::size_t end = std::min(sequence.length() + kBlock, tokens.size());
    absl::Status status;
    if (sequence.length() < end) {
      status = Compute(sequence, absl::MakeConstSpan(tokens).subspan(0, end));
    }
    if (status.ok()) status = CheckAll(sequence);
    INFO("at " << sequence.length() << ": " << status);
    REQUIRE((status.ok() || KvCache::IsMiss(status)));
    whole = status.ok() && end == tokens.size();
  }
  CHECK(whole);
}

TEST_CASE("a daemon that restarts is a miss from the start") {
  Fixture f;
  const auto cache = Make(*f.client);
  const auto tokens = Tokens(18);
  KvSequence sequence = cache->Open();
  MustCompute(sequence, tokens);
  KvSequence idle = sequence.Fork();
  f.daemon.Kill();
  f.daemon.Start();
  CHECK(WaitUntil([&] { return KvCache::IsMiss(CheckAll(sequence)); }));
  CHECK(sequence.length() == 0);
  MustCompute(sequence, tokens);
  CHECK(CheckAll(sequence).ok());
  CHECK(KvCache::IsMiss(CheckAll(idle)));
  CHECK(idle.Match(tokens) == 16);
  CHECK(CheckAll(idle).ok());
}

TEST_CASE("no room: the sequence stays as it was") {
  Fixture f;
  KvCacheOptions options = Options();
  options.token_bytes = kMiB;  // 12 MiB a block of 4 tokens and 3 layers; HBM has 8, DDR 16
  options.timeout = std::chrono::milliseconds(200);
  const auto cache = Make(*f.client, options);
  KvSequence sequence = cache->Open();
  const absl::Status full = sequence.Append(Tokens(12));
  INFO(full);
  CHECK_FALSE(full.ok());
  CHECK_FALSE(KvCache::IsMiss(full));
  CHECK(sequence.length() == 0);
  CHECK(sequence.blocks() == 0);
}

TEST_CASE("bad options are named with their values") {
  Fixture f;
  const auto refused = [&](auto change, const std::string& part, absl::StatusCode code) {
    KvCacheOptions options = Options();
    change(options);
    const absl::Status status = KvCache::Create(*f.client, options).status();
    INFO(status);
    CHECK(status.code() == code);
    CHECK(std::string(status.message()).find(part) != std::string::npos);
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  using O = KvCacheOptions;
  refused([](O& o) { o.layers = 0; }, "layers is 0", invalid);
  refused([](O& o) { o.layers = 5000; }, "layers is 5000", invalid);
  refused([](O& o) { o.block_tokens = 0; }, "block_tokens is 0", invalid);
  refused([](O& o) { o.token_bytes = 0; }, "token_bytes is 0", invalid);
  refused([](O& o) { o.token_bytes = ~0ull; }, "token_bytes is 18446744073709551615", invalid);
  refused([](O& o) { o.rank = 1; }, "rank is 1", invalid);
  refused([](O& o) { o.priority = 8; }, "priority is 8", invalid);
  refused([](O& o) { o.model_digest.clear(); }, "model_digest is empty", invalid);
  Make(*f.client);
  const auto differs = absl::StatusCode::kFailedPrecondition;
  refused([](O& o) { o.block_tokens = 8; }, "block_tokens is 8, but the prefixes stored", differs);
  refused([](O& o) { o.layers = 2; }, "layers is 2", differs);
  refused([](O& o) { o.token_bytes = 512; }, "token_bytes is 512", differs);
}

}  // namespace
}  // namespace hmm::testing
