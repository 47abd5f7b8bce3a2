// SPDX-License-Identifier: Apache-2.0
//
// What the victims of the torture share with its driver: the blocks they read, what they do, and
// how they say that something was wrong.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace hmm::testing {

// Blocks of the tenant that every victim may read: sealed, keyed, never droppable.
inline constexpr std::uint64_t kSharedBlocks = 24;
inline constexpr std::uint64_t kSharedBytes = 96 * 1024;
inline std::string SharedKey(std::uint64_t block) { return "shared:" + std::to_string(block); }

// The byte at `at` of block `seed`.
inline std::byte TortureByte(std::uint64_t seed, std::size_t at) {
  return static_cast<std::byte>((seed * 131 + at * 7 + (at >> 8)) & 0xff);
}

// What a victim is at when it dies.
enum class Act : int { kOther, kAcquire, kWrite, kPinned, kMove, kAttach, kFork };
inline constexpr std::array<const char*, 7> kActNames = {"other", "acquire", "write", "pinned",
                                                         "move",  "attach",  "fork"};

// Exit codes of a victim that ended by itself, which none should.
inline constexpr int kWrongBytes = 42;
inline constexpr int kBadAnswer = 43;

}  // namespace hmm::testing
