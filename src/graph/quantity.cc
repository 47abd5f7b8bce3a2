// SPDX-License-Identifier: Apache-2.0
#include "graph/quantity.h"

#include <charconv>
#include <cmath>
#include <span>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hmm::graph {
namespace {

struct Unit {
  std::string_view suffix;
  double factor;  // into the unit of the result; a quotient where that is exact
  bool divides;
};

// The order is that in which writers try them; readers take the only suffix that leaves a number.
constexpr Unit kRates[] = {
    {"GiB/s", 1073.741824, false},
    {"GB/s", 1e3, false},
    {"TB/s", 1e6, false},
    {"MB/s", 1, false},
    {"TiB/s", 1099511.627776, false},
    {"MiB/s", 1.048576, false},
    {"KiB/s", 1024e-6, false},
    {"kB/s", 1e3, true},
    {"B/s", 1e6, true},
    {"B/us", 1, false},
};
constexpr Unit kFlops[] = {
    {"TFLOP/s", 1e6, false}, {"GFLOP/s", 1e3, false}, {"PFLOP/s", 1e9, false},
    {"MFLOP/s", 1, false},   {"FLOP/s", 1e6, true},   {"FLOP/us", 1, false},
};
constexpr Unit kTimes[] = {
    {"us", 1, false}, {"ns", 1e3, true}, {"ms", 1e3, false}, {"s", 1e6, false}};

// A plain decimal number that fills `text`, spaces around it aside.
std::optional<double> Number(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (text.empty() || text.find_first_not_of("0123456789.e+-") != std::string_view::npos) return {};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::optional<double> Parse(std::string_view text, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (!text.ends_with(unit.suffix)) continue;
    const auto number = Number(text.substr(0, text.size() - unit.suffix.size()));
    if (!number.has_value()) continue;
    const double value = unit.divides ? *number / unit.factor : *number * unit.factor;
    if (std::isfinite(value) && value >= 0) return value;
  }
  return {};
}

// The shortest that reads back as the same.
std::string Format(double value, std::span<const Unit> units) {
  std::string best;
  for (const Unit& unit : units) {
    const double scaled = unit.divides ? value * unit.factor : value / unit.factor;
    for (const int digits : {6, 15, 17}) {
      const std::string text =
          absl::StrCat(absl::StrFormat("%.*g", digits, scaled), std::string(unit.suffix));
      if (Parse(text, units) != value) continue;
      if (best.empty() || text.size() < best.size()) best = text;
      break;
    }
  }
  return best;
}

std::optional<double> Positive(std::optional<double> value) {
  return value.has_value() && *value > 0 ? value : std::nullopt;
}

}  // namespace

std::optional<double> ParseRate(std::string_view text) { return Positive(Parse(text, kRates)); }
std::string FormatRate(double bytes_per_us) { return Format(bytes_per_us, kRates); }

std::optional<double> ParseFlops(std::string_view text) { return Positive(Parse(text, kFlops)); }
std::string FormatFlops(double flops_per_us) { return Format(flops_per_us, kFlops); }

std::optional<double> ParseMicroseconds(std::string_view text) { return Parse(text, kTimes); }
std::string FormatMicroseconds(double us) { return Format(us, kTimes); }

}  // namespace hmm::graph
