// SPDX-License-Identifier: Apache-2.0
#include "copy/memory_copy.h"

#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "support/catch.h"

namespace hmm::copy {
namespace {

std::vector<std::byte> Pattern(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  std::uint32_t x = 12345;
  for (std::byte& byte : data) {
    x = x * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(x >> 24);
  }
  return data;
}

// Whether `kernel` copies exactly [to_skew, to_skew + bytes) and leaves 64 bytes on each side
// alone.
bool CopiesExactly(CopyKernel kernel, const std::vector<std::byte>& source, Bytes from_skew,
                   Bytes to_skew, Bytes bytes) {
  constexpr std::byte kGuard{0xA5};
  std::vector<std::byte> target(64 + to_skew + bytes + 64, kGuard);
  const auto first = target.begin() + static_cast<std::ptrdiff_t>(64 + to_skew);
  const auto last = first + static_cast<std::ptrdiff_t>(bytes);
  const auto from = source.begin() + static_cast<std::ptrdiff_t>(from_skew);
  if (!CopyMemoryBy(kernel, &*first, &*from, bytes)) return false;
  const auto guard = [](std::byte byte) { return byte == kGuard; };
  return std::equal(first, last, from) && std::all_of(target.begin(), first, guard) &&
         std::all_of(last, target.end(), guard);
}

TEST_CASE("every kernel of this CPU copies every byte and no other") {
  const auto kernel =
      GENERATE(CopyKernel::kMemcpy, CopyKernel::kRepMovsb, CopyKernel::kNonTemporal);
  INFO(CopyKernelName(kernel));
  std::byte probe{};
  const std::byte one{1};
  if (!CopyMemoryBy(kernel, &probe, &one, 1)) {
    WARN("this CPU lacks " << CopyKernelName(kernel));
    REQUIRE(KernelFor(64 * kMiB) != kernel);
    return;
  }
  const std::vector<std::byte> source = Pattern(2 * kMiB + 512);
  for (const Bytes bytes : {Bytes{1}, Bytes{63}, Bytes{64}, Bytes{65}, Bytes{127}, Bytes{4096},
                            Bytes{100'003}, kMiB, 2 * kMiB - 1}) {
    for (const Bytes from_skew : {Bytes{0}, Bytes{1}, Bytes{33}}) {
      for (const Bytes to_skew : {Bytes{0}, Bytes{1}, Bytes{31}, Bytes{63}}) {
        INFO(bytes << " bytes, skewed by " << from_skew << " and " << to_skew);
        REQUIRE(CopiesExactly(kernel, source, from_skew, to_skew, bytes));
      }
    }
  }
}

TEST_CASE("CopyMemory uses memcpy below 1 MiB and copies sizes around the threshold") {
  REQUIRE(KernelFor(0) == CopyKernel::kMemcpy);
  REQUIRE(KernelFor(kMiB - 1) == CopyKernel::kMemcpy);
#if defined(__x86_64__)
  REQUIRE(KernelFor(kMiB) != CopyKernel::kMemcpy);
#endif
  const std::vector<std::byte> source = Pattern(kMiB + 1);
  for (const Bytes bytes : {Bytes{1}, kMiB - 1, kMiB, kMiB + 1}) {
    std::vector<std::byte> target(bytes);
    CopyMemory(target.data(), source.data(), bytes);
    REQUIRE(std::equal(target.begin(), target.end(), source.begin()));
  }
}

TEST_CASE("a copy of nothing touches nothing") {
  CopyMemory(nullptr, nullptr, 0);
  REQUIRE(CopyMemoryBy(CopyKernel::kNonTemporal, nullptr, nullptr, 0));
}

TEST_CASE("Checksum equals XXH3_64bits at every length class and alignment") {
  const std::vector<std::byte> data = Pattern(300'000);
  for (const Bytes bytes :
       {Bytes{0}, Bytes{1}, Bytes{3}, Bytes{8}, Bytes{16}, Bytes{17}, Bytes{128}, Bytes{129},
        Bytes{240}, Bytes{241}, Bytes{1024}, Bytes{4096}, Bytes{4097}, Bytes{299'990}}) {
    for (const std::size_t skew : {std::size_t{0}, std::size_t{1}, std::size_t{7}}) {
      INFO(bytes << " bytes at " << skew);
      REQUIRE(Checksum(data.data() + skew, bytes) == XXH3_64bits(data.data() + skew, bytes));
    }
  }
  // The published value for no bytes: fixes the variant (64 bits, seed 0) and not just agreement.
  REQUIRE(Checksum(data.data(), 0) == 0x2D06800538D394C2ULL);
}

TEST_CASE("a piecewise checksum does not depend on where the pieces end") {
  const std::vector<std::byte> data = Pattern(200'000);
  for (const Bytes piece : {Bytes{1'000}, Bytes{4'096}, Bytes{65'537}, Bytes{200'000}}) {
    PiecewiseChecksum sum;
    for (Bytes at = 0; at < data.size(); at += piece) {
      sum.Add(data.data() + at, std::min<Bytes>(piece, data.size() - at));
    }
    REQUIRE(sum.Digest() == Checksum(data.data(), data.size()));
  }
  REQUIRE(PiecewiseChecksum().Digest() == Checksum(data.data(), 0));
}

}  // namespace
}  // namespace hmm::copy
