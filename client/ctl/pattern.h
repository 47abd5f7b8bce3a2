// SPDX-License-Identifier: Apache-2.0
//
// What replay writes into a block and expects to read from it: a function of (seed, block, offset),
// so that any byte from another block, another offset or another run shows. Plain arithmetic on
// 8-byte words that the compiler turns into vector code. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hmm::ctl {

// Identifies the content of one block.
struct PatternKey {
  std::uint64_t seed = 0;
  std::uint64_t block = 0;
};

void FillPattern(PatternKey key, std::span<std::byte> bytes);

// Bytes that are not the pattern's; every byte is compared.
std::uint64_t CountWrongBytes(PatternKey key, std::span<const std::byte> bytes);

}  // namespace hmm::ctl
