// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/pattern.h"

#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "support/catch.h"

namespace hmm::ctl {
namespace {

using Block = std::vector<std::byte>;

Block Filled(PatternKey key, std::size_t bytes) {
  Block block(bytes);
  FillPattern(key, block);
  return block;
}

TEST_CASE("a block verifies as itself, whatever its size") {
  for (const std::size_t bytes : {0u, 1u, 7u, 8u, 9u, 4095u, 4096u, 4097u, 65536u, 65543u}) {
    INFO(bytes);
    CHECK(CountWrongBytes({1, 42}, Filled({1, 42}, bytes)) == 0);
  }
}

TEST_CASE("every single wrong byte is seen and counted once") {
  Block block = Filled({1, 42}, 4096 + 5);
  for (std::size_t i = 0; i < block.size(); ++i) {
    block[i] ^= std::byte{0x10};
    REQUIRE(CountWrongBytes({1, 42}, block) == 1);
    block[i] ^= std::byte{0x10};
  }
  block[0] ^= std::byte{1};
  block[1] ^= std::byte{0xFF};
  block[4100] ^= std::byte{0x80};
  CHECK(CountWrongBytes({1, 42}, block) == 3);
}

TEST_CASE("other blocks, seeds, offsets and zeros are wrong nearly everywhere") {
  const std::size_t bytes = 65536;
  CHECK(CountWrongBytes({1, 42}, Filled({1, 43}, bytes)) > bytes * 9 / 10);
  CHECK(CountWrongBytes({1, 42}, Filled({2, 42}, bytes)) > bytes * 9 / 10);
  CHECK(CountWrongBytes({1, 0}, Filled({0, 1}, bytes)) > bytes * 9 / 10);
  CHECK(CountWrongBytes({1, 42}, Block(bytes)) > bytes * 9 / 10);
  const Block longer = Filled({1, 42}, bytes + 4096);
  CHECK(CountWrongBytes({1, 42}, std::span(longer).subspan(4096)) > bytes * 9 / 10);
}

TEST_CASE("first words of many blocks differ") {
  std::set<std::uint64_t> seen;
  const auto word = [](PatternKey key) {
    std::uint64_t out = 0;
    std::memcpy(&out, Filled(key, sizeof out).data(), sizeof out);
    return out;
  };
  for (std::uint64_t block = 0; block < 100'000; ++block) {
    seen.insert(word({1, block}));
    seen.insert(word({1, ((block + 1) << 36) | 7}));
  }
  CHECK(seen.size() == 200'000);
}

}  // namespace
}  // namespace hmm::ctl
