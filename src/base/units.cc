// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"

#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace hmm {
namespace {

struct Unit {
  absl::string_view suffix;
  Bytes factor;
};
// Longest suffix first, so that "KiB" is not read as "B".
constexpr std::array<Unit, 5> kUnits = {
    {{"TiB", 1024 * kGiB}, {"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}, {"B", 1}}};

}  // namespace

absl::StatusOr<Bytes> ParseBytes(std::string_view text) {
  // Debian builds absl with a string_view of its own, which std's does not convert to.
  const absl::string_view given(text.data(), text.size());
  auto refuse = [&](absl::string_view why) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBadSize,
                 absl::StrCat("'", given, "' is not a size (", why,
                              "); write for example 64KiB, 512MiB, 8GiB or 4096B"));
  };
  absl::string_view digits = absl::StripAsciiWhitespace(given);
  Bytes factor = 1;
  for (const Unit& unit : kUnits) {
    if (digits.size() > unit.suffix.size() && absl::EndsWith(digits, unit.suffix)) {
      digits.remove_suffix(unit.suffix.size());
      digits = absl::StripTrailingAsciiWhitespace(digits);
      factor = unit.factor;
      break;
    }
  }
  if (digits.empty()) return refuse("no number");
  if (digits.front() == '-') return refuse("negative");
  if (digits.find_first_not_of("0123456789.") != absl::string_view::npos) {
    return refuse("units are B, KiB, MiB, GiB, TiB");
  }
  Bytes whole = 0;
  if (absl::SimpleAtoi(digits, &whole)) {
    if (whole > std::numeric_limits<Bytes>::max() / factor) return refuse("too large");
    return whole * factor;
  }
  double value = 0;
  if (digits.find('.') == absl::string_view::npos) return refuse("too large");
  if (!absl::SimpleAtod(digits, &value)) return refuse("not a number");
  const double bytes = value * static_cast<double>(factor);
  if (bytes >= 0x1p63) return refuse("too large");
  // What is less than a byte must not pass for nothing: "0.2" is a mistake, "0" may be meant.
  if ((value > 0 && bytes < 1) || (factor == 1 && bytes != std::floor(bytes))) {
    return refuse("a fraction of a byte");
  }
  return static_cast<Bytes>(std::llround(bytes));
}

std::string FormatBytes(Bytes bytes) {
  for (const Unit& unit : kUnits) {
    if (bytes < unit.factor || unit.factor == 1) continue;
    const double value = static_cast<double>(bytes) / static_cast<double>(unit.factor);
    if (bytes % unit.factor == 0) return absl::StrCat(bytes / unit.factor, " ", unit.suffix);
    return absl::StrFormat("%.1f %s", value, unit.suffix);
  }
  return absl::StrCat(bytes, " B");
}

}  // namespace hmm
