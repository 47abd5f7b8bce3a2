// SPDX-License-Identifier: Apache-2.0
//
// Word i of a block is x ^ (x >> 32) with x = base + i * kStep. kStep is odd and the fold one to
// one, so no two words of a block are equal; base is a mixed (seed, block), so that two blocks
// differ in nearly every byte; the fold keeps low bytes from repeating at page distances.
#include "client/ctl/pattern.h"

#include <algorithm>
#include <cstring>

namespace hmm::ctl {
namespace {

constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15;
constexpr std::size_t kWord = sizeof(std::uint64_t);
// Words compared before the result is looked at: a page's worth, so that the loop has no branch.
constexpr std::size_t kWordsPerLook = 512;

// splitmix64's finaliser.
std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

std::uint64_t Base(PatternKey key) { return Mix(Mix(key.seed + kStep) ^ (key.block * kStep)); }

std::uint64_t Word(std::uint64_t base, std::size_t i) {
  const std::uint64_t x = base + i * kStep;
  return x ^ (x >> 32);
}

std::uint64_t WrongBytesOfWord(std::uint64_t difference) {
  std::uint64_t wrong = 0;
  for (; difference != 0; difference >>= 8) wrong += (difference & 0xFF) != 0 ? 1 : 0;
  return wrong;
}

}  // namespace

void FillPattern(PatternKey key, std::span<std::byte> bytes) {
  if (bytes.empty()) return;  // memcpy takes no null, not even for nothing
  const std::uint64_t base = Base(key);
  const std::size_t words = bytes.size() / kWord;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t word = Word(base, i);
    std::memcpy(bytes.data() + i * kWord, &word, kWord);
  }
  const std::uint64_t tail = Word(base, words);
  std::memcpy(bytes.data() + words * kWord, &tail, bytes.size() % kWord);
}

std::uint64_t CountWrongBytes(PatternKey key, std::span<const std::byte> bytes) {
  if (bytes.empty()) return 0;  // memcpy takes no null, not even for nothing
  const std::uint64_t base = Base(key);
  const std::size_t words = bytes.size() / kWord;
  const auto difference = [&](std::size_t i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i * kWord, kWord);
    return word ^ Word(base, i);
  };
  std::uint64_t wrong = 0;
  for (std::size_t begin = 0; begin < words; begin += kWordsPerLook) {
    const std::size_t end = std::min(words, begin + kWordsPerLook);
    std::uint64_t any = 0;
    for (std::size_t i = begin; i < end; ++i) any |= difference(i);
    if (any == 0) continue;
    for (std::size_t i = begin; i < end; ++i) wrong += WrongBytesOfWord(difference(i));
  }
  const std::uint64_t tail = Word(base, words);
  std::uint64_t found = tail;
  std::memcpy(&found, bytes.data() + words * kWord, bytes.size() % kWord);
  return wrong + WrongBytesOfWord(found ^ tail);
}

}  // namespace hmm::ctl
