// SPDX-License-Identifier: Apache-2.0
//
// The units of the project. Quantities are plain aliases whose meaning stands here once; names
// carry the unit at every boundary (`_bytes`, `_us`), base 1024 for sizes everywhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hmm {

using Bytes = std::uint64_t;                // a size or an offset in bytes
using Duration = std::chrono::nanoseconds;  // a span of time
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;  // monotonic

inline constexpr Bytes kKiB = 1024;
inline constexpr Bytes kMiB = 1024 * kKiB;
inline constexpr Bytes kGiB = 1024 * kMiB;

// Smallest multiple of `unit` that is >= `n`. REQUIRES: unit > 0 and no overflow.
constexpr Bytes RoundUp(Bytes n, Bytes unit) { return (n + unit - 1) / unit * unit; }
constexpr Bytes RoundDown(Bytes n, Bytes unit) { return n / unit * unit; }

// Parses "64KiB", "8GiB", "1.5MiB", "4096" (bytes). Units: B, KiB, MiB, GiB, TiB. A decimal unit
// ("MB") or a bare unit is INVALID_ARGUMENT with an example of what is accepted: a mistaken factor
// of 1.05 is worse than a refusal. So is a fraction of a byte; of larger units the nearest byte is
// taken.
absl::StatusOr<Bytes> ParseBytes(std::string_view text);

// "1.5 GiB", "64 KiB", "12 B": at most one decimal, as zpool(8) prints.
std::string FormatBytes(Bytes bytes);

}  // namespace hmm
