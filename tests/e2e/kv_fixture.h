// SPDX-License-Identifier: Apache-2.0
//
// What the tests of hmm::KvCache share: a small model that "computes" bytes which tell the tokens
// before them, and checks every byte that it reads. Test thread.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "client/lib/kv_keys.h"
#include "e2e/client_fixture.h"
#include "hmm/kv_cache.h"

namespace hmm::testing {

inline constexpr std::uint32_t kLayers = 3;
inline constexpr std::uint32_t kBlock = 4;          // tokens
inline constexpr std::uint64_t kTokenBytes = 1024;  // so that a tensor has 4 KiB

inline KvCacheOptions Options() {
  KvCacheOptions options;
  options.layers = kLayers;
  options.block_tokens = kBlock;
  options.token_bytes = kTokenBytes;
  options.model_digest = "a model";
  return options;
}
inline std::unique_ptr<KvCache> Make(Client& client, const KvCacheOptions& options = Options()) {
  auto cache = KvCache::Create(client, options);
  INFO(cache.status());
  REQUIRE(cache.ok());
  return *std::move(cache);
}

inline std::vector<std::int32_t> Tokens(std::size_t count, std::int32_t seed = 0) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(seed * 1000 + static_cast<int>(i));
  return tokens;
}

// What an engine would compute for the token at `position` of `layer`: it depends on all before.
inline std::byte ByteOf(absl::Span<const std::int32_t> tokens, std::size_t position,
                        std::size_t layer) {
  std::uint32_t sum = 17;
  for (std::size_t i = 0; i <= position; ++i) {
    sum = sum * 31 + static_cast<std::uint32_t>(tokens[i]);
  }
  return static_cast<std::byte>((sum + layer * 7) & 0xff);
}

// One step for all tokens behind the sequence's. `tokens`: from the start.
inline absl::Status Compute(KvSequence& sequence, absl::Span<const std::int32_t> tokens) {
  const std::size_t first = sequence.length();
  if (absl::Status room = sequence.Append(tokens.subspan(first)); !room.ok()) return room;
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    for (std::size_t i = first; i < tokens.size(); ++i) {
      std::fill_n(sequence.Writable(layer, i / kBlock).data() + i % kBlock * kTokenBytes,
                  kTokenBytes, ByteOf(tokens, i, layer));
    }
  }
  return sequence.Commit();
}
inline void MustCompute(KvSequence& sequence, absl::Span<const std::int32_t> tokens) {
  const absl::Status status = Compute(sequence, tokens);
  INFO(status);
  REQUIRE(status.ok());
}

// Reads all; the first status that is not OK. Bytes that are wrong fail the test.
inline absl::Status CheckAll(KvSequence& sequence) {
  const std::vector<std::int32_t> tokens(sequence.tokens().begin(), sequence.tokens().end());
  std::vector<KvBlock> blocks;
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    for (std::size_t b = 0; b < sequence.blocks(); b += blocks.size()) {
      if (absl::Status read = sequence.Read(layer, b, blocks); !read.ok()) return read;
      REQUIRE(!blocks.empty());
      bool right = true;
      for (std::size_t i = 0; i < blocks.size() * kBlock; ++i) {
        const std::size_t position = b * kBlock + i;
        if (position >= tokens.size()) break;
        const std::byte* slot = blocks[i / kBlock].data + i % kBlock * kTokenBytes;
        const std::byte want = ByteOf(tokens, position, layer);
        right = right && slot[0] == want && slot[kTokenBytes - 1] == want;
      }
      CHECK(right);
    }
  }
  return absl::OkStatus();
}

// Keys of all tensors of full blocks, block by block.
inline std::vector<std::string> KeysOf(absl::Span<const std::int32_t> tokens) {
  const KvCacheOptions options = Options();
  auto link = client_internal::ChainStart(client_internal::IdentityOf(options), options);
  std::vector<std::string> keys;
  for (std::size_t b = 0; b < tokens.size() / kBlock; ++b) {
    link = client_internal::ChainNext(link, tokens.subspan(b * kBlock, kBlock));
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      keys.push_back(client_internal::BlockKey(link, layer));
    }
  }
  return keys;
}
// The tensor of one full block and layer, found behind the cache's back.
inline Tensor TensorOf(Client& client, absl::Span<const std::int32_t> tokens, std::size_t block,
                       std::size_t layer) {
  const std::string key = KeysOf(tokens)[block * kLayers + layer];
  const auto found = client.Lookup({&key, 1});
  REQUIRE(found.ok());
  REQUIRE(found->size() == 1);
  return found->front().tensor;
}
inline void Lose(Client& client, absl::Span<const std::int32_t> tokens, std::size_t block,
                 std::size_t layer) {
  REQUIRE(client.Free(TensorOf(client, tokens, block, layer)).ok());
}
// `capacity`: HBM's and DDR's; `more`: further tables.
inline std::string ThreeTiers(const std::string& capacity, const std::string& more = "") {
  const auto memory = [&](const std::string& name, const std::string& extra) {
    return "[[tier]]\nname = \"" + name + "0\"\nkind = \"" + name + "\"\ncapacity = \"" + capacity +
           "\"\ncommit_chunk = \"64KiB\"\npages = \"small\"\n" + extra;
  };
  return "[daemon]\ncommit_headroom = \"16MiB\"\n" + more + memory("hbm", "emulated = true\n") +
         memory("ddr", "") +
         "[[tier]]\nname = \"flash0\"\nkind = \"flash\"\ncapacity = \"64MiB\"\n";
}

struct Fixture {
  explicit Fixture(const std::string& config = kSmallTiers) : daemon(HMMD_BINARY, config) {}
  DaemonProcess daemon;
  std::unique_ptr<Client> client = ConnectTo(daemon.dir());
  std::uint64_t tensors() { return ReadBooks(daemon.dir()).tensors; }
};

}  // namespace hmm::testing
