// SPDX-License-Identifier: Apache-2.0
//
// Numbers with units as machine files write them. Pure. Each reader gives nullopt for what it does
// not take; each writer gives what its reader takes back as the same number.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hmm::graph {

// "55GB/s", "16GiB/s", "1.6TB/s", "250B/us": bytes per microsecond, > 0.
std::optional<double> ParseRate(std::string_view text);
std::string FormatRate(double bytes_per_us);

// "140TFLOP/s": FLOPs per microsecond, > 0.
std::optional<double> ParseFlops(std::string_view text);
std::string FormatFlops(double flops_per_us);

// "100ns", "5us", "0.5ms", "1s": microseconds, >= 0.
std::optional<double> ParseMicroseconds(std::string_view text);
std::string FormatMicroseconds(double us);

inline constexpr std::string_view kRateExample =
    "a rate in quotes such as \"55GB/s\" or \"16GiB/s\"";
inline constexpr std::string_view kFlopsExample = "a rate in quotes such as \"140TFLOP/s\"";
inline constexpr std::string_view kTimeExample = "a time in quotes such as \"5us\" or \"0.1ms\"";

}  // namespace hmm::graph
