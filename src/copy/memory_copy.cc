// SPDX-License-Identifier: Apache-2.0
//
// Two tables of what this CPU can do: which copy kernel for which size, and (inside libxxhash,
// whose x86 build carries its own run-time dispatch) the widest vectors for XXH3. Other
// architectures use memcpy and what libxxhash was built with. Any thread.
#include "copy/memory_copy.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
// Declares XXH3_*_dispatch. By itself it would also redefine the plain names, which only hides what
// is called.
#define XXH_DISPATCH_DISABLE_REPLACE
#include <xxh_x86dispatch.h>
#endif

namespace hmm::copy {
namespace {

// Below this a copy stays in the caches and memcpy wins; from here on it does not.
constexpr Bytes kLargeCopy = 1 * kMiB;

#if defined(__x86_64__)

enum class Vectors : std::uint8_t { kSse2, kAvx2, kAvx512 };

struct Cpu {
  bool fast_rep_movsb = false;  // ERMS or FSRM
  Vectors vectors = Vectors::kSse2;
};

Cpu DetectCpu() {
  Cpu cpu;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    constexpr unsigned kErms = 1U << 9;  // in ebx
    constexpr unsigned kFsrm = 1U << 4;  // in edx
    cpu.fast_rep_movsb = (ebx & kErms) != 0 || (edx & kFsrm) != 0;
  }
  // These also ask whether the system saves the wide registers.
  if (__builtin_cpu_supports("avx512f")) {
    cpu.vectors = Vectors::kAvx512;
  } else if (__builtin_cpu_supports("avx2")) {
    cpu.vectors = Vectors::kAvx2;
  }
  return cpu;
}

const Cpu& ThisCpu() {
  static const Cpu cpu = DetectCpu();
  return cpu;
}

void CopyByRepMovsb(std::byte* to, const std::byte* from, Bytes bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

// Each streams whole lines; REQUIRES: `to` aligned to 64. Returns how many bytes it copied, a
// multiple of 64. They differ in nothing but the register width.
Bytes StreamSse2(std::byte* to, const std::byte* from, Bytes bytes) {
  const Bytes whole = RoundDown(bytes, 64);
  for (Bytes at = 0; at < whole; at += 64) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  return whole;
}

__attribute__((target("avx2"))) Bytes StreamAvx2(std::byte* to, const std::byte* from,
                                                 Bytes bytes) {
  const Bytes whole = RoundDown(bytes, 64);
  for (Bytes at = 0; at < whole; at += 64) {
    const auto* source = reinterpret_cast<const __m256i*>(from + at);
    auto* target = reinterpret_cast<__m256i*>(to + at);
    const __m256i a = _mm256_loadu_si256(source);
    const __m256i b = _mm256_loadu_si256(source + 1);
    _mm256_stream_si256(target, a);
    _mm256_stream_si256(target + 1, b);
  }
  return whole;
}

__attribute__((target("avx512f"))) Bytes StreamAvx512(std::byte* to, const std::byte* from,
                                                      Bytes bytes) {
  const Bytes whole = RoundDown(bytes, 64);
  for (Bytes at = 0; at < whole; at += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), _mm512_loadu_si512(from + at));
  }
  return whole;
}

void CopyNonTemporal(std::byte* to, const std::byte* from, Bytes bytes) {
  const auto misaligned = static_cast<Bytes>(reinterpret_cast<std::uintptr_t>(to) % 64);
  if (misaligned != 0) {
    const Bytes head = std::min<Bytes>(64 - misaligned, bytes);
    std::memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
  }
  Bytes streamed = 0;
  switch (ThisCpu().vectors) {
    case Vectors::kAvx512:
      streamed = StreamAvx512(to, from, bytes);
      break;
    case Vectors::kAvx2:
      streamed = StreamAvx2(to, from, bytes);
      break;
    case Vectors::kSse2:
      streamed = StreamSse2(to, from, bytes);
      break;
  }
  // Streaming stores are weakly ordered: without this, whoever is told "done" could read old bytes.
  _mm_sfence();
  std::memcpy(to + streamed, from + streamed, bytes - streamed);
}

#endif  // __x86_64__

}  // namespace

std::string_view CopyKernelName(CopyKernel kernel) {
  switch (kernel) {
    case CopyKernel::kMemcpy:
      return "memcpy";
    case CopyKernel::kRepMovsb:
      return "rep_movsb";
    case CopyKernel::kNonTemporal:
      return "non_temporal";
  }
  return "unknown";
}

CopyKernel KernelFor(Bytes bytes) {
#if defined(__x86_64__)
  if (bytes >= kLargeCopy) return CopyKernel::kNonTemporal;
#else
  static_cast<void>(bytes);
#endif
  return CopyKernel::kMemcpy;
}

void CopyMemory(std::byte* to, const std::byte* from, Bytes bytes) {
  HMM_CHECK(CopyMemoryBy(KernelFor(bytes), to, from, bytes));
}

bool CopyMemoryBy(CopyKernel kernel, std::byte* to, const std::byte* from, Bytes bytes) {
  if (bytes == 0) return true;  // memcpy must not see null
  switch (kernel) {
    case CopyKernel::kMemcpy:
      std::memcpy(to, from, bytes);
      return true;
#if defined(__x86_64__)
    case CopyKernel::kRepMovsb:
      if (!ThisCpu().fast_rep_movsb) return false;
      CopyByRepMovsb(to, from, bytes);
      return true;
    case CopyKernel::kNonTemporal:
      CopyNonTemporal(to, from, bytes);
      return true;
#else
    case CopyKernel::kRepMovsb:
    case CopyKernel::kNonTemporal:
      return false;
#endif
  }
  return false;
}

std::uint64_t Checksum(const std::byte* data, Bytes bytes) {
#if defined(__x86_64__)
  return XXH3_64bits_dispatch(data, bytes);
#else
  return XXH3_64bits(data, bytes);
#endif
}

void PiecewiseChecksum::Deleter::operator()(XXH3_state_s* state) const {
  static_cast<void>(XXH3_freeState(state));
}

PiecewiseChecksum::PiecewiseChecksum() : state_(XXH3_createState()) {
  HMM_CHECK(state_ != nullptr);
  HMM_CHECK(XXH3_64bits_reset(state_.get()) == XXH_OK);
}

void PiecewiseChecksum::Add(const std::byte* data, Bytes bytes) {
#if defined(__x86_64__)
  const XXH_errorcode code = XXH3_64bits_update_dispatch(state_.get(), data, bytes);
#else
  const XXH_errorcode code = XXH3_64bits_update(state_.get(), data, bytes);
#endif
  HMM_CHECK(code == XXH_OK);
}

std::uint64_t PiecewiseChecksum::Digest() const { return XXH3_64bits_digest(state_.get()); }

}  // namespace hmm::copy
